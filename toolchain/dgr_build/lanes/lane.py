"""A lane from its row in the matrix to a worker and its reference that were built and inspected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgr_build.lanes.archives import known_archives
from dgr_build.lanes.build import Built, Job, Options, build_plan
from dgr_build.lanes.device_code import check_device_code
from dgr_build.lanes.doctor import require_cpu
from dgr_build.lanes.inspect import Inspected, Limits, inspect_worker
from dgr_build.lanes.overrides import apply, collect, effective
from dgr_build.lanes.plan import Inputs, Places, Plan, SourceFacts, render
from dgr_build.lanes.toolchain import Toolchain, find_toolchain
from dgr_build.lanes.variables import stated_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.documents.matrix import Environment, Lane, Matrix
    from dgr_build.lanes.cache_session import Statistics
    from dgr_build.lanes.environment.made import Made
    from dgr_build.lanes.overrides import Override
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A lane as a person asked for it.

    Args:
        name: of the lane.
        matrix: all lanes, this one as profile and overrides make it.
        profile: the choice of architectures, None for the lane's own.
        overrides: what was set otherwise than the matrix has it, with its origin.
    """

    name: str
    matrix: Matrix
    profile: str | None = None
    overrides: tuple[Override, ...] = ()

    @property
    def lane(self) -> Lane:
        """The lane's row."""
        return self.matrix.find(self.name)

    @property
    def environment(self) -> Environment:
        """The definition of the lane's environment."""
        return self.matrix.environment[self.lane.environment]

    @property
    def words(self) -> tuple[str, ...]:
        """The lane as it is asked for on the command line."""
        profile = ("--profile", self.profile) if self.profile is not None else ()
        settings = (("--set", f"{key}={value}") for key, value in effective(self.overrides).items())
        return (self.name, *profile, *(word for pair in settings for word in pair))

    @property
    def folder(self) -> str:
        """What its build folder is called."""
        return f"{self.name}-{self.profile}" if self.profile is not None else self.name


@dataclass(frozen=True, kw_only=True)
class LanePlan:
    """A lane as it would be built here.

    Args:
        chosen: which lane, and how.
        toolchain: what builds it.
        worker: the plan of the worker; its digest is the lane digest.
        reference: the plan of the reference program, which links the base tree only; None where the lane is
            judged by another lane's reference.
    """

    chosen: Chosen
    toolchain: Toolchain
    worker: Plan
    reference: Plan | None

    @property
    def matrix(self) -> Matrix:
        """Where the lane comes from."""
        return self.chosen.matrix

    @property
    def made(self) -> Made:
        """The environment that it is built and run in."""
        return self.toolchain.made


@dataclass(frozen=True, kw_only=True)
class BuiltLane:
    """A lane that was built.

    Args:
        lane: its name.
        digest: the lane digest.
        worker: the worker's executable.
        reference: the executable of the reference program, None where another lane's is the judge.
        inspected: what was found in the worker.
        architectures: what it holds device code for.
        uncached: no compiler cache took part.
        network_cut: everything in it was compiled without a network.
        steps: what ninja had to do for both programs; 0 when everything was there.
        build: the worker's build folder.
        seconds: what configuring and compiling took, in all runs that it came from.
        cache: what the compiler cache answered for the worker in this run.
    """

    lane: str
    digest: str
    worker: Path
    reference: Path | None
    inspected: Inspected
    architectures: tuple[str, ...]
    uncached: bool
    network_cut: bool
    steps: int
    build: Path
    seconds: float
    cache: Statistics | None = None

    @property
    def version(self) -> dict[str, Any]:
        """What the worker says about itself."""
        return self.inspected.version

    @property
    def sha256(self) -> str:
        """Of the worker."""
        return self.inspected.sha256


def choose(
    matrix: Matrix, name: str, *, profile: str | None, host_file: Path, stated: Sequence[str]
) -> Chosen:
    """Return a lane as it is asked for.

    Args:
        matrix: all lanes.
        name: one of them.
        profile: one of its choices of architectures.
        host_file: overrides of this machine; may be missing.
        stated: overrides of this call, as KEY=VALUE.

    Raises:
        UsageError: there is no such lane or profile, or an override cannot be.
    """
    matrix = matrix.with_profile(name, profile)
    overrides = collect(matrix, name, host_file=host_file, stated=stated)
    return Chosen(name=name, matrix=apply(matrix, name, overrides), profile=profile, overrides=overrides)


