"""The story of `dgr-build bench worker`: build what measures, measure, judge, write down."""

from __future__ import annotations

import datetime as dt
import os
import platform
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.artifacts.bench_models import SEAM, provide_bench_model
from dgr_build.documents.bench_worker import MeasuredModel, WorkerBench
from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.pin import load_pin
from dgr_build.errors import CheckError, UsageError
from dgr_build.evidence.record import public
from dgr_build.evidence.surroundings import environment, private_folders
from dgr_build.flows import bench_worker_rows as rows_of
from dgr_build.flows.bench_ground import started
from dgr_build.flows.bench_worker_ground import LANE, Settings, WorkerGround
from dgr_build.flows.bench_worker_measure import measured
from dgr_build.flows.bench_worker_page import page
from dgr_build.flows.bench_worker_programs import Client, Upstream
from dgr_build.flows.lane import Request, run_lane
from dgr_build.flows.programs import lane_digest_of, worker_of
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.bench_client import build_client
from dgr_build.lanes.build import Options
from dgr_build.lanes.jobs import cores
from dgr_build.lanes.plan import SourceFacts
from dgr_build.lanes.toolchain import own_program
from dgr_build.lanes.upstream_tools import OVERRIDES, build_tools
from dgr_build.workspace import staging, sweep, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.documents.bench_worker import WorkerRow
    from dgr_build.flows.bench_worker_measure import Pairing
    from dgr_build.workspace import Workspace

NAME = "bench-worker"
_LIMITATIONS = (
    "Times are of one machine in one run; ratios travel further than speeds.",
    "All stages share the memory and the caches of one machine; the network is loopback with a made delay.",
    "The model is made: its weights are random, its vocabulary small, so the output layer weighs little.",
    "A delay's wire is of any width: nothing is said of a network that is slow rather than far.",
)
_QUICK_PAIRS = 2
_START_S = 600.0  # a worker computes its largest frame once before it serves


@dataclass(frozen=True, kw_only=True)
class _Group:
    pairings: Callable[[WorkerGround], Iterator[Pairing]]
    pairs: int


GROUPS = {
    "whole": _Group(pairings=rows_of.whole, pairs=10),
    "stages": _Group(pairings=rows_of.stages, pairs=10),
    "prefill": _Group(pairings=rows_of.prefill, pairs=8),
    "rpc": _Group(pairings=rows_of.rpc, pairs=5),
    "sessions": _Group(pairings=rows_of.sessions, pairs=5),
    "floor": _Group(pairings=rows_of.floor, pairs=10),
    "load": _Group(pairings=rows_of.load, pairs=3),
    "frames": _Group(pairings=rows_of.frames, pairs=10),
}


@dataclass(frozen=True, kw_only=True)
class AskedOfWorker:
    """What a person asked for.

    Args:
        only: names of groups; all when empty.
        pairs: how often each comparison is measured, None for what suits each.
        jobs: compilers at once, None to let cores and memory decide.
        quick: small settings.
        publish: also write to the tracked evidence folder.
    """

    only: tuple[str, ...] = ()
    pairs: int | None = None
    jobs: int | None = None
    quick: bool = False
    publish: bool = False


@dataclass(frozen=True, kw_only=True)
class MeasuredWorker:
    """What was found, and the folder that it was written to."""

    folder: Path
    bench: WorkerBench

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        return {"folder": str(self.folder), "id": self.bench.id, **self.bench.model_dump(mode="json")}


def groups_of(only: Sequence[str]) -> tuple[str, ...]:
    """Return the groups that a person asked for, in their usual order; all where none is named.

    Args:
        only: names, several in one separated by commas.

    Raises:
        UsageError: one is unknown.
    """
    asked = [name.strip() for text in only for name in text.split(",") if name.strip()]
    unknown = [name for name in asked if name not in GROUPS]
    if unknown:
        raise UsageError(
            f"nothing that can be measured is called {', '.join(unknown)}",
            cause=f"there are {', '.join(GROUPS)}",
            remedy="dgr-build bench worker --only whole,stages",
        )
    return tuple(name for name in GROUPS if name in asked or not asked)


