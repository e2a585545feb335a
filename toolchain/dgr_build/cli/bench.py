"""`dgr-build bench`: how fast things are, measured against other ways to the same end."""

from __future__ import annotations

from typing import Annotated

import typer

from dgr_build import console
from dgr_build.documents.bench import ToolchainBench
from dgr_build.documents.bench_worker import WorkerBench
from dgr_build.flows import bench_worker_page
from dgr_build.flows.bench_page import cells
from dgr_build.flows.bench_toolchain import Asked, measure_toolchain, require_met
from dgr_build.flows.bench_worker import AskedOfWorker, measure_worker, require_worker_met
from dgr_build.workspace import Workspace

_TOOLCHAIN = """Measure the toolchain side by side with plain tools: ratios with their spread, and verdicts.

Both ways run in turns in one go, in a private workspace and cache that are gone afterwards. Rows:

  source  resolve the source from its archive, against tar xzf of it (at most 2 times)

  verify  prove the patch stack, against git am and a full reverse in a clone made for it (at most 0.3 times)

  verify-kept  the same, against a clone that is there already (no target)

  noop    a lane with nothing to do (under one second), beside ninja's own

  edit    an edited patch to a worker, against the edit by hand in a CMake tree (at most 1.1 times)

  cold    the cpu lane from nothing, against plain cmake and ninja (at most 1.05 times)

The last two compile everything, for many minutes, and are measured only when they are named. A missed target
is exit code 8; an unresolved one wants more pairs or an idler machine.

Examples:

  dgr-build bench toolchain

  dgr-build bench toolchain --only verify,noop --pairs 20

  dgr-build bench toolchain --only edit,cold --publish
"""

_WORKER = """Measure the shard worker side by side with upstream's programs: ratios, spread, and verdicts.

Upstream's programs are built from the unpatched tree with the lane's flags. Both are measured in turns in
one go, on a model that is made for it (about 1 GB). Groups:

  whole     a whole worker, against llama-bench (decoding and prompt, at least 0.98 times)

  stages    2, 3 and 4 stages of one thread, against a whole worker (decoding, at least 0.97 times)

  prefill   2 stages of one thread, against a whole worker with two (prompt, at least 0.90 times)

  rpc       2 stages, against upstream's RPC servers, also with a delay (at least 1.15 and 1.7 times)

  sessions  1 to 8 sessions at once, against llama-batched-bench (at least 0.95 times)

  floor     a token, against computing and delay alone (at most 0.5 ms or 3 % more)

  load      bytes read from a cold disk, against those that a stage owns (1.01 times, the header and 16 MiB)

  frames    what a frame costs besides computing, against a bare gRPC echo (at most 2 times)

All of it takes about an hour on an idle machine, --quick some minutes with a small model. A missed target
is exit code 8; an unresolved one wants more pairs or an idler machine.

Examples:

  dgr-build bench worker --quick

  dgr-build bench worker --only whole,stages --pairs 20

  dgr-build bench worker --publish
"""


def register(app: typer.Typer) -> None:
    """Add the command group to the application."""
    group = typer.Typer(no_args_is_help=True, help="Benchmarks: ratios with their spread, and verdicts.")
    group.callback()(_group)
    group.command("toolchain", help=_TOOLCHAIN)(toolchain)
    group.command("worker", help=_WORKER)(worker)
    app.add_typer(group, name="bench")


def _group() -> None:
    """Benchmarks: ratios with their spread, and verdicts. Example: dgr-build bench toolchain."""


def toolchain(
    *,
    only: Annotated[
        list[str] | None, typer.Option(help="Rows to measure, separated by commas; can be repeated.")
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(min=2, help="How often each comparison runs; by default what suits each.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Compilers at once; by default what cores and memory allow.")
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also write to the tracked evidence folder.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the result; measure nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as data.")] = False,
) -> None:
    """Measure the toolchain side by side with plain tools."""
    if schema:
        console.result_json(ToolchainBench.model_json_schema())
        return
    asked = Asked(only=tuple(only or ()), pairs=pairs, jobs=jobs, publish=publish)
    measured = measure_toolchain(Workspace.open(), asked)
    if as_json:
        console.result_json(measured.to_json())
    else:
        columns = ("what", "ours, s", "theirs, s", "ratio", "target", "verdict", "pairs")
        console.table("toolchain", columns, [cells(row) for row in measured.bench.rows])
        console.result(f"written to {measured.folder}")
    require_met(measured)


def worker(
    *,
    only: Annotated[
        list[str] | None, typer.Option(help="Groups to measure, separated by commas; can be repeated.")
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(min=2, help="How often each comparison is measured; by default what suits each."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Compilers at once; by default what cores and memory allow.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small settings: shows that it works, not how fast the worker is.")
    ] = False,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also write to the tracked evidence folder.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the result; measure nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as data.")] = False,
) -> None:
    """Measure the shard worker side by side with upstream's programs."""
    if schema:
        console.result_json(WorkerBench.model_json_schema())
        return
    asked = AskedOfWorker(only=tuple(only or ()), pairs=pairs, jobs=jobs, quick=quick, publish=publish)
    measured = measure_worker(Workspace.open(), asked)
    if as_json:
        console.result_json(measured.to_json())
    else:
        rows = [bench_worker_page.cells(row) for row in measured.bench.rows]
        console.table("worker", bench_worker_page.COLUMNS, rows)
        console.result(f"written to {measured.folder}")
    require_worker_met(measured)
