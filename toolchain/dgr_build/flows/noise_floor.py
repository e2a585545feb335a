"""How far apart two right computations of the same logits are: what a lane's nearness is held against.

The whole model on the base library, on one processor, under numerics that all are legal for a route: what
comes out differs only by roundings. No lane that computes in another order can be asked for less.
"""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.artifacts.tiny import provide
from dgr_build.documents.base import save_json
from dgr_build.documents.noise_floor import NoiseFloor
from dgr_build.documents.pin import load_pin
from dgr_build.documents.recipe import Numerics, load_recipe
from dgr_build.errors import HostError
from dgr_build.evidence.surroundings import environment
from dgr_build.flows.programs import reference_of
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.stamp import read_stamp
from dgr_build.route.parity import compare
from dgr_build.route.reference import WholeJob, run_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from dgr_build.workspace import Workspace

LANE = "cpu"
NAME = "noise-floor"
_RECIPES = ("deepseek4-tiny-whole", "llama-tiny-2stage", "qwen3-tiny-2stage", "gemma3-tiny-3stage")
_PROMPT = tuple(range(5, 45))
_VARIANTS: dict[str, dict[str, object]] = {
    "two threads": {"n_threads": 2, "n_threads_batch": 2},
    "frames of 17 rows": {"n_ubatch": 17},
    "flash attention": {"flash_attn": "on"},
    "K and V in f32": {"type_k": "f32", "type_v": "f32"},
    "K and V in bf16": {"type_k": "bf16", "type_v": "bf16"},
}


def measure(ws: Workspace, *, publish: bool = False) -> tuple[NoiseFloor, Path]:
    """Measure the noise floor with the reference program of lane cpu, and write down what came out.

    Args:
        ws: the workspace.
        publish: write it into the tracked evidence folder too.

    Returns:
        what was measured, and where it was written.

    Raises:
        HostError: lane cpu was not built, or not from the pinned source as the matrix has it.
        RouteError: the reference program failed.
    """
    began, started = dt.datetime.now(dt.UTC).replace(microsecond=0), time.monotonic()
    reference, tree = reference_of(ws, LANE), load_pin(ws.pin_file).tree
    require_built_from(reference, tree)
    found: dict[str, dict[str, float]] = {}
    with console.progress("running the reference program", len(_RECIPES) * (len(_VARIANTS) + 1)) as task:
        for name in _RECIPES:
            base = _logits(ws, name, {})
            task.advance(1)
            found[name] = {}
            for variant, changes in _VARIANTS.items():
                found[name][variant] = compare(_logits(ws, name, changes), base).nmse
                task.advance(1)
    recipes = {name: load_recipe(ws.recipes / f"{name}.toml") for name in _RECIPES}
    floor = NoiseFloor(
        measured_at=began,
        seconds=round(time.monotonic() - started, 2),
        lane=LANE,
        reference_sha256=sha256_file(reference),
        pin_tree=tree,
        artifacts={name: provide(recipe.model).digest for name, recipe in recipes.items()},
        cpu=environment("none", "CPU").cpu,
        nmse=found,
    )
    file = Path(NAME) / "measurement.json"
    for folder in (ws.evidence, *((ws.published_evidence,) if publish else ())):
        save_json(folder / file, floor)
    return floor, (ws.published_evidence if publish else ws.evidence) / file


def require_built_from(reference: Path, tree: str) -> None:
    """Check that a reference program is what the lane of the matrix makes of a source.

    Args:
        reference: the program in its build folder.
        tree: of the source.

    Raises:
        HostError: it is of another source, or was built with overrides, or nothing says what it is.
    """
    stamp = read_stamp(reference.parent.parent)
    plan = stamp.plan if stamp is not None and stamp.program_sha256 == sha256_file(reference) else {}
    if plan.get("source", {}).get("base_tree") != tree or plan.get("overrides"):
        raise HostError(
            f"the reference program of lane {LANE} is not of the pinned source as the lane builds it",
            cause="the pin has moved since, or it was built with overrides",
            remedy=f"dgr-build lane {LANE}",
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