def measure_worker(ws: Workspace, asked: AskedOfWorker) -> MeasuredWorker:
    """Measure the worker of lane cpu and write down what was found, after each group again.

    Raises:
        UsageError: an unknown group, or a quick run is to be published.
        HostError: something is not there that is needed.
        BuildError: the worker, the client or upstream's programs do not build.
        CheckError, RouteError: what was to be measured failed.
    """
    names = groups_of(asked.only)
    if asked.quick and asked.publish:
        raise UsageError(
            "a quick run is not published",
            cause="its settings are too small to say how fast the worker is",
            remedy="leave --quick or --publish out",
        )
    began, load = dt.datetime.now(dt.UTC).replace(microsecond=0), os.getloadavg()[0]
    if load > cores() / 2:
        console.warn(f"this machine is busy ({load:.1f} processes want a core); intervals will be wide")
    tools = _tools()
    rows: list[WorkerRow] = []
    bench = None
    with prepared(ws, Settings.quick() if asked.quick else Settings(), asked.jobs) as ground:
        lane_digest = lane_digest_of(ground.worker)
        for name in names:
            rows += _group(ground, name, asked.pairs or (_QUICK_PAIRS if asked.quick else GROUPS[name].pairs))
            bench = WorkerBench(
                quick=asked.quick,
                ran_at=began,
                pin_commit=load_pin(ws.pin_file).commit,
                series_sha256=sha256_file(ws.series_file),
                lane_digest=lane_digest,
                upstream_values=OVERRIDES,
                settings=ground.settings.told(),
                models=(_told(ground.settings.model.name, ground.artifact), _told(SEAM.name, ground.seam)),
                tools=tools,
                environment=environment(tools["c++"], "CPU"),
                load=(round(load, 2), round(os.getloadavg()[0], 2)),
                rows=tuple(rows),
                limitations=_LIMITATIONS,
            )
            _write(ws, bench, ws.evidence / NAME)
    if bench is None:
        raise UsageError("nothing was asked for", remedy="dgr-build bench worker --help")
    if asked.publish:
        _write(ws, bench, ws.published_evidence / NAME)
    return MeasuredWorker(
        folder=(ws.published_evidence if asked.publish else ws.evidence) / NAME, bench=bench
    )


def require_worker_met(measured_worker: MeasuredWorker) -> None:
    """Refuse a benchmark that missed a target.

    Raises:
        CheckError: one was missed.
    """
    bench = measured_worker.bench
    if bench.missed:
        groups = dict.fromkeys(row.group for row in bench.missed)
        raise CheckError(
            f"{len(bench.missed)} of {len(bench.rows)} targets are missed: "
            f"{', '.join(row.name for row in bench.missed)}",
            cause=f"their whole intervals lie beyond: {measured_worker.folder / 'README.md'}",
            remedy=f"dgr-build bench worker --only {','.join(groups)} on an idle machine measures again",
        )


@contextmanager
def prepared(ws: Workspace, settings: Settings, jobs: int | None) -> Iterator[WorkerGround]:
    """Build and make everything that measures, and yield it with a folder that is gone afterwards.

    Raises:
        DgrError: of the kind of what failed.
    """
    run_lane(ws, Request(lane=LANE, only="inspect", options=Options(jobs=jobs)))
    matrix, pin = load_matrix(ws.matrix_file), load_pin(ws.pin_file)
    client = Client(program=build_client(ws, matrix, jobs=jobs))
    tools = build_tools(ws, matrix, epoch=SourceFacts.of(pin, pin.tree).epoch, jobs=jobs)
    artifact, seam = provide_bench_model(settings.model), provide_bench_model(SEAM)
    parent = ws.root / "bench"
    sweep(parent, "worker")
    with staging(parent, "worker") as folder:
        yield WorkerGround(
            ws=ws,
            folder=folder,
            settings=settings,
            worker=replace(worker_of(ws, matrix, LANE), start_s=_START_S),
            artifact=artifact,
            seam=seam,
            client=client,
            upstream=Upstream(tools=tools, model=artifact.path),
        )


def _group(ground: WorkerGround, name: str, pairs: int) -> list[WorkerRow]:
    console.step(f"preparing {name}")
    rows = []
    with closing(GROUPS[name].pairings(ground)) as pairings:  # type: ignore[type-var]
        for pairing in pairings:
            with console.progress(f"measuring {pairing.name}", pairing.runs(pairs), unit="runs") as task:
                rows.append(measured(pairing, name, pairs, on_run=lambda task=task: task.advance(1)))  # type: ignore[misc]
    return rows


def _told(name: str, artifact: Artifact) -> MeasuredModel:
    manifest = artifact.manifest
    return MeasuredModel(
        name=name,
        digest=artifact.digest,
        n_bytes=manifest.n_bytes,
        n_layer=manifest.n_layer,
        n_embd=manifest.n_embd,
    )


def _tools() -> dict[str, str]:
    programs = ("c++", own_program("cmake"), own_program("ninja"))
    stated = {Path(one).name: started([one, "--version"]).splitlines()[0].strip() for one in programs}
    return {**stated, "python": platform.python_version()}


def _write(ws: Workspace, bench: WorkerBench, folder: Path) -> None:
    text = bench.model_dump_json(indent=2) + "\n"
    if public(text, private_folders(ws)) != text:
        raise CheckError(
            "the benchmark names folders of this machine",
            cause="a version or a command holds one",
            remedy="report this as a bug: what is written must go through evidence.record.public",
        )
    write_atomic(folder / "record.json", text.encode())
    write_atomic(folder / "README.md", page(bench).encode())
