"""How far apart two right computations of the same logits are: what a lane's nearness is held against.

The whole model on the base library, on one processor, under numerics that all are legal for a route: what
comes out differs only by roundings. No lane that computes in another order can be asked for less.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.artifacts.tiny import provide
from dgr_build.documents.recipe import Numerics, load_recipe
from dgr_build.flows.programs import reference_of
from dgr_build.route.parity import compare
from dgr_build.route.reference import WholeJob, run_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from dgr_build.workspace import Workspace

LANE = "cpu"
_RECIPES = ("deepseek4-tiny-whole", "llama-tiny-2stage")
_PROMPT = tuple(range(5, 45))
_VARIANTS: dict[str, dict[str, object]] = {
    "two threads": {"n_threads": 2, "n_threads_batch": 2},
    "frames of 17 rows": {"n_ubatch": 17},
    "flash attention": {"flash_attn": "on"},
    "K and V in f32": {"type_k": "f32", "type_v": "f32"},
    "K and V in bf16": {"type_k": "bf16", "type_v": "bf16"},
}


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What was measured.

    Args:
        measured_at: when, UTC.
        nmse: of the logits of each recipe's model, by how the numerics differ.
        seconds: what it took.
    """

    measured_at: dt.datetime
    nmse: Mapping[str, Mapping[str, float]]
    seconds: float

    @property
    def highest(self) -> float:
        """The largest of them all."""
        return max(value for values in self.nmse.values() for value in values.values())


def measure(ws: Workspace) -> Floor:
    """Measure the noise floor with the reference program of lane cpu.

    Raises:
        HostError: lane cpu was not built.
        RouteError: the reference program failed.
    """
    started = time.monotonic()
    found: dict[str, dict[str, float]] = {}
    with console.progress("running the reference program", len(_RECIPES) * (len(_VARIANTS) + 1)) as task:
        for name in _RECIPES:
            base = _logits(ws, name, {})
            task.advance(1)
            found[name] = {}
            for variant, changes in _VARIANTS.items():
                found[name][variant] = compare(_logits(ws, name, changes), base).nmse
                task.advance(1)
    return Floor(
        measured_at=dt.datetime.now(dt.UTC).replace(microsecond=0),
        nmse=found,
        seconds=round(time.monotonic() - started, 2),
    )


def _logits(ws: Workspace, name: str, changes: Mapping[str, object]) -> NDArray[np.float32]:
    recipe = load_recipe(ws.recipes / f"{name}.toml")
    numerics = Numerics.model_validate({**recipe.numerics.model_dump(), **changes})
    job = WholeJob(
        program=reference_of(ws, LANE),
        model=provide(recipe.model).path,
        recipe=recipe.model_copy(update={"numerics": numerics}),
        prompt=_PROMPT,
        steps=0,
    )
    return run_whole(ws, job).logits
