"""Progress for work on files: shown where it takes long enough for a person to wonder."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgr_build import console

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONG = 256 << 20  # bytes; hashing less takes well under two seconds


class _Silent:
    def advance(self, amount: float) -> None:
        """Show nothing."""

    def update(self, *, done: float, total: float | None = None) -> None:
        """Show nothing."""


@contextmanager
def over_bytes(title: str, total: int) -> Iterator[console.Task]:
    """Show the progress of work over `total` bytes, unless it is over in a moment."""
    if total < _LONG:
        yield _Silent()
        return
    with console.progress(title, total, unit="bytes") as task:
        yield task
