"""A lane that was built here, with all that came before it: what checks, packages and record start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgr_build.flows.lane_source import Published
    from dgr_build.lanes.lane import BuiltLane, LanePlan
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class BuiltHere:
    """A lane that was built and inspected.

    Args:
        ws: where.
        planned: how.
        built: what came of it.
        source: from what.
        idle: why it cannot be run on this machine, "" when it can.
        software: the software device that it computes on here, "" for hardware.
    """

    ws: Workspace
    planned: LanePlan
    built: BuiltLane
    source: Published
    idle: str = ""
    software: str = ""
