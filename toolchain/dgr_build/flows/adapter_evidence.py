"""The story of DGR-051: run what shows the V4 adapter and the standing gates, and write down the outcome."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.artifacts.tiny import provide
from dgr_build.documents.evidence import Record
from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.recipe import Model, load_recipe
from dgr_build.documents.series import load_series
from dgr_build.errors import CheckError
from dgr_build.evidence import record as records
from dgr_build.evidence.dgr_051 import CRITERIA, LIMITATIONS, MODELS, NEXT, SUBJECT, SUMMARY, TITLE
from dgr_build.evidence.readme import render
from dgr_build.evidence.run import (
    Plan,
    Ran,
    judge,
    measured,
    mentioned,
    own_command,
    pytest_command,
    run_plan,
)
from dgr_build.evidence.subject import changed_files, digests_of
from dgr_build.evidence.surroundings import environment, private_folders
from dgr_build.flows.lane import Request, run_lane
from dgr_build.lanes.toolchain import find_toolchain
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dgr_build.lanes.lane import BuiltLane
    from dgr_build.workspace import Workspace

_LANE = "cpu"


@dataclass(frozen=True, kw_only=True)
class Written:
    """Where the page and its record lie, and the record."""

    folder: Path
    record: Record

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        verdicts = {result.criterion: result.verdict for result in self.record.results}
        return {
            "folder": str(self.folder),
            "id": self.record.id,
            "sound": self.record.sound,
            "passes": self.record.passes,
            "results": verdicts,
        }


def prove_adapter(ws: Workspace, *, publish: bool = False) -> Written:
    """Run everything that shows the adapter, and write page and record.

    Args:
        ws: the workspace.
        publish: write to the tracked evidence folder; only a record without a failure goes there.

    Raises:
        CheckError: something that was run failed; page and record say what, in the workspace.
        DgrError: the lane cannot be built.
    """
    began = dt.datetime.now(dt.UTC).replace(microsecond=0)
    built = _built(ws)
    ran = []
    for plan in plans(ws):
        console.step(f"{' '.join(plan.typed)}")
        ran.append(run_plan(ws, plan))
    if _built(ws).sha256 != built.sha256:
        raise CheckError(
            "the worker changed while its evidence was gathered",
            cause="its sources were edited in the meantime, so the results are of different workers",
            remedy="dgr-build evidence dgr-051, and leave the sources alone until it ends",
        )
    record = _record(ws, built, ran, began)
    page = render(record, TITLE, SUMMARY)
    records.write(ws.evidence, record, private_folders(ws))
    folder = _write(ws.evidence / SUBJECT, record, page)
    failed = [result.criterion for result in record.results if result.verdict == "failed"]
    if failed:
        raise CheckError(
            f"{len(failed)} criteria of {SUBJECT} failed",
            cause="; ".join(failed),
            remedy=f"read {folder / 'README.md'}, then run the failing command by itself",
        )
    if publish:
        folder = _write(ws.published_evidence / SUBJECT, record, page)
    return Written(folder=folder, record=record)


def _built(ws: Workspace) -> BuiltLane:
    built = run_lane(ws, Request(lane=_LANE, only="inspect")).built
    if built is None:
        raise CheckError(f"lane {_LANE} was not built", remedy=f"dgr-build lane {_LANE}")
    return built


def plans(ws: Workspace) -> tuple[Plan, ...]:
    """Return what is run, in order."""
    tests = {"parity": "route_parity", "controls": "route_controls", "rules": "route_rules"}
    tests["upstream"] = "upstream_archs"
    return (
        own_command("patches", "patch", "verify"),
        own_command("gates", "test", "--gates"),
        own_command("unit", "test", "--unit", report=ws.logs("test") / "unit.xml"),
        own_command("ctest", "lane", _LANE, "--only", "test", report=ws.logs("lane") / "ctest.xml"),
        *(pytest_command(ws, key, f"tests/integration/test_{name}.py") for key, name in tests.items()),
    )


def _record(ws: Workspace, built: BuiltLane, ran: Sequence[Ran], began: dt.datetime) -> Record:
    found = measured(ran)
    matrix = load_matrix(ws.matrix_file)
    toolchain = find_toolchain(matrix.environment[matrix.find(built.lane).environment])
    version = built.version
    models = {name: provide(Model(tiny=request)) for name, request in MODELS.items()}
    numerics = {f"of workers, {n}": value for n, value in enumerate(mentioned(found, "numerics"), 1)}
    return Record(
        subject=SUBJECT,
        ran_at=began,
        commands=tuple(one.command for one in ran),
        digests=digests_of(
            ws,
            built,
            models,
            recipes=[load_recipe(path) for path in sorted(ws.recipes.glob("*.toml"))],
            numerics=numerics,
        ),
        environment=environment(
            toolchain.cxx.version, f"{', '.join(version['backends'])} ({version['isa']})"
        ),
        metrics={name: [_value(text) for text in values] for name, values in found.items()},
        results=judge(CRITERIA, ran),
        changed_files=changed_files(load_series(ws.series_file)),
        limitations=LIMITATIONS,
        next=NEXT,
    )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _write(folder: Path, record: Record, page: str) -> Path:
    write_atomic(folder / "record.json", (record.model_dump_json(indent=2) + "\n").encode())
    write_atomic(folder / "README.md", page.encode())
    return folder
