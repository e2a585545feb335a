"""Lanes as they are: the list with their state on this machine, and what one of them comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.pin import load_pin
from dgr_build.documents.series import load_series
from dgr_build.lanes.doctor import Finding, examine
from dgr_build.lanes.lane import plan_lane
from dgr_build.lanes.plan import SourceFacts, stated_values

if TYPE_CHECKING:
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class LaneState:
    """A lane with what this machine says to it, for the list."""

    name: str
    backend: str
    environment: str
    exercised: str
    status: str


def list_lanes(ws: Workspace) -> tuple[LaneState, ...]:
    """Return every lane with its state on this machine."""
    matrix = load_matrix(ws.matrix_file)
    return tuple(
        LaneState(
            name=name,
            backend=lane.backend,
            environment=f"{lane.environment}: {matrix.environment[lane.environment].summary}",
            exercised=lane.exercise,
            status=_status(lane.status, examine(matrix, name)),
        )
        for name, lane in matrix.lane.items()
    )


def dry_run(ws: Workspace, lane_name: str) -> dict[str, Any]:
    """Return what a lane comes to on this machine; nothing is fetched, installed or built.

    Raises:
        HostError: a program or package that is part of the plan is missing.
        UsageError: there is no such lane.
    """
    matrix = load_matrix(ws.matrix_file)
    lane = matrix.find(lane_name)
    findings = [finding.line for finding in examine(matrix, lane_name)]
    environment = matrix.environment[lane.environment]
    head: dict[str, Any] = {"lane": lane_name, "status": lane.status, "requires": findings}
    if environment.kind != "host" or lane.status == "planned":
        # Its compilers come from an environment that is not there yet, so nothing can state a version.
        stated = environment.model_dump(mode="json", exclude_defaults=True)
        return head | {"digest": None, "environment": stated, "values": stated_values(matrix, lane_name)}
    # What pin and series state; nothing is fetched or proven for a look.
    source = SourceFacts.of(load_pin(ws.pin_file), load_series(ws.series_file).tree)
    planned = plan_lane(ws, matrix, lane_name, source)
    return head | {"digest": planned.worker.digest, "plan": planned.worker.to_json()}


def _status(status: str, findings: tuple[Finding, ...]) -> str:
    lacks = [finding.name for finding in findings if not finding.met and not finding.for_running]
    runs = all(finding.met for finding in findings if finding.for_running)
    if status == "works" and not lacks:
        return "ready" if runs else "can be built, not run"
    missing = f"lacks {', '.join(lacks)}" if lacks else "has all it needs to build"
    return missing if status == "works" else f"planned; {missing}"
