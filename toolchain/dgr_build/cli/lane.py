"""`dgr-build lane`: build a lane of the matrix, show what it would be, list all lanes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dgr_build import console
from dgr_build.errors import UsageError
from dgr_build.flows.lane import STEPS, Outcome, Request, run_lane
from dgr_build.flows.lane_package import KINDS
from dgr_build.flows.lane_view import dry_run, list_lanes
from dgr_build.lanes.build import Options
from dgr_build.workspace import Workspace

_HELP = """Build one lane: environment, source, patches, packages, worker, inspection, tests, evidence.

What is there already is not done again, so a second run takes seconds. A lane that this machine cannot
build says what it needs and what is missing (exit 3); one that it can build but not run is built and
inspected, and its record says so. `list` in place of a name shows all lanes.

Examples:

  dgr-build lane cpu

  dgr-build lane cpu --dry-run

  dgr-build lane cpu --only test

  dgr-build lane cuda --profile quick --package wheel

  dgr-build lane cpu --set isa=x86-64-v4

  dgr-build lane cpu --reproduce

  dgr-build lane cuda --profile quick --only reproduce --objects 3

  dgr-build lane list
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("lane", help=_HELP)(lane)


def lane(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A lane of lanes/matrix.toml, or `list`.", metavar="NAME")],
    *,
    plan_only: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its digest; do nothing.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Compilers at once; by default what cores and memory allow.")
    ] = None,
    no_ccache: Annotated[
        bool, typer.Option("--no-ccache", help="Compile everything anew, without the compiler cache.")
    ] = False,
    profile: Annotated[
        str | None, typer.Option(help="One of the lane's choices of architectures, such as quick.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a CMake option, isa, architectures or environment; repeatable. The lane is then "
            "another one, with another digest.",
        ),
    ] = None,
    packages: Annotated[
        list[str] | None,
        typer.Option("--package", metavar="KIND", help=f"Also pack it: {', '.join(KINDS)}; repeatable."),
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also write its record to the tracked evidence folder.")
    ] = False,
    reproduce: Annotated[
        bool,
        typer.Option(
            "--reproduce", help="Build it twice more, in unlike surroundings: the same bytes, or exit 8."
        ),
    ] = False,
    objects: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --reproduce: only N object files, device code first."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="With --reproduce: leave the folders of both builds.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(help=f"One step, with what it stands on: {', '.join(STEPS)}.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Repeat tests and smoke run though this worker passed them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as data.")] = False,
) -> None:
    """Build one lane, or list them all."""
    if name == "list":
        _require_no_options(context)
    ws = Workspace.open()
    request = Request(
        lane=name,
        profile=profile,
        settings=tuple(settings or ()),
        only=only,
        force=force,
        packages=tuple(packages or ()),
        publish=publish,
        reproduce=reproduce or objects is not None or only == "reproduce",
        objects=objects,
        keep=keep,
        options=Options(jobs=jobs, use_ccache=not no_ccache),
    )
    if name == "list":
        _list(ws, as_json=as_json)
    elif plan_only:
        _plan(ws, request, as_json=as_json)
    else:
        _outcome(run_lane(ws, request), as_json=as_json)


def _require_no_options(context: typer.Context) -> None:
    given = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in {"name", "as_json"} and source is not None and source.name != "DEFAULT":
            given.append(parameter.opts[0])
    if given:
        raise UsageError(
            f"lane list takes no {given[0]}",
            cause="it shows all lanes as the matrix states them, and builds nothing",
            remedy="name a lane in place of `list`, or leave the option out",
        )


def _list(ws: Workspace, *, as_json: bool) -> None:
    states = list_lanes(ws)
    if as_json:
        console.result_json([vars(state) for state in states])
        return
    columns = ("lane", "backend", "here", "environment", "exercised so far", "profiles")
    rows = [(s.name, s.backend, s.status, s.environment, s.exercised, ", ".join(s.profiles)) for s in states]
    console.table("lanes", columns, rows)


def _plan(ws: Workspace, request: Request, *, as_json: bool) -> None:
    plan = dry_run(ws, request)
    if as_json:
        console.result_json(plan)
        return
    for key, value in plan.items():
        _show(key, value, indent=0)


def _show(key: str, value: object, *, indent: int) -> None:
    pad = "  " * indent
    if isinstance(value, dict):
        console.result(f"{pad}{key}:")
        for name, inner in value.items():
            _show(name, inner, indent=indent + 1)
    elif isinstance(value, list | tuple):
        console.result(f"{pad}{key}:")
        for inner in value:
            console.result(f"{pad}  {inner}")
    else:
        console.result(f"{pad}{key}: {value}")


def _outcome(outcome: Outcome, *, as_json: bool) -> None:
    data = outcome.to_json()
    if as_json:
        console.result_json(data)
        return
    keys = ("lane", "digest", "worker", "reference")
    lines = {key: data[key] for key in keys if key in data}
    if "test" in data:
        lines["C++ tests"] = f"{data['test']['passed']} passed"
    for trial in (name for name in data if name.startswith("smoke")):
        lines |= _smoke(data[trial])
    if "reproduce" in data:
        lines["two builds"] = f"the same bytes: {', '.join(data['reproduce']['sha256'])}"
    if "not_run" in data:
        lines["not run here"] = data["not_run"]
    lines |= data.get("packages", {})
    if "evidence" in data:
        lines["evidence"] = data["evidence"]
    console.facts(lines)


def _smoke(smoke: dict[str, Any]) -> dict[str, object]:
    speeds = (f"{name} {speed:.1f}" for name, speed in smoke["tokens_per_second"].items())
    stages = " ".join(f"[{first}, {last})" for first, last in smoke["stages"])
    lanes = ", ".join(dict.fromkeys(smoke["lanes"]))
    return {
        f"{smoke['recipe']} on {lanes}": f"layers {stages}; max |d| {smoke['max_abs_diff']:g}, "
        f"nmse {smoke['nmse']:.2g} of {smoke['rows_compared']} rows of logits; tokens/s {', '.join(speeds)}",
    }
