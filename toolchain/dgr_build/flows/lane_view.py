"""Lanes as they are: the list with their state on this machine, and what one of them comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.pin import load_pin
from dgr_build.documents.series import load_series
from dgr_build.flows.environments import lane_reach
from dgr_build.flows.lane import chosen_of
from dgr_build.lanes.doctor import can_build, can_run, examine
from dgr_build.lanes.environment.manage import enter
from dgr_build.lanes.environment.state import state
from dgr_build.lanes.lane import plan_lane
from dgr_build.lanes.plan import SourceFacts, stated_values

if TYPE_CHECKING:
    from dgr_build.flows.lane import Request
    from dgr_build.lanes.finding import Finding
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class LaneState:
    """A lane with what this machine says to it, for the list."""

    name: str
    backend: str
    environment: str
    exercised: str
    profiles: tuple[str, ...]
    status: str


def list_lanes(ws: Workspace) -> tuple[LaneState, ...]:
    """Return every lane with its state on this machine."""
    matrix = load_matrix(ws.matrix_file)
    return tuple(
        LaneState(
            name=name,
            backend=lane.backend,
            environment=lane.environment,
            exercised=lane.exercised,
            profiles=tuple(lane.profiles),
            status=_status(examine(matrix, name, reach=lane_reach(ws, matrix, name))),
        )
        for name, lane in matrix.lane.items()
    )


def dry_run(ws: Workspace, request: Request) -> dict[str, Any]:
    """Return what a lane comes to on this machine; nothing is fetched, installed, made or built.

    Raises:
        HostError: a program or package that is part of the plan is missing.
        UsageError: there is no such lane, profile or override.
    """
    chosen = chosen_of(ws, request)
    findings = examine(chosen.matrix, chosen.name, reach=lane_reach(ws, chosen.matrix, chosen.name))
    head: dict[str, Any] = {
        "lane": chosen.name,
        "exercised": chosen.lane.exercised,
        "requires": [finding.line for finding in findings],
        "overrides": [one.to_json() for one in chosen.overrides],
    }
    here = state(ws, chosen.matrix, chosen.lane.environment)
    if not can_build(findings) or not (here.made and here.fits):
        # Its compilers are not there yet, so nothing can state a version.
        stated = chosen.environment.model_dump(mode="json", exclude_defaults=True)
        values = stated_values(chosen.matrix, chosen.name)
        return head | {"digest": None, "environment": stated, "values": values}
    # What pin and series state; nothing is fetched or proven for a look.
    source = SourceFacts.of(load_pin(ws.pin_file), load_series(ws.series_file).tree)
    made = enter(ws, chosen.matrix, chosen.lane.environment)
    planned = plan_lane(ws, chosen, source, made)
    return head | {"digest": planned.worker.digest, "plan": planned.worker.to_json()}


def _status(findings: tuple[Finding, ...]) -> str:
    if can_build(findings):
        return "ready" if can_run(findings) else "can be built, not run"
    return "lacks " + ", ".join(
        finding.name for finding in findings if not finding.met and not finding.for_running
    )
