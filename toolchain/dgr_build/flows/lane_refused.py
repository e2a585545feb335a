"""The record of a lane that cannot be built on this machine: why, and what can be checked all the same."""

from __future__ import annotations

import datetime as dt
import json
import time
from typing import TYPE_CHECKING

from dgr_build.documents.evidence import Command, Record, Result
from dgr_build.evidence.subject import changed_files
from dgr_build.evidence.surroundings import environment
from dgr_build.flows.lane_source import publish_source
from dgr_build.lanes.ci import jobs
from dgr_build.lanes.plan import stated_values
from dgr_build.lanes.upstream_options import unknown_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.lanes.finding import Finding
    from dgr_build.lanes.lane import Chosen
    from dgr_build.workspace import Workspace

_LIMITATIONS = (
    "Nothing of it was compiled or run: only that the definition fits the pinned source, and its CI job.",
)


def refused_record(ws: Workspace, chosen: Chosen, findings: Sequence[Finding]) -> Record:
    """Return what can be said of a lane that this machine cannot build.

    Raises:
        SourceUnavailableError, ProofError: the source is not proven here.
    """
    source = publish_source(ws)
    started = time.monotonic()
    results = (_definition(ws, chosen), _job(chosen), _not_built(chosen, findings))
    command = Command(
        argv=("dgr-build", "lane", *chosen.words, "--publish"),
        exit_code=3,
        seconds=round(time.monotonic() - started, 2),
    )
    return Record(
        subject=f"lane {chosen.name}",
        ran_at=dt.datetime.now(dt.UTC).replace(microsecond=0),
        commands=(command,),
        digests=source.digests(chosen.name),
        environment=environment("none", "nothing"),
        metrics={"values": stated_values(chosen.matrix, chosen.name)},
        results=results,
        changed_files=changed_files(source.series),
        limitations=_LIMITATIONS,
    )


def _definition(ws: Workspace, chosen: Chosen) -> Result:
    names = stated_values(chosen.matrix, chosen.name)
    unknown = unknown_options(ws.base_source, names)
    return _checked(
        "every CMake option that the lane states is one of the pinned source or of CMake",
        {"options": len(names), "unknown": sorted(unknown)},
        holds=not unknown,
    )


def _job(chosen: Chosen) -> Result:
    found = [job for job in jobs(chosen.matrix) if job.lane == chosen.name]
    return _checked(
        "a CI job builds the lane with one command, on a machine that can",
        {job.name: f"{job.command_line} on {job.runs_on}" for job in found},
        holds=bool(found),
    )


def _checked(criterion: str, shown: object, *, holds: bool) -> Result:
    # Looked at by this program itself, without a command of its own: what holds is said, not claimed as run.
    return Result(
        criterion=criterion,
        verdict="not run" if holds else "failed",
        shown=json.dumps({"holds": holds, "seen": shown}, sort_keys=True),
        needs="a build; this was only read" if holds else "",
        passes=False,
    )


def _not_built(chosen: Chosen, findings: Sequence[Finding]) -> Result:
    missing = [finding for finding in findings if not finding.met and not finding.for_running]
    return Result(
        criterion=f"the worker of lane {chosen.name} compiles, holds its backends, and passes its tests",
        verdict="not run",
        needs="; ".join(f"{finding.name}: {finding.wanted}" for finding in missing),
        passes=False,
    )
