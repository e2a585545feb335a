"""The story of `dgr-build lane cpu`: from the pin to a worker that was built, inspected, tested and tried."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.artifacts.tiny import provide
from dgr_build.documents.base import digest
from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.pin import load_pin
from dgr_build.documents.recipe import Model, TinyModel
from dgr_build.documents.series import load_series
from dgr_build.errors import UsageError
from dgr_build.flows import lane_trial
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.build import Built, Options
from dgr_build.lanes.ctest import run_ctest, test_variables
from dgr_build.lanes.doctor import examine, missing_cpu_flags
from dgr_build.lanes.jobs import cores
from dgr_build.lanes.lane import (
    BuiltLane,
    LanePlan,
    build_lane,
    inspect_lane,
    plan_lane,
    require_buildable,
)
from dgr_build.lanes.packages import ensure_packages
from dgr_build.lanes.plan import SourceFacts
from dgr_build.lanes.stamp import passed, remember
from dgr_build.patches.stack import apply_series
from dgr_build.source import checkout
from dgr_build.source.resolve import open_store, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.documents.matrix import Matrix
    from dgr_build.workspace import Workspace

STEPS = ("doctor", "source", "packages", "build", "inspect", "test", "smoke", "evidence")
_TINY = {"deepseek4": Model(tiny=TinyModel(arch="deepseek4")), "llama": Model(tiny=TinyModel(arch="llama"))}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asked for.

    Args:
        lane: the name of the lane.
        only: one step out of `STEPS`, with what it stands on; None for all.
        force: repeat tests and the smoke run although this very worker has passed them.
        options: how to build.
    """

    lane: str
    only: str | None = None
    force: bool = False
    options: Options = field(default_factory=Options)

    def wants(self, step: str) -> bool:
        """Tell whether a step is part of what was asked for."""
        return self.only in {None, step}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a lane went.

    Args:
        lane: its name.
        findings: what the lane needs and what is here, when only that was asked for.
        digest: the lane digest, "" when the story did not come that far.
        built: what was built, None likewise.
        tests: C++ tests that passed, None when they were not asked for.
        trial: the smoke run, None when it was not asked for.
        evidence: the record, None when none was written.
        seconds: what each step took.
    """

    lane: str
    findings: tuple[str, ...] = ()
    digest: str = ""
    built: BuiltLane | None = None
    tests: int | None = None
    trial: dict[str, Any] | None = None
    evidence: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as data, without what was not asked for."""
        built = self.built
        data: dict[str, Any] = {"lane": self.lane, "digest": self.digest or None}
        data["needs"] = list(self.findings) or None
        if built is not None:
            data |= {
                "worker": str(built.worker),
                "worker_sha256": built.sha256,
                "reference": str(built.reference),
                "uncached": built.uncached,
                "steps": built.steps,
                "version": built.version,
            }
        data |= {"tests_passed": self.tests, "smoke": self.trial, "seconds": self.seconds}
        data["evidence"] = str(self.evidence) if self.evidence is not None else None
        return {name: value for name, value in data.items() if value is not None}


def run_lane(ws: Workspace, request: Request) -> Outcome:
    """Bring a lane up to date, or one step of it; what is there already is not done again.

    Raises:
        DgrError: of the kind of the step that failed.
    """
    if request.only is not None and request.only not in STEPS:
        raise UsageError(
            f"no step is called {request.only!r}",
            cause=f"there are {', '.join(STEPS)}",
            remedy="dgr-build lane cpu without --only runs them all",
        )
    matrix = load_matrix(ws.matrix_file)
    clock = _Clock()
    with clock.step("doctor", f"looking at this machine for lane {request.lane}"):
        require_buildable(matrix, request.lane)
        _say_processor(matrix, request.lane)
    if request.only == "doctor":
        findings = tuple(finding.line for finding in examine(matrix, request.lane))
        return Outcome(lane=request.lane, findings=findings, seconds=clock.seconds)
    # One at a time in a workspace: the published source must not change under a compiler.
    with ws.lock("lanes"):
        return _prepared(ws, matrix, request, clock)


def _prepared(ws: Workspace, matrix: Matrix, request: Request, clock: _Clock) -> Outcome:
    if request.only == "packages":
        with clock.step("packages", "C++ packages"):
            ensure_packages(ws)
        return Outcome(lane=request.lane, seconds=clock.seconds)
    with clock.step("source", "source and patches"):
        source = publish_source(ws)
    if request.only == "source":
        return Outcome(lane=request.lane, seconds=clock.seconds)
    with clock.step("packages", "C++ packages"):
        ensure_packages(ws)
    return _from_plan(ws, plan_lane(ws, matrix, request.lane, source), request, clock)


