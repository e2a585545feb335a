"""The checks that a built lane goes through, each run once for the same worker and inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from dgr_build import console
from dgr_build.artifacts.tiny import provide
from dgr_build.documents.base import digest
from dgr_build.documents.recipe import Family, Model, TinyModel
from dgr_build.flows.lane_trial import Trial, reference_lane, run_trial, trials
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.build import PROGRAMS
from dgr_build.lanes.ctest import TestRun, run_ctest, test_variables
from dgr_build.lanes.jobs import cores
from dgr_build.lanes.lane import reference_places
from dgr_build.lanes.stamp import passed, remember

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.flows.built_here import BuiltHere
    from dgr_build.lanes.lane import BuiltLane, LanePlan
    from dgr_build.workspace import Workspace

_TINY = {arch: Model(tiny=TinyModel(arch=arch)) for arch in get_args(Family)}
# Tests that hold splits against the bits of the whole model, where a device that fuses over layers gives
# others; and those that let NaN come about, with which upstream's kernels on a device may read out of bounds.
_CPU_ONLY = "^(Reference|Parity[A-Za-z0-9]*|Overflow)[.]"
REPRODUCE = "reproduce"
REPRODUCED = "two uncached builds in different surroundings give the same bytes: worker, wheel and tarball"
_TESTS = "the C++ tests of the lane pass"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check that passed.

    Args:
        criterion: what it shows.
        result: what came of it, as data.
        argv: the command that does the same.
        seconds: what it took.
        fresh: it ran now, and is not remembered from before.
    """

    criterion: str
    result: dict[str, Any]
    argv: tuple[str, ...]
    seconds: float
    fresh: bool = True


@cache
def models() -> dict[str, Artifact]:
    """Return the tiny models of the checks by family; they are made where they are missing, once a run."""
    return {arch: provide(model) for arch, model in _TINY.items()}


def ctest_variables(ws: Workspace, lane: str) -> dict[str, str]:
    """Return what the C++ tests of a built lane need in their environment."""
    reference = reference_places(ws, lane).build / "bin" / PROGRAMS["reference"]
    return test_variables(_paths(models()), reference=reference)


def _paths(made: Mapping[str, Artifact]) -> dict[str, Path]:
    return {arch: artifact.path for arch, artifact in made.items()}


def criteria_of(planned: LanePlan) -> dict[str, str]:
    """Return what the checks of a lane would show, by their names."""
    found = {"test": _TESTS} | {trial.name: trial.criterion for trial in trials(planned.chosen)}
    return found | {REPRODUCE: REPRODUCED}


def run_checks(here: BuiltHere, step: str, *, force: bool) -> dict[str, Check]:
    """Run the checks of a step; those that this very worker has passed are not run again.

    Args:
        here: the lane.
        step: `test` or `smoke`.
        force: run them in any case.

    Raises:
        CheckError: one failed.
        DgrError: of the kind of whatever else failed.
    """
    if step == "test":
        return {"test": once(here.built, "test", lambda: _tests(here), force=force)}
    reference = reference_lane(here)
    return {
        trial.name: once(here.built, trial.name, _trial(here, trial), force=force, reference=reference)
        for trial in trials(here.planned.chosen)
    }


def _trial(here: BuiltHere, trial: Trial) -> Callable[[], Check]:
    def run() -> Check:
        done = run_trial(here, trial)
        return Check(criterion=trial.criterion, result=done.result, argv=trial.argv, seconds=done.seconds)

    return run


def recalled(built: BuiltLane, name: str, reference: Path | None = None) -> Check | None:
    """Return a check that this very worker has passed beside the same reference and models."""
    known = passed(built.build, name, _key(built, reference))
    return replace(Check(**json.loads(known)), fresh=False) if known is not None else None


def once(
    built: BuiltLane, name: str, run: Callable[[], Check], *, force: bool, reference: Path | None = None
) -> Check:
    """Run a check, unless this very worker has passed it beside the same reference and models.

    Args:
        built: the lane.
        name: of the check.
        run: runs it.
        force: run it in any case.
        reference: what it is held against where that is not the lane's own.

    Raises:
        DgrError: of the kind of what failed.
    """
    known = None if force else recalled(built, name, reference)
    if known is not None:
        console.say(f"{name}: this very worker has passed this before (--force runs it again)")
        return known
    check = run()
    kept = {
        "criterion": check.criterion,
        "result": check.result,
        "argv": check.argv,
        "seconds": check.seconds,
    }
    remember(built.build, name, _key(built, reference), json.dumps(kept, sort_keys=True))
    return check


def _key(built: BuiltLane, reference: Path | None) -> str:
    beside = reference or built.reference
    inputs = {arch: artifact.digest for arch, artifact in models().items()}
    return digest({"reference": sha256_file(beside) if beside is not None else "", **inputs})


def _tests(here: BuiltHere) -> Check:
    planned, built = here.planned, here.built
    lane = planned.chosen.lane
    made = models()
    readable = {one.path.parent for one in made.values()}
    readable |= {built.reference.parent} if built.reference else set()
    needed, written = planned.made.to_run(here.ws.device_cache)
    variables = {**needed, **lane.run_variables}
    variables |= test_variables(_paths(made), reference=built.reference)
    tests = run_ctest(
        TestRun(
            build=built.build,
            report=here.ws.logs("lane") / f"{built.build.name}-ctest.xml",
            variables=variables,
            ctest=planned.toolchain.cmake.path.with_name("ctest"),
            made=planned.made,
            read=tuple(readable),
            write=written,
            exclude=_CPU_ONLY if built.reference is None else "",
        ),
        jobs=cores(),
    )
    result: dict[str, Any] = {"passed": tests.passed}
    if built.reference is None:
        result["left_out"] = (
            f"tests for the CPU only ({_CPU_ONLY}): equal bits (see the trials), and values that overflow"
        )
    return Check(
        criterion=_TESTS,
        result=result,
        argv=("dgr-build", "lane", *planned.chosen.words, "--only", "test"),
        seconds=round(tests.seconds, 2),
    )
