"""What came of a run of a recipe, and how it compares with what it was held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from dgr_build.documents.sampling import Sampling
    from dgr_build.route.parity import Parity


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """What came of it.

    Args:
        recipe: what was run.
        stages: its ranges, from head to tail.
        lanes: of its stages.
        transport: how client and stages spoke to each other.
        prompt_ids: the prompt.
        token_ids: what was generated.
        text: the same as text.
        digests: artifact, lanes, patched tree, numerics, recipe.
        seconds: prefill and decode of the route, and of the whole model where it was run.
        logits: of every row that ran, [rows, n_vocab]; empty where they were not asked for.
        logs: where the workers' words lie.
        sampling: how tokens were chosen.
        parity: how the logits compare with the other side's, None where that was not asked.
        whole_ids: what the other side generated.
    """

    recipe: str
    stages: tuple[tuple[int, int], ...]
    lanes: tuple[str, ...]
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    digests: dict[str, str]
    seconds: dict[str, float]
    logits: NDArray[np.float32]
    logs: Path
    sampling: Sampling
    transport: str = "plaintext"
    parity: Parity | None = None
    whole_ids: tuple[int, ...] = ()

    @property
    def tokens_per_second(self) -> dict[str, float]:
        """Decode speed of the route, and of the whole model where it was run."""
        steps = len(self.token_ids) - 1
        return {
            name.removesuffix("_decode"): steps / spent
            for name, spent in self.seconds.items()
            if name.endswith("_decode") and spent > 0 and steps > 0
        }

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        data: dict[str, Any] = {
            "recipe": self.recipe,
            "stages": [list(layers) for layers in self.stages],
            "lanes": list(self.lanes),
            "transport": self.transport,
            "prompt_ids": list(self.prompt_ids),
            "token_ids": list(self.token_ids),
            "text": self.text,
            "digests": self.digests,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "logs": str(self.logs),
            "sampling": self.sampling.model_dump(),
        }
        if self.parity is not None:
            data |= {
                "max_abs_diff": self.parity.max_abs_diff,
                "nmse": self.parity.nmse,
                "logits_equal": self.parity.equal,
                "rows_compared": self.parity.rows,
                "whole_token_ids": list(self.whole_ids),
            }
        return data