def publish_source(ws: Workspace) -> SourceFacts:
    """Resolve the pin, apply the stack, and publish both trees read-only where builds take them from.

    Raises:
        SourceUnavailableError, ProofError, PatchError: see `source` and `patches`.
    """
    pin = load_pin(ws.pin_file)
    base = resolve(ws, pin)
    with closing(open_store(base.store)) as store:
        patched = apply_series(store, base.tree, load_series(ws.series_file), ws.series_file.parent)
        checkout.update(store, base.tree, ws.base_source)
        checkout.update(store, patched.tree, ws.source)
    return SourceFacts.of(pin, patched.tree)


def ctest_variables(ws: Workspace, lane_name: str) -> dict[str, str]:
    """Return what the C++ tests of a built lane need in their environment; tiny models are made on demand."""
    models = {arch: provide(model) for arch, model in _TINY.items()}
    reference = ws.build(f"{lane_name}-reference") / "bin" / "dgr-reference"
    return _test_variables(models, reference)


def _from_plan(ws: Workspace, planned: LanePlan, request: Request, clock: _Clock) -> Outcome:
    lane = request.lane
    with clock.step("build", f"worker and reference of lane {lane}"):
        worker, reference = build_lane(ws, planned, request.options)
    if request.only == "build":
        return Outcome(lane=lane, digest=worker.digest, seconds=clock.seconds)
    with clock.step("inspect", "inspecting the worker"):
        seen = inspect_lane(ws, planned, worker)
    built = BuiltLane(
        lane=lane,
        digest=worker.digest,
        worker=worker.program,
        reference=reference.program,
        version=seen.version,
        sha256=seen.sha256,
        uncached=worker.uncached and reference.uncached,
        network_cut=worker.network_cut,
        steps=worker.steps + reference.steps,
        build=worker.build,
    )
    if request.only == "inspect":
        return Outcome(lane=lane, digest=worker.digest, built=built, seconds=clock.seconds)
    models = {arch: provide(model) for arch, model in _TINY.items()}
    tests = None
    if request.wants("test"):
        with clock.step("test", "C++ tests"):
            tests = _test(ws, worker, reference, models, force=request.force or request.only == "test")
    trial = None
    if request.wants("smoke"):
        with clock.step("smoke", "smoke run: a tiny V4 over three workers beside the whole model"):
            trial = _trial(ws, built, models, force=request.force or request.only == "smoke")
    evidence = None
    if request.wants("evidence"):
        with clock.step("evidence", "evidence"):
            evidence = lane_trial.record(ws, built, planned, tests=tests, trial=trial)
    return Outcome(
        lane=lane,
        digest=worker.digest,
        built=built,
        tests=tests,
        trial=trial,
        evidence=evidence,
        seconds=clock.seconds,
    )


def _test(ws: Workspace, worker: Built, reference: Built, models: dict[str, Artifact], *, force: bool) -> int:
    inputs = {arch: artifact.digest for arch, artifact in models.items()}
    key = digest({"reference": sha256_file(reference.program), **inputs})
    known = passed(worker.build, "test", key)
    if known is not None and not force:
        console.say(f"{known} C++ tests passed on this very worker before (--force runs them again)")
        return int(known)
    variables = _test_variables(models, reference.program)
    tests = run_ctest(worker.build, ws.logs("lane") / "ctest.xml", variables, jobs=cores())
    remember(worker.build, "test", key, str(tests.passed))
    return tests.passed


def _trial(
    ws: Workspace, built: BuiltLane, models: dict[str, Artifact], *, force: bool
) -> dict[str, Any] | None:
    key = digest({"reference": sha256_file(built.reference), "model": models["deepseek4"].digest})
    known = passed(built.build, "smoke", key)
    if known is not None and not force:
        console.say("the smoke run passed on this very worker before (--force runs it again)")
        return lane_trial.remembered(known)
    trial = lane_trial.run_trial(ws, built)
    if trial is not None:
        remember(built.build, "smoke", key, lane_trial.to_remember(trial))
    return trial


def _test_variables(models: dict[str, Artifact], reference: Path) -> dict[str, str]:
    return test_variables(
        tiny_v4=models["deepseek4"].path, tiny_llama=models["llama"].path, reference=reference
    )


def _say_processor(matrix: Matrix, lane_name: str) -> None:
    isa = matrix.find(lane_name).isa
    lacking = missing_cpu_flags(matrix.isa[isa])
    if lacking:
        console.warn(
            f"this processor lacks {', '.join(lacking)}: lane {lane_name} can be built, not run here"
        )


class _Clock:
    """Announces steps and keeps the seconds that each took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[None]:
        console.step(title)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 2)
