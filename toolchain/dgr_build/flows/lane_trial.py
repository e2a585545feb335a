"""What a lane shows for itself once it is built: a smoke run over several workers, and a record of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dgr_build import console

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.lanes.lane import BuiltLane, LanePlan
    from dgr_build.workspace import Workspace


def run_trial(ws: Workspace, built: BuiltLane) -> dict[str, Any] | None:
    """Run a 43-layer tiny V4 over three workers beside the whole model, and compare their logits.

    Raises:
        RouteError: a worker or the route failed.
        CheckError: the logits differ.
    """
    console.say(f"no route yet for {built.worker} of {ws.root}")
    return None


def record(
    ws: Workspace, built: BuiltLane, planned: LanePlan, *, tests: int | None, trial: dict[str, Any] | None
) -> Path | None:
    """Write a routine evidence record of a lane and return where it lies."""
    console.say(f"no record yet of {built.worker}: {tests}, {trial}, {planned.worker.digest}, {ws.evidence}")
    return None


def to_remember(trial: dict[str, Any]) -> str:
    """Return a smoke run as one line, for the stamp."""
    return json.dumps(trial, sort_keys=True)


def remembered(line: str) -> dict[str, Any]:
    """Return a smoke run from the stamp."""
    known: dict[str, Any] = json.loads(line)
    return known
