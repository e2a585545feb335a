"""The checks that a built lane goes through, each run once for the same worker and inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.artifacts.tiny import provide
from dgr_build.documents.base import digest
from dgr_build.documents.recipe import Model, TinyModel
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.build import PROGRAMS
from dgr_build.lanes.ctest import run_ctest, test_variables
from dgr_build.lanes.jobs import cores
from dgr_build.lanes.lane import reference_places
from dgr_build.lanes.stamp import passed, remember

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.lanes.lane import BuiltLane
    from dgr_build.workspace import Workspace

_TINY = {"deepseek4": Model(tiny=TinyModel(arch="deepseek4")), "llama": Model(tiny=TinyModel(arch="llama"))}


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check that passed.

    Args:
        result: what came of it, as data.
        argv: the command that does the same.
        seconds: what it took.
        fresh: it ran now, and is not remembered from before.
    """

    result: dict[str, Any]
    argv: tuple[str, ...]
    seconds: float
    fresh: bool = True


def models() -> dict[str, Artifact]:
    """Return the tiny models of the checks by family; they are made where they are missing."""
    return {arch: provide(model) for arch, model in _TINY.items()}


def ctest_variables(ws: Workspace, lane: str) -> dict[str, str]:
    """Return what the C++ tests of a built lane need in their environment."""
    made = models()
    reference = reference_places(ws, lane).build / "bin" / PROGRAMS["reference"]
    return test_variables(tiny_v4=made["deepseek4"].path, tiny_llama=made["llama"].path, reference=reference)


def once(
    built: BuiltLane, name: str, made: Mapping[str, Artifact], run: Callable[[], Check], *, force: bool
) -> Check:
    """Run a check, unless this very worker has passed it beside the same reference and models.

    Args:
        built: the lane.
        name: the name of the check.
        made: the models it uses.
        run: runs it.
        force: run it in any case.

    Raises:
        DgrError: of the kind of whatever failed.
    """
    inputs = {arch: artifact.digest for arch, artifact in made.items()}
    key = digest({"reference": sha256_file(built.reference), **inputs})
    known = None if force else passed(built.build, name, key)
    if known is not None:
        console.say(f"this very worker has passed this before (--force, or --only {name}, runs it again)")
        return replace(Check(**json.loads(known)), fresh=False)
    check = run()
    kept = {"result": check.result, "argv": check.argv, "seconds": check.seconds}
    remember(built.build, name, key, json.dumps(kept, sort_keys=True))
    return check


def run_tests(ws: Workspace, built: BuiltLane) -> Check:
    """Run the C++ tests of a built lane.

    Raises:
        CheckError: a test failed or did not run; each is named.
    """
    report = ws.logs("lane") / "ctest.xml"
    tests = run_ctest(built.build, report, ctest_variables(ws, built.lane), jobs=cores())
    return Check(
        result={"passed": tests.passed},
        argv=("ctest", "--test-dir", str(built.build), "--no-tests=error"),
        seconds=round(tests.seconds, 2),
    )
