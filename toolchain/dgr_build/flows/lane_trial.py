"""The trials of a built lane: tiny models over several workers beside the whole model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.flows.programs import program_of
from dgr_build.lanes.build import Options
from dgr_build.lanes.environment.manage import create
from dgr_build.lanes.lane import Chosen, build_lane, plan_lane

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.flows.built_here import BuiltHere

RECIPE = "deepseek4-tiny-3stage"
_TOKENS = 16
_LEFT_OUT = ("text", "seconds", "logs")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of a recipe on the lane.

    Args:
        name: what it is called among the checks.
        recipe: what is run.
        lanes: of its stages.
        criterion: what it shows.
        whole: a recipe of one worker with all layers, which is the other side on the same lane; "" where the
            reference program is.
    """

    name: str
    recipe: str
    lanes: tuple[str, ...]
    criterion: str
    whole: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that does the same."""
        words = ("dgr-build", "run", self.recipe, "--lanes", ",".join(self.lanes))
        against = ("--compare", "whole") if not self.whole else ("--compare-recipe", self.whole)
        return (*words, "--max-tokens", str(_TOKENS), *against)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A trial that went well.

    Args:
        result: what came of it, as data.
        seconds: what it took.
    """

    result: dict[str, Any]
    seconds: float


def trials(chosen: Chosen) -> tuple[Trial, ...]:
    """Return the trials of a lane: for bits by its own reference, else for nearness to another lane."""
    name, near = chosen.name, chosen.lane.closeness
    if near is None:
        return (
            Trial(
                name="smoke",
                recipe=RECIPE,
                lanes=(name,),
                criterion="a tiny V4 over three workers gives the logits of the whole model, bit for bit",
            ),
        )
    limits = ", ".join(f"{value:g} for {family}" for family, value in near.nmse.items())
    limit = f"its logits come as near to lane {near.against}'s whole model as is stated (nmse {limits})"
    return (
        Trial(name="smoke", recipe=RECIPE, lanes=(name,), criterion=f"a tiny V4 over three workers: {limit}"),
        Trial(
            name="smoke-split",
            recipe=RECIPE,
            lanes=(name,),
            whole="deepseek4-tiny-whole",
            criterion="a tiny V4 over three workers comes as near to one worker with all its layers there",
        ),
        Trial(
            name="smoke-dense",
            recipe="llama-tiny-2stage",
            lanes=(name,),
            criterion=f"a tiny dense model over two workers: {limit}",
        ),
        Trial(
            name="smoke-mixed",
            recipe="deepseek4-tiny-2stage",
            lanes=(name, near.against),
            criterion=f"a tiny V4 with its head on this lane and its tail on lane {near.against}: {limit}",
        ),
    )


def reference_lane(here: BuiltHere) -> Path | None:
    """Build the lane that this one is held against, unless it is held against itself.

    Returns:
        its reference program, None where the lane has its own.

    Raises:
        DgrError: of the kind of what failed.
    """
    ws, chosen = here.ws, here.planned.chosen
    near = chosen.lane.closeness
    if near is None:
        return None
    console.say(f"lane {chosen.name} is held against lane {near.against}: building that too")
    against = Chosen(name=near.against, matrix=chosen.matrix)
    made = create(ws, against.matrix, against.lane.environment)
    _, reference = build_lane(ws, plan_lane(ws, against, here.source.facts, made), Options())
    return reference.program if reference is not None else None


def run_trial(here: BuiltHere, trial: Trial) -> Tried:
    """Run a recipe on the lanes of a trial beside the whole model, and compare their logits.

    The lane's stages run the very worker that was built, whatever other profiles lie there.

    Raises:
        RouteError: a worker or the route failed.
        CheckError: the logits differ more than the lane admits.
    """
    from dgr_build.flows.run import RunRequest, run_recipe  # noqa: PLC0415 - loads gRPC and numpy

    started = time.monotonic()
    ws, chosen = here.ws, here.planned.chosen
    worker = program_of(ws, chosen.lane, here.built.worker, here.planned.made)
    request = RunRequest(
        recipe=trial.recipe,
        lanes=trial.lanes,
        max_tokens=_TOKENS,
        compare=not trial.whole,
        compare_recipe=trial.whole,
        workers={chosen.name: worker},
    )
    data = run_recipe(ws, request).to_json()
    speeds = ", ".join(f"{name} {value:.1f} tokens/s" for name, value in data["tokens_per_second"].items())
    console.say(f"tokens {data['token_ids']}")
    console.say(
        f"{data['rows_compared']} rows of logits: max |d| {data['max_abs_diff']:g}, "
        f"nmse {data['nmse']:.2g}; {speeds}"
    )
    return Tried(
        result={name: value for name, value in data.items() if name not in _LEFT_OUT},
        seconds=round(time.monotonic() - started, 2),
    )
