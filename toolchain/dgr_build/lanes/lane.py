"""A lane from its row in the matrix to a worker and its reference that were built and inspected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build.lanes.archives import static_archives
from dgr_build.lanes.build import Built, Job, Options, build_plan
from dgr_build.lanes.doctor import examine, refuse_planned, require_cpu
from dgr_build.lanes.inspect import Inspected, inspect_worker
from dgr_build.lanes.plan import Inputs, Places, Plan, SourceFacts, render
from dgr_build.lanes.toolchain import Toolchain, find_toolchain
from dgr_build.lanes.variables import stated_variables

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class LanePlan:
    """A lane as it would be built here.

    Args:
        matrix: where it comes from.
        toolchain: what builds it.
        worker: the plan of the worker; its digest is the lane digest.
        reference: the plan of the reference program, which links the base tree only.
    """

    matrix: Matrix
    toolchain: Toolchain
    worker: Plan
    reference: Plan


@dataclass(frozen=True, kw_only=True)
class BuiltLane:
    """A lane that was built.

    Args:
        lane: its name.
        digest: the lane digest.
        worker: the worker's executable.
        reference: the executable of the reference program.
        version: what the worker says about itself.
        sha256: of the worker.
        uncached: no compiler cache took part.
        network_cut: everything in it was compiled without a network.
        steps: what ninja had to do for both programs; 0 when everything was there.
        build: the worker's build folder.
    """

    lane: str
    digest: str
    worker: Path
    reference: Path
    version: dict[str, Any]
    sha256: str
    uncached: bool
    network_cut: bool
    steps: int
    build: Path


def require_buildable(matrix: Matrix, lane_name: str) -> None:
    """Check that a lane can be built by this version, on this machine.

    Raises:
        HostError: it is only planned, or this machine lacks something; everything it needs is listed.
        UsageError: there is no such lane.
    """
    findings = examine(matrix, lane_name)
    unmet = any(not finding.met and not finding.for_running for finding in findings)
    if matrix.find(lane_name).status == "planned" or unmet:
        raise refuse_planned(lane_name, findings)


def plan_lane(ws: Workspace, matrix: Matrix, lane_name: str, source: SourceFacts) -> LanePlan:
    """Render a lane for this machine.

    Raises:
        HostError: a compiler, a linker or a C++ package is missing.
        UsageError: there is no such lane.
    """
    environment = matrix.environment[matrix.find(lane_name).environment]
    toolchain = find_toolchain(environment)
    variables = stated_variables(matrix.defaults, toolchain.path, source.epoch)
    archives = static_archives(environment, toolchain, variables)
    inputs = Inputs(source=source, toolchain=toolchain, native=ws.native, archives=archives)
    return LanePlan(
        matrix=matrix,
        toolchain=toolchain,
        worker=render(matrix, lane_name, inputs),
        reference=render(matrix, lane_name, inputs, "reference"),
    )


def worker_places(ws: Workspace, lane_name: str) -> Places:
    """Return where a lane's worker is built, and from what."""
    return Places(project=ws.native, source=ws.source, build=ws.build(lane_name))


def reference_places(ws: Workspace, lane_name: str) -> Places:
    """Return where a lane's reference program is built, and from what."""
    return Places(
        project=ws.native / "reference", source=ws.base_source, build=ws.build(f"{lane_name}-reference")
    )


def build_lane(ws: Workspace, planned: LanePlan, options: Options) -> tuple[Built, Built]:
    """Build worker and reference of a lane; what is there already is not built again.

    The sources lie published in the workspace; the caller holds the lock of its lanes.

    Raises:
        BuildError: configuring or compiling failed, or CMake did not take the lane's values.
        HostError: there is not enough space.
    """
    lane = planned.worker.lane
    todo = ((planned.worker, worker_places(ws, lane)), (planned.reference, reference_places(ws, lane)))
    worker, reference = (
        build_plan(
            Job(ws=ws, matrix=planned.matrix, plan=plan, places=places, toolchain=planned.toolchain), options
        )
        for plan, places in todo
    )
    return worker, reference


def inspect_lane(ws: Workspace, planned: LanePlan, worker: Built) -> Inspected:
    """Inspect a built worker against its lane: libraries, leaked paths, backends, what it says it is.

    Raises:
        CheckError: something is not as the lane states it.
        HostError: this machine's processor cannot run it.
    """
    matrix, plan = planned.matrix, planned.worker
    lane = matrix.find(plan.lane)
    require_cpu(plan.isa, matrix.isa[plan.isa])
    return inspect_worker(
        worker.program,
        plan,
        allowed={*matrix.defaults.needed_libraries, *lane.extra_libraries},
        must_contain=lane.must_contain,
        private=(ws.project, ws.root),
    )
