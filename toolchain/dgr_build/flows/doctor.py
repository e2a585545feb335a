"""What this machine says to lanes: which can be built here, which can be run, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dgr_build.documents.matrix import load_matrix
from dgr_build.flows.environments import environment_reach
from dgr_build.lanes.doctor import can_build, can_run, examine
from dgr_build.lanes.host import Host, this_machine

if TYPE_CHECKING:
    from dgr_build.lanes.finding import Finding
    from dgr_build.workspace import Workspace

_FIRST_LANE = "cpu"  # what everybody builds first: without it nothing works here


@dataclass(frozen=True, kw_only=True)
class Report:
    """What this machine says to a lane.

    Args:
        lane: its name.
        environment: where its compilers come from.
        findings: everything it needs, and what is here.
    """

    lane: str
    environment: str
    findings: tuple[Finding, ...]

    @property
    def can_build(self) -> bool:
        """Whether nothing that building needs is missing."""
        return can_build(self.findings)

    @property
    def can_run(self) -> bool:
        """Whether what is built can be run on this machine."""
        return can_run(self.findings)

    @property
    def runs_on(self) -> Literal["hardware", "software device", "nothing"]:
        """What a worker computes on here."""
        if not self.can_run:
            return "nothing"
        return "software device" if any(finding.stand_in for finding in self.findings) else "hardware"

    @property
    def missing(self) -> tuple[Finding, ...]:
        """What is missing, for building first."""
        unmet = (finding for finding in self.findings if not finding.met)
        return tuple(sorted(unmet, key=lambda finding: finding.for_running))

    @property
    def brought(self) -> tuple[Finding, ...]:
        """What is not here yet and comes with the lane."""
        return tuple(finding for finding in self.findings if finding.met and finding.brought)

    @property
    def here(self) -> tuple[Finding, ...]:
        """What is here and will do."""
        return tuple(finding for finding in self.findings if finding.met and not finding.brought)

    def to_json(self) -> dict[str, Any]:
        """Return the report as data."""
        return {
            "lane": self.lane,
            "environment": self.environment,
            "can_build": self.can_build,
            "can_run": self.can_run,
            "runs_on": self.runs_on,
            "findings": [finding.to_json() for finding in (*self.missing, *self.brought, *self.here)],
        }


def consult(
    ws: Workspace,
    lane: str | None = None,
    *,
    host: Host | None = None,
) -> tuple[Report, ...]:
    """Look at this machine for one lane, or for all; nothing is fetched, installed or made.

    Args:
        ws: the workspace.
        lane: its name, None for all.
        host: the machine; by default this one.

    Raises:
        UsageError: there is no such lane.
    """
    matrix = load_matrix(ws.matrix_file)
    host = host or this_machine(ws.root)
    names = list(matrix.lane) if lane is None else [lane]
    reports = []
    for name in names:
        environment = matrix.find(name).environment
        reach = environment_reach(ws, matrix, environment)
        findings = examine(matrix, name, host=host, reach=reach)
        reports.append(Report(lane=name, environment=environment, findings=findings))
    return tuple(reports)


def enough(reports: tuple[Report, ...]) -> bool:
    """Tell whether what was asked for can be built: the one lane, or of all of them the first to build."""
    asked = [report for report in reports if len(reports) == 1 or report.lane == _FIRST_LANE]
    return all(report.can_build for report in asked)
