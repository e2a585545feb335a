"""The smoke run of a built lane: a tiny V4 over three workers beside the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build.errors import RouteError

if TYPE_CHECKING:
    from dgr_build.flows.lane_checks import Check
    from dgr_build.lanes.lane import BuiltLane
    from dgr_build.workspace import Workspace

RECIPE = "deepseek4-tiny-3stage"


def run_trial(ws: Workspace, built: BuiltLane) -> Check:
    """Run a 43-layer tiny V4 over three workers beside the whole model, and compare their logits.

    Raises:
        RouteError: a worker or the route failed.
        CheckError: the logits differ.
    """
    raise RouteError(
        f"there is no route yet to run {built.worker.name} with",
        cause=f"it would run {RECIPE} of {ws.recipes}",
        remedy="dgr-build lane cpu --only test runs the C++ tests",
    )
