"""The story of `dgr-build lane cpu`: from the pin to a worker that was built, inspected, tested and tried."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import UsageError
from dgr_build.flows import lane_checks
from dgr_build.flows.lane_checks import Check, once, run_tests
from dgr_build.flows.lane_record import record
from dgr_build.flows.lane_source import Published, publish_source
from dgr_build.flows.lane_trial import run_trial
from dgr_build.lanes.build import Options
from dgr_build.lanes.doctor import examine, missing_cpu_flags
from dgr_build.lanes.lane import (
    BuiltLane,
    LanePlan,
    build_lane,
    inspect_lane,
    plan_lane,
    require_buildable,
)
from dgr_build.lanes.packages import ensure_packages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix
    from dgr_build.workspace import Workspace

STEPS = ("doctor", "source", "packages", "build", "inspect", "test", "smoke", "evidence")


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
        checks: those that were asked for, all passed, by name.
        evidence: the record, None when none was written.
        seconds: what each step took.
    """

    lane: str
    findings: tuple[str, ...] = ()
    digest: str = ""
    built: BuiltLane | None = None
    checks: dict[str, Check] = field(default_factory=dict)
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
        data |= {name: check.result for name, check in self.checks.items()}
        data["seconds"] = self.seconds
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
    planned = plan_lane(ws, matrix, request.lane, source.facts)
    return _from_plan(ws, planned, source, request, clock)


def _from_plan(
    ws: Workspace, planned: LanePlan, source: Published, request: Request, clock: _Clock
) -> Outcome:
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
        network_cut=worker.network_cut and reference.network_cut,
        steps=worker.steps + reference.steps,
        build=worker.build,
    )
    if request.only == "inspect":
        return Outcome(lane=lane, digest=worker.digest, built=built, seconds=clock.seconds)
    made = lane_checks.models()
    checks: dict[str, Check] = {}
    if request.wants("test") or request.only == "evidence":
        with clock.step("test", "C++ tests"):
            force = request.force or request.only == "test"
            checks["test"] = once(built, "test", made, lambda: run_tests(ws, built), force=force)
    if request.wants("smoke") or request.only == "evidence":
        with clock.step("smoke", "smoke run: a tiny V4 over three workers beside the whole model"):
            v4 = {"deepseek4": made["deepseek4"]}
            force = request.force or request.only == "smoke"
            checks["smoke"] = once(built, "smoke", v4, lambda: run_trial(ws), force=force)
    evidence = None
    if request.wants("evidence"):
        with clock.step("evidence", "evidence"):
            evidence = record(ws, built, planned, source, checks)
    return Outcome(
        lane=lane,
        digest=worker.digest,
        built=built,
        checks=checks,
        evidence=evidence,
        seconds=clock.seconds,
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
