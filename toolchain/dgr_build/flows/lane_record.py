"""The evidence record of a lane: how far it was compiled, inspected, packed and run, and what was not."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from dgr_build.documents.base import digest, load_json
from dgr_build.documents.evidence import Command, Digests, Record, Result
from dgr_build.errors import CheckError
from dgr_build.evidence.publish import publish_page
from dgr_build.evidence.record import public, write
from dgr_build.evidence.subject import changed_files, facts_of
from dgr_build.evidence.surroundings import environment, private_folders
from dgr_build.flows.lane_checks import REPRODUCE, criteria_of, models
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.stamp import passed, remember

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dgr_build.flows.built_here import BuiltHere
    from dgr_build.flows.lane_checks import Check
    from dgr_build.flows.lane_source import Published
    from dgr_build.lanes.inspect import Inspected
    from dgr_build.lanes.lane import BuiltLane, Chosen, LanePlan
    from dgr_build.workspace import Workspace

_LIMITATIONS = (
    "Weights are synthetic: mechanics and bits are shown, nothing about a real model.",
    "All workers ran on one machine over loopback.",
)
_SOFTWARE = "It ran on a software device, which is not hardware: nothing is shown about a GPU."
_NOT_RUN = "Nothing of it was run: that it compiles and what it holds is all that is shown."


def record(here: BuiltHere, checks: Mapping[str, Check], *, publish: bool) -> Path:
    """Write a record of a lane and return where it lies.

    When no check ran now, the record of when they did is returned.

    Args:
        here: the lane.
        checks: those that passed, by name.
        publish: write it into the tracked evidence folder too, as record and page.

    Raises:
        CheckError: the record would name this machine.
    """
    ws, built = here.ws, here.built
    key = digest({"worker": built.sha256, "checks": sorted(checks)})
    known = passed(built.build, "evidence", key)
    before = ws.evidence / f"{known}.json"
    fresh = any(check.fresh for check in checks.values())
    if known is not None and before.is_file() and not fresh and not publish:
        return before
    made = _record(here, checks)
    path = write(ws.evidence, made, private_folders(ws))
    remember(built.build, "evidence", key, path.stem)
    if publish:
        publish_record(ws, built.lane, made)
    return path


def require_publishable(chosen: Chosen) -> None:
    """Check that a record of a lane may be published as the lane's.

    Raises:
        CheckError: a lane with overrides would pass for the lane of the matrix.
    """
    if chosen.overrides:
        raise CheckError(
            f"a record of lane {chosen.name} with overrides cannot be published",
            cause="the matrix has another lane: " + ", ".join(one.line for one in chosen.overrides),
            remedy="build it without --set and without overrides of this machine",
        )


def has_published_worker(ws: Workspace, lane: str) -> bool:
    """Tell whether the tracked record of a lane is about a worker that was built."""
    file = ws.published_evidence / f"lane-{lane}" / "record.json"
    return file.is_file() and load_json(file, Record).digests.worker_sha256 is not None


def publish_record(ws: Workspace, lane: str, made: Record) -> None:
    """Write a record of a lane into the tracked evidence folder, as data and as a page.

    Raises:
        CheckError: the record names this machine.
    """
    folder = ws.published_evidence / f"lane-{lane}"
    summary = f"How far lane {lane} was built, inspected and run; nothing beyond it is claimed."
    publish_page(folder, made, f"Lane {lane}", summary, private_folders(ws))


def _record(here: BuiltHere, checks: Mapping[str, Check]) -> Record:
    ws, planned, built, source = here.ws, here.planned, here.built, here.source
    private = private_folders(ws)
    plan, lane, profile = planned.worker, planned.chosen.lane, planned.chosen.profile
    build = Command(
        argv=("dgr-build", "lane", *planned.chosen.words, "--only", "inspect"),
        exit_code=0,
        seconds=round(built.seconds, 2),
    )
    commands = (build, *(_command(check, private) for check in checks.values()))
    results = [_compiled(built, planned), _inspected(built, planned)]
    for name, criterion in criteria_of(planned).items():
        check = checks.get(name)
        if check is None:
            why = "--reproduce" if name == REPRODUCE else here.idle or "was not asked for"
            results.append(Result(criterion=criterion, verdict="not run", needs=why, passes=False))
            continue
        soft = here.software if name != REPRODUCE else ""
        results.append(
            Result(
                criterion=check.criterion,
                command=1 + list(checks).index(name),
                verdict="passed",
                shown=public(json.dumps(check.result, sort_keys=True), private),
                needs=f"hardware: this ran on {soft}" if soft else "",
                passes=not soft,
            )
        )
    computed = f"{', '.join(built.version['backends'])} ({plan.isa})"
    ran = checks and lane.run_device != "CPU"
    return Record(
        subject=f"lane {built.lane}" + (f", profile {profile}" if profile is not None else ""),
        ran_at=dt.datetime.now(dt.UTC).replace(microsecond=0),
        commands=commands,
        digests=_digests(built, planned, source),
        environment=environment(plan.tools["cxx"], f"{computed} on {lane.run_device}" if ran else computed),
        metrics={
            "worker_bytes": built.inspected.size,
            "tools": plan.tools,
            "environment": plan.environment,
            "closeness": lane.closeness.model_dump(mode="json") if lane.closeness is not None else None,
            "overrides": [one.to_json() for one in planned.chosen.overrides],
        },
        results=tuple(results),
        changed_files=changed_files(source.series),
        limitations=_limitations(here),
    )


def _compiled(built: BuiltLane, planned: LanePlan) -> Result:
    shown: dict[str, Any] = {
        "languages": planned.worker.languages,
        "architectures": planned.worker.architectures,
        "network_cut": built.network_cut,
        "uncached": built.uncached,
        "answered_by_the_cache": built.cache.to_json() if built.cache is not None else None,
    }
    return Result(
        criterion="worker" + (" and reference compile" if built.reference is not None else " compiles"),
        command=0,
        verdict="passed",
        shown=json.dumps(shown, sort_keys=True),
        passes=True,
    )


def _inspected(built: BuiltLane, planned: LanePlan) -> Result:
    shown: dict[str, Any] = {
        "backends": built.version["backends"],
        **({"device_code_for": built.architectures} if built.architectures else {}),
        "needed": built.inspected.needed,
        "run_path": planned.chosen.lane.run_path,
        **_oldest_system(built.inspected),
    }
    device = " and device code for just its architectures" if built.architectures else ""
    return Result(
        criterion=f"the worker holds the lane's backends{device}, needs no more than the lane states, and "
        "tells no path of the machine",
        command=0,
        verdict="passed",
        shown=json.dumps(shown, sort_keys=True),
        passes=True,
    )


def _oldest_system(inspected: Inspected) -> dict[str, str]:
    if inspected.macos != "0":
        return {"macos_at_least": inspected.macos}
    return {"glibc_at_least": inspected.glibc}


def _limitations(here: BuiltHere) -> tuple[str, ...]:
    if here.idle:
        return (_NOT_RUN,)
    return (*_LIMITATIONS, *((_SOFTWARE,) if here.software else ()))


def _command(check: Check, private: Mapping[str, str]) -> Command:
    return Command(
        argv=tuple(public(word, private) for word in check.argv), exit_code=0, seconds=check.seconds
    )


def _digests(built: BuiltLane, planned: LanePlan, source: Published) -> Digests:
    found = source.digests(built.lane)
    return found.model_copy(
        update={
            "lane_digest": planned.worker.digest,
            "worker_sha256": built.sha256,
            "reference_sha256": sha256_file(built.reference) if built.reference is not None else None,
            "artifacts": tuple(facts_of(one.path.stem, one) for one in models().values()),
        }
    )
