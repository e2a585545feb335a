"""The story of `dgr-build lane NAME`: from the pin to a worker, inspected, tested, tried and packed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import UsageError
from dgr_build.flows.built_here import BuiltHere
from dgr_build.flows.environments import lane_reach
from dgr_build.flows.lane_checks import REPRODUCE, Check, once, recalled, run_checks
from dgr_build.flows.lane_package import KINDS, pack
from dgr_build.flows.lane_record import has_published_worker, publish_record, record, require_publishable
from dgr_build.flows.lane_refused import refused_record
from dgr_build.flows.lane_source import Published, publish_source
from dgr_build.flows.programs import program_of, software_device
from dgr_build.flows.reproduce import Wanted, reproduce
from dgr_build.flows.reproduce_record import record_reproduction
from dgr_build.lanes.build import Options
from dgr_build.lanes.doctor import can_build, examine, refuse
from dgr_build.lanes.environment.manage import create
from dgr_build.lanes.lane import BuiltLane, Chosen, LanePlan, build_lane, choose, inspect_lane, plan_lane
from dgr_build.lanes.packages import ensure_packages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from dgr_build.lanes.finding import Finding
    from dgr_build.workspace import Workspace

CHECKS = ("test", "smoke")
STEPS = (
    "doctor", "environment", "source", "packages", "build", "inspect", *CHECKS, REPRODUCE, "package",
    "evidence",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asked for.

    Args:
        lane: the name of the lane.
        profile: one of its choices of architectures.
        settings: overrides, as KEY=VALUE.
        only: one step out of `STEPS`, with what it stands on; None for all.
        force: repeat tests and the smoke run although this very worker has passed them.
        packages: kinds of packages to make.
        publish: put the record into the tracked evidence folder too.
        reproduce: build it twice more, in unlike surroundings, and compare every output.
        objects: only so many object files of it, None for everything.
        keep: leave the folders of these builds.
        options: how to build.
    """

    lane: str
    profile: str | None = None
    settings: tuple[str, ...] = ()
    only: str | None = None
    force: bool = False
    packages: tuple[str, ...] = ()
    publish: bool = False
    reproduce: bool = False
    objects: int | None = None
    keep: bool = False
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
        checks: those that were asked for and could be run, all passed, by name.
        not_run: why checks could not be run here, "" when they could.
        packages: what was packed, by kind.
        evidence: the record, None when none was written.
        seconds: what each step took.
    """

    lane: str
    findings: tuple[str, ...] = ()
    digest: str = ""
    built: BuiltLane | None = None
    checks: dict[str, Check] = field(default_factory=dict)
    not_run: str = ""
    packages: dict[str, Path] = field(default_factory=dict)
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
                "reference": str(built.reference) if built.reference is not None else None,
                "uncached": built.uncached,
                "steps": built.steps,
                "version": built.version,
            }
        data |= {name: check.result for name, check in self.checks.items()}
        data["not_run"] = self.not_run or None
        data["packages"] = {kind: str(path) for kind, path in self.packages.items()} or None
        data["seconds"] = self.seconds
        data["evidence"] = str(self.evidence) if self.evidence is not None else None
        return {name: value for name, value in data.items() if value is not None}


def run_lane(ws: Workspace, request: Request) -> Outcome:
    """Bring a lane up to date, or one step of it; what is there already is not done again.

    Raises:
        DgrError: of the kind of the step that failed.
    """
    _require_sense(request)
    clock = _Clock()
    with clock.step("doctor", f"looking at this machine for lane {request.lane}"):
        chosen = chosen_of(ws, request)
        for override in chosen.overrides:
            console.say(override.line)
        if request.publish:
            require_publishable(chosen)
        findings = examine(chosen.matrix, chosen.name, reach=lane_reach(ws, chosen.matrix, chosen.name))
        if not can_build(findings):
            # What another machine has built says more than that this one cannot.
            if request.publish and not has_published_worker(ws, chosen.name):
                with ws.lock("lanes"):
                    publish_record(ws, chosen.name, refused_record(ws, chosen, findings))
            raise refuse(chosen.name, findings)
        idle = why_not_run(findings)
        stand_in = any(finding.stand_in for finding in findings)
        if idle:
            console.warn(f"lane {chosen.name} can be built here, not run: {idle}")
    if request.only == "doctor":
        lines = tuple(finding.line for finding in findings)
        return Outcome(lane=chosen.name, findings=lines, seconds=clock.seconds)
    # One at a time in a workspace: the published source must not change under a compiler.
    with ws.lock("lanes"):
        return _Story(ws=ws, chosen=chosen, request=request, clock=clock, idle=idle, stand_in=stand_in).run()


def chosen_of(ws: Workspace, request: Request) -> Chosen:
    """Return the lane that was asked for, as profile and overrides make it.

    Raises:
        UsageError: there is no such lane or profile, or an override cannot be.
    """
    return choose(
        load_matrix(ws.matrix_file),
        request.lane,
        profile=request.profile,
        host_file=ws.host_overrides,
        stated=request.settings,
    )


def why_not_run(findings: tuple[Finding, ...]) -> str:
    """Return what this machine lacks to run a worker, "" when it lacks nothing."""
    missing = [finding for finding in findings if not finding.met and finding.for_running]
    return "; ".join(f"{finding.name}: needs {finding.wanted}" for finding in missing)


def _require_sense(request: Request) -> None:
    if request.only is not None and request.only not in STEPS:
        raise UsageError(
            f"no step is called {request.only!r}",
            cause=f"there are {', '.join(STEPS)}",
            remedy=f"dgr-build lane {request.lane} without --only runs them all",
        )
    unknown = [kind for kind in request.packages if kind not in KINDS]
    if unknown or (request.only == "package" and not request.packages):
        raise UsageError(
            f"no package is called {unknown[0]!r}" if unknown else "which package?",
            cause=f"there are {', '.join(KINDS)}",
            remedy=f"dgr-build lane {request.lane} --package wheel --package tar makes both",
        )


@dataclass(frozen=True, kw_only=True)
class _Story:
    """One run of a lane that can be built here; the lanes' lock is held."""

    ws: Workspace
    chosen: Chosen
    request: Request
    clock: _Clock
    idle: str
    stand_in: bool

    def run(self) -> Outcome:
        lane, environment = self.chosen.name, self.chosen.environment
        if self.request.only == "packages" and environment.kind != "sysroot":
            self._packages()
            return self._early()
        with self.clock.step(
            "environment", f"environment {self.chosen.lane.environment}: {environment.summary}"
        ):
            made = create(self.ws, self.chosen.matrix, self.chosen.lane.environment)
        if self.request.only in {"environment", "packages"}:
            return self._early()  # a root has its packages from its definition
        with self.clock.step("source", "source and patches"):
            source = publish_source(self.ws)
        if self.request.only == "source":
            return self._early()
        if environment.kind != "sysroot":
            self._packages()
        planned = plan_lane(self.ws, self.chosen, source.facts, made)
        if self.request.only == REPRODUCE:
            return self._reproduced(planned, source)
        with self.clock.step("build", f"building lane {lane}"):
            worker, reference = build_lane(self.ws, planned, self.request.options)
        if self.request.only == "build":
            return Outcome(lane=lane, digest=worker.digest, seconds=self.clock.seconds)
        with self.clock.step("inspect", "inspecting the worker"):
            built = inspect_lane(self.ws, planned, worker, reference)
        return self._with_built(planned, built, source)

    def _with_built(self, planned: LanePlan, built: BuiltLane, source: Published) -> Outcome:
        lane, worker = self.chosen.lane, program_of(self.ws, self.chosen.lane, built.worker, planned.made)
        software = "" if self.idle else software_device(worker, lane.backend, expected=self.stand_in)
        here = BuiltHere(
            ws=self.ws, planned=planned, built=built, source=source, idle=self.idle, software=software
        )
        checks: dict[str, Check] = {}
        for name in CHECKS if not self.idle else ():
            if self.request.wants(name) or self.request.only == "evidence":
                with self.clock.step(name, f"{name} of lane {built.lane}"):
                    force = self.request.force or self.request.only == name
                    checks |= run_checks(here, name, force=force)
        if self.request.reproduce:
            with self._two_builds():
                wanted = self._wanted(planned, built)
                checks[REPRODUCE] = once(built, REPRODUCE, lambda: reproduce(wanted), force=True)
        elif (known := recalled(built, REPRODUCE)) is not None:
            checks[REPRODUCE] = known
        packages = {}
        if self.request.packages and self.request.wants("package"):
            with self.clock.step("package", "packages"):
                packages = pack(here, self.request.packages)
        evidence = None
        if self.request.wants("evidence"):
            with self.clock.step("evidence", "evidence"):
                evidence = record(here, checks, publish=self.request.publish)
        return Outcome(
            lane=built.lane,
            digest=built.digest,
            built=built,
            checks=checks,
            not_run=self.idle,
            packages=packages,
            evidence=evidence,
            seconds=self.clock.seconds,
        )

    def _reproduced(self, planned: LanePlan, source: Published) -> Outcome:
        """Build twice and nothing else: the lane's own build takes no part."""
        with self._two_builds():
            check = reproduce(self._wanted(planned, None))
        with self.clock.step("evidence", "evidence"):
            evidence = record_reproduction(self.ws, planned, source, check, publish=self.request.publish)
        return Outcome(
            lane=self.chosen.name,
            digest=planned.worker.digest,
            checks={REPRODUCE: check},
            evidence=evidence,
            seconds=self.clock.seconds,
        )

    def _two_builds(self) -> AbstractContextManager[None]:
        return self.clock.step(REPRODUCE, f"building lane {self.chosen.name} twice in unlike surroundings")

    def _wanted(self, planned: LanePlan, built: BuiltLane | None) -> Wanted:
        request = self.request
        return Wanted(
            ws=self.ws,
            chosen=self.chosen,
            made=planned.made,
            objects=request.objects,
            keep=request.keep,
            own=built.worker if built is not None and request.objects is None else None,
        )

    def _packages(self) -> None:
        with self.clock.step("packages", "C++ packages"):
            ensure_packages(self.ws)

    def _early(self) -> Outcome:
        return Outcome(lane=self.chosen.name, seconds=self.clock.seconds)


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
