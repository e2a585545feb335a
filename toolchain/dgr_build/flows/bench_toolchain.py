"""The story of `dgr-build bench toolchain`: measure, judge, write down."""

from __future__ import annotations

import datetime as dt
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.documents.bench import ToolchainBench
from dgr_build.documents.pin import load_pin
from dgr_build.errors import CheckError, UsageError
from dgr_build.evidence.record import public
from dgr_build.evidence.surroundings import environment, private_folders
from dgr_build.flows import bench_compile, bench_rows
from dgr_build.flows.bench_ground import ground, started
from dgr_build.flows.bench_measure import compare
from dgr_build.flows.bench_page import page
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.jobs import available_memory, cores, job_count
from dgr_build.lanes.toolchain import own_program
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dgr_build.flows.bench_ground import Ground
    from dgr_build.flows.bench_measure import Comparison
    from dgr_build.workspace import Workspace

NAME = "bench-toolchain"
_LIMITATIONS = (
    "Times are of one machine in one run; ratios travel further than seconds.",
    "Files were in memory: nothing is said of a cold disk.",
)


@dataclass(frozen=True, kw_only=True)
class _Kind:
    make: Callable[[Ground], Comparison]
    pairs: int
    usual: bool = True


ROWS = {
    "source": _Kind(make=bench_rows.source, pairs=5),
    "verify": _Kind(make=bench_rows.verify, pairs=10),
    "verify-kept": _Kind(make=bench_rows.verify_kept, pairs=10),
    "noop": _Kind(make=bench_rows.noop, pairs=10),
    "edit": _Kind(make=bench_compile.edit, pairs=6, usual=False),
    "cold": _Kind(make=bench_compile.cold, pairs=3, usual=False),
}
USUAL = tuple(name for name, kind in ROWS.items() if kind.usual)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person asked for.

    Args:
        only: names of rows; the usual ones when empty.
        pairs: how often each comparison is run, None for what suits each.
        jobs: compilers at once, None to let cores and memory decide.
        publish: also write to the tracked evidence folder.
    """

    only: tuple[str, ...] = ()
    pairs: int | None = None
    jobs: int | None = None
    publish: bool = False


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was found, and the folder that it was written to."""

    folder: Path
    bench: ToolchainBench

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        return {"folder": str(self.folder), "id": self.bench.id, **self.bench.model_dump(mode="json")}


def names_of(only: Sequence[str]) -> tuple[str, ...]:
    """Return the rows that a person asked for, in their usual order.

    Args:
        only: names, several in one separated by commas; none for the usual ones.

    Raises:
        UsageError: one is unknown.
    """
    asked = [name.strip() for text in only for name in text.split(",") if name.strip()]
    unknown = [name for name in asked if name not in ROWS]
    if unknown:
        raise UsageError(
            f"nothing that can be measured is called {', '.join(unknown)}",
            cause=f"there are {', '.join(ROWS)}",
            remedy=f"dgr-build bench toolchain --only {','.join(USUAL)}",
        )
    return tuple(name for name in ROWS if name in asked) if asked else USUAL


def measure_toolchain(ws: Workspace, asked: Asked) -> Measured:
    """Measure the toolchain in a private workspace and write down what was found.

    Raises:
        UsageError: an unknown row.
        HostError: something is not there that a row needs.
        CheckError: what was to be measured failed.
    """
    names = names_of(asked.only)
    began, load = dt.datetime.now(dt.UTC).replace(microsecond=0), os.getloadavg()[0]
    tools = _tools()
    jobs = asked.jobs or job_count(cores(), available_memory())
    if load > cores() / 2:
        console.warn(f"this machine is busy ({load:.1f} processes want a core); intervals will be wide")
    rows = []
    with ground(ws, jobs) as place:
        for name in names:
            kind = ROWS[name]
            pairs = asked.pairs or kind.pairs
            console.step(f"preparing {name}")
            comparison = kind.make(place)
            total = comparison.runs(pairs)
            with console.progress(f"measuring {name}", total, unit="runs") as task:
                rows.append(compare(comparison, pairs, on_run=lambda task=task: task.advance(1)))  # type: ignore[misc]
    bench = ToolchainBench(
        ran_at=began,
        pin_commit=load_pin(ws.pin_file).commit,
        series_sha256=sha256_file(ws.series_file),
        tools=tools,
        environment=environment(tools["c++"], "none"),
        load=(round(load, 2), round(os.getloadavg()[0], 2)),
        rows=tuple(rows),
        limitations=_LIMITATIONS,
    )
    return _written(ws, bench, publish=asked.publish)


def require_met(measured: Measured) -> None:
    """Refuse a benchmark that missed a target.

    Raises:
        CheckError: one was missed.
    """
    missed = measured.bench.missed
    if missed:
        raise CheckError(
            f"{len(missed)} of {len(measured.bench.rows)} targets are missed: {', '.join(missed)}",
            cause=f"their whole intervals lie beyond: {measured.folder / 'README.md'}",
            remedy=f"dgr-build bench toolchain --only {','.join(missed)} on an idle machine measures again",
        )


def _tools() -> dict[str, str]:
    programs = ("git", "tar", "c++", own_program("cmake"), own_program("ninja"))
    stated = {Path(one).name: started([one, "--version"]).splitlines()[0].strip() for one in programs}
    return {**stated, "python": platform.python_version()}


def _written(ws: Workspace, bench: ToolchainBench, *, publish: bool) -> Measured:
    text = bench.model_dump_json(indent=2) + "\n"
    if public(text, private_folders(ws)) != text:
        raise CheckError(
            "the benchmark names folders of this machine",
            cause="a version or a command holds one",
            remedy="report this as a bug: what is written must go through evidence.record.public",
        )
    folders = [ws.evidence / NAME, *([ws.published_evidence / NAME] if publish else [])]
    for folder in folders:
        write_atomic(folder / "record.json", text.encode())
        write_atomic(folder / "README.md", page(bench).encode())
    return Measured(folder=folders[-1], bench=bench)
