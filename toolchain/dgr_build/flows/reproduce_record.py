"""The record of two builds of a lane that gave the same bytes, where the lane's own build took no part."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

from dgr_build.documents.evidence import Command, Record, Result
from dgr_build.evidence.publish import publish_page
from dgr_build.evidence.record import public, write
from dgr_build.evidence.subject import changed_files
from dgr_build.evidence.surroundings import environment, private_folders

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.flows.lane_checks import Check
    from dgr_build.flows.lane_source import Published
    from dgr_build.lanes.lane import LanePlan
    from dgr_build.workspace import Workspace

_LIMITATIONS = (
    "Nothing was run: that two builds give the same bytes is all that is shown.",
    "Both builds were made on one machine.",
)


def record_reproduction(
    ws: Workspace, planned: LanePlan, source: Published, check: Check, *, publish: bool
) -> Path:
    """Write what two builds of a lane showed, and return where it lies.

    Args:
        ws: the workspace.
        planned: the lane, as both built it.
        source: what they compiled.
        check: that their outputs were the same.
        publish: write it into the tracked evidence folder too, as record and page.

    Raises:
        CheckError: the record would name this machine.
    """
    private, plan = private_folders(ws), planned.worker
    argv = tuple(public(word, private) for word in check.argv)
    made = Record(
        subject=f"two builds of lane {' '.join(planned.chosen.words)}",
        ran_at=dt.datetime.now(dt.UTC).replace(microsecond=0),
        commands=(Command(argv=argv, exit_code=0, seconds=check.seconds),),
        digests=source.digests(plan.lane).model_copy(update={"lane_digest": plan.digest}),
        environment=environment(plan.tools["cxx"], f"none, compiled for {plan.isa}"),
        metrics={
            "tools": plan.tools,
            "environment": plan.environment,
            "architectures": plan.architectures,
            "overrides": [one.to_json() for one in planned.chosen.overrides],
        },
        results=(
            Result(
                criterion=check.criterion,
                command=0,
                verdict="passed",
                shown=public(json.dumps(check.result, sort_keys=True), private),
                passes=True,
            ),
        ),
        changed_files=changed_files(source.series),
        limitations=_LIMITATIONS,
    )
    if publish:
        folder = ws.published_evidence / f"reproduce-{plan.lane}"
        summary = "Two builds in surroundings that differ in all that must not matter, and their bytes."
        publish_page(folder, made, f"Two builds of lane {plan.lane}", summary, private)
    return write(ws.evidence, made, private)
