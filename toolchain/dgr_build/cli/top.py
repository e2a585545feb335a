"""`dgr-build top`: the stages of a running route, live."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from dgr_build import console
from dgr_build.cli.run import names
from dgr_build.errors import RouteError
from dgr_build.flows import top as flow
from dgr_build.route.watch import Watch
from dgr_build.workspace import Workspace


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("top")(top)


def top(
    route: Annotated[
        str, typer.Argument(help="the addresses of the stages, HOST:PORT,HOST:PORT; or a recipe")
    ],
    at: Annotated[
        str, typer.Option(help="where the workers of the recipe are, from head to tail: HOST:PORT,HOST:PORT")
    ] = "",
    tls: Annotated[
        Path | None,
        typer.Option(
            help="speak mutual TLS with the certificates of this folder: dgr-build certs dev FOLDER"
        ),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="seconds between two looks")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="look twice, an interval apart, print, and end")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as --once, as JSON")] = False,
) -> None:
    """Show how the stages of a running route are doing, until it is interrupted.

    Load, tokens and bytes are those of the last interval. A recipe without --at stands for the workers that
    dgr-build run has started from this clone. A stage that does not answer is shown as such; with --once or
    --json the exit code is then 10.

    \b
    Examples:
      dgr-build top 127.0.0.1:7001,127.0.0.1:7002
      dgr-build top llama-tiny-2stage --at 10.0.0.5:7001,10.0.0.6:7002 --tls certs
      dgr-build top deepseek4-tiny-3stage --interval 0.5
      dgr-build top 127.0.0.1:7001,127.0.0.1:7002 --json
    """  # noqa: D301 - the escape keeps the lines of the examples apart
    given = names(at, "--at", "one address for each stage, from head to tail: --at HOST:PORT,HOST:PORT")
    addresses, client = flow.stages_of(Workspace.open(), route, given, tls)
    with Watch(addresses, tls=client) as watch:
        if once or as_json:
            _once(watch, interval, as_json=as_json)
            return
        with console.live_table(route, flow.COLUMNS) as show:
            while True:
                show([flow.row(look) for look in watch.look()])
                time.sleep(interval)


def _once(watch: Watch, interval: float, *, as_json: bool) -> None:
    watch.look()
    time.sleep(interval)
    looks = watch.look()
    if as_json:
        console.result_json([flow.to_json(look) for look in looks])
    else:
        console.table("", flow.COLUMNS, [flow.row(look) for look in looks])
    if any(look.problem for look in looks):
        raise typer.Exit(RouteError.exit_code)