def plan_lane(ws: Workspace, chosen: Chosen, source: SourceFacts, made: Made) -> LanePlan:
    """Render a lane for this machine.

    Args:
        ws: the workspace.
        chosen: which lane, and how.
        source: what is built.
        made: the lane's environment.

    Raises:
        HostError: a compiler, a linker or a C++ package is missing.
        UsageError: there is no such lane.
    """
    matrix, lane = chosen.matrix, chosen.lane
    environment = matrix.environment[lane.environment]
    toolchain = find_toolchain(environment, made, lane.device, ws=ws)
    variables = stated_variables(matrix.defaults, toolchain.path, source.epoch)
    archives = known_archives(ws, environment, toolchain, variables)
    inputs = Inputs(
        source=source,
        toolchain=toolchain,
        native=ws.native,
        archives={Path(path).name: sha256 for path, sha256 in archives.items()},
        overrides=effective(chosen.overrides),
    )
    return LanePlan(
        chosen=chosen,
        toolchain=toolchain,
        worker=render(matrix, chosen.name, inputs),
        reference=render(matrix, chosen.name, inputs, "reference") if lane.closeness is None else None,
    )


def worker_places(ws: Workspace, folder: str) -> Places:
    """Return where a lane's worker is built, and from what."""
    return Places(project=ws.native, source=ws.source, build=ws.build(folder))


def reference_places(ws: Workspace, lane_name: str) -> Places:
    """Return where a lane's reference program is built, and from what."""
    return Places(
        project=ws.native / "reference", source=ws.base_source, build=ws.build(f"{lane_name}-reference")
    )


def build_lane(ws: Workspace, planned: LanePlan, options: Options) -> tuple[Built, Built | None]:
    """Build worker and reference of a lane; what is there already is not built again.

    The sources lie published in the workspace; the caller holds the lock of its lanes.

    Raises:
        BuildError: configuring or compiling failed, or CMake did not take the lane's values.
        HostError: there is not enough space.
    """
    lane = planned.worker.lane

    def built(plan: Plan, places: Places) -> Built:
        job = Job(ws=ws, matrix=planned.matrix, plan=plan, places=places, toolchain=planned.toolchain)
        return build_plan(job, options)

    worker = built(planned.worker, worker_places(ws, planned.chosen.folder))
    if planned.reference is None:
        return worker, None
    return worker, built(planned.reference, reference_places(ws, lane))


def inspect_lane(ws: Workspace, planned: LanePlan, worker: Built, reference: Built | None) -> BuiltLane:
    """Inspect a built worker against its lane: libraries, leaked paths, device code, backends, what it says.

    Raises:
        CheckError: something is not as the lane states it.
        HostError: this machine's processor cannot run it.

    Returns:
        the lane as it was built.
    """
    matrix, plan = planned.matrix, planned.worker
    lane = matrix.find(plan.lane)
    require_cpu(plan.isa, matrix.isa[plan.isa])
    limits = Limits(
        libraries={*matrix.defaults.needed_libraries, matrix.isa[plan.isa].loader, *lane.extra_libraries},
        run_path=lane.run_path,
        glibc=planned.toolchain.libc.removeprefix("glibc ") or "0",
        macos=str(lane.cmake.get("CMAKE_OSX_DEPLOYMENT_TARGET", "0")),
        private=(ws.project, ws.root),
    )
    seen = inspect_worker(worker.program, plan, limits, made=planned.made, must_contain=lane.must_contain)
    programs = [one for one in (worker, reference) if one is not None]
    return BuiltLane(
        lane=plan.lane,
        digest=worker.digest,
        worker=worker.program,
        reference=reference.program if reference is not None else None,
        inspected=seen,
        architectures=check_device_code(worker.program, lane, planned.made),
        uncached=all(one.uncached for one in programs),
        network_cut=all(one.network_cut for one in programs),
        steps=sum(one.steps for one in programs),
        seconds=sum(one.seconds for one in programs),
        build=worker.build,
        cache=worker.cache,
    )
