"""Comparing logits: as bytes first, then as numbers for whoever has to look for the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Parity:
    """How two sets of logits compare.

    Args:
        equal: every byte is the same.
        max_abs_diff: the largest difference; infinite where the shapes differ or a value is not finite.
        nmse: the normalised mean square error: squared differences of all rows by squared values of the other
            side; infinite likewise.
        first_row: the first row that differs, None when none does.
        rows: how many rows were compared.
        finite: all values of both are finite.
        varied: rows differ from each other, or the values of a single row; constant logits prove nothing.
    """

    equal: bool
    max_abs_diff: float
    nmse: float
    first_row: int | None
    rows: int
    finite: bool
    varied: bool

    @property
    def sound(self) -> bool:
        """Equal, and of values that prove something."""
        return self.equal and self.finite and self.varied

    def near(self, nmse: float) -> bool:
        """Tell whether the error is not above a limit, and the values prove something."""
        return self.finite and self.varied and self.rows > 0 and self.nmse <= nmse


def compare(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> Parity:
    """Compare two arrays of logits, [rows, n_vocab] each."""
    finite = bool(np.isfinite(ours).all() and np.isfinite(theirs).all())
    varied = len({row.tobytes() for row in ours}) > 1 if len(ours) > 1 else np.unique(ours).size > 1
    if ours.shape != theirs.shape:
        return Parity(
            equal=False,
            max_abs_diff=np.inf,
            nmse=np.inf,
            first_row=0,
            rows=len(ours),
            finite=finite,
            varied=varied,
        )
    differing = [row for row in range(len(ours)) if ours[row].tobytes() != theirs[row].tobytes()]
    largest = float(np.abs(ours.astype("f8") - theirs.astype("f8")).max()) if finite and ours.size else np.inf
    return Parity(
        equal=not differing,
        max_abs_diff=largest,
        nmse=_nmse(ours, theirs) if finite and ours.size else np.inf,
        first_row=differing[0] if differing else None,
        rows=len(ours),
        finite=finite,
        varied=varied,
    )


def _nmse(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    error = np.square(ours.astype("f8") - theirs.astype("f8")).sum()
    scale = np.square(theirs.astype("f8")).sum()
    return float(error / max(scale, np.finfo("f8").tiny))
