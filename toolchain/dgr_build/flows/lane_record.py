"""The routine evidence record of a lane: written when a check ran, found again when none had to."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

from dgr_build.documents.base import digest
from dgr_build.documents.evidence import Command, Digests, Record, Result
from dgr_build.evidence.record import public, write
from dgr_build.evidence.subject import changed_files, facts_of
from dgr_build.evidence.surroundings import environment, private_folders
from dgr_build.flows.lane_checks import models
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.stamp import passed, remember

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dgr_build.flows.lane_checks import Check
    from dgr_build.flows.lane_source import Published
    from dgr_build.lanes.lane import BuiltLane, LanePlan
    from dgr_build.workspace import Workspace

_LIMITATIONS = (
    "Weights are synthetic: mechanics and bits are shown, nothing about a real model.",
    "All workers ran on one machine over loopback.",
)
_CRITERIA = {
    "test": "the C++ tests of the lane pass",
    "smoke": "a tiny V4 over three workers gives the logits of the whole model",
}


def record(
    ws: Workspace, built: BuiltLane, planned: LanePlan, source: Published, checks: Mapping[str, Check]
) -> Path:
    """Write a record of a lane's checks and return where it lies.

    When no check ran now, the record of when they did is returned.

    Raises:
        CheckError: the record would name this machine.
    """
    key = digest({"worker": built.sha256, "checks": sorted(checks)})
    known = passed(built.build, "evidence", key)
    before = ws.evidence / f"{known}.json"
    if known is not None and before.is_file() and not any(check.fresh for check in checks.values()):
        return before
    path = write(ws.evidence, _record(ws, built, planned, source, checks), private_folders(ws))
    remember(built.build, "evidence", key, path.stem)
    return path


def _record(
    ws: Workspace, built: BuiltLane, planned: LanePlan, source: Published, checks: Mapping[str, Check]
) -> Record:
    private = private_folders(ws)
    commands = tuple(
        Command(argv=tuple(public(word, private) for word in check.argv), exit_code=0, seconds=check.seconds)
        for check in checks.values()
    )
    results = tuple(
        Result(
            criterion=_CRITERIA[name],
            command=index,
            verdict="passed",
            shown=public(json.dumps(check.result, sort_keys=True), private),
            passes=True,
        )
        for index, (name, check) in enumerate(checks.items())
    )
    plan = planned.worker
    return Record(
        subject=f"lane {built.lane}",
        ran_at=dt.datetime.now(dt.UTC).replace(microsecond=0),
        commands=commands,
        digests=_digests(built, planned, source),
        environment=environment(plan.tools["cxx"], f"{', '.join(built.version['backends'])} ({plan.isa})"),
        metrics={
            "network_cut": built.network_cut,
            "uncached": built.uncached,
            "worker_bytes": built.worker.stat().st_size,
            "tools": plan.tools,
        },
        results=results,
        changed_files=changed_files(source.series),
        limitations=_LIMITATIONS,
    )


def _digests(built: BuiltLane, planned: LanePlan, source: Published) -> Digests:
    return Digests(
        pin_commit=source.facts.commit,
        pin_tree=source.facts.base_tree,
        proof=source.proof,
        patched_tree=source.facts.patched_tree,
        series_sha256=source.series_sha256,
        lane=built.lane,
        lane_digest=planned.worker.digest,
        worker_sha256=built.sha256,
        reference_sha256=sha256_file(built.reference),
        artifacts=tuple(facts_of(artifact.path.stem, artifact) for artifact in models().values()),
    )
