"""`dgr-build certs`: certificates for trials of TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dgr_build import console
from dgr_build.route.dev_certificates import DAYS, make_dev_certificates

_HELP = """Make certificates for trials of TLS between workers and clients.

Example:

  dgr-build certs dev certs --host gpu1.example.org --host 10.0.0.5
"""


def register(app: typer.Typer) -> None:
    """Add the group to the application."""
    group = typer.Typer(help=_HELP, no_args_is_help=True)
    group.callback()(_group)
    group.command()(dev)
    app.add_typer(group, name="certs")


def _group() -> None:  # without it a group of one command is that command
    pass


def dev(
    folder: Annotated[Path, typer.Argument(help="The folder to make.", metavar="FOLDER")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of a machine with workers; may be repeated.", metavar="HOST"),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=365, help="How long they are valid.")] = DAYS,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as data.")] = False,
) -> None:
    """Make a throw-away authority with certificates for workers and a client. For trials only.

    Workers on this machine share worker.pem; each --host gets a worker-HOST.pem of its own. Keys are readable
    by you alone; that of the authority is thrown away. Nothing is overwritten.

    Example: dgr-build certs dev certs --host 10.0.0.5
    """
    made = make_dev_certificates(folder, host or [], days=days)
    facts = {
        "folder": str(made.folder),
        "valid_until": f"{made.until:%Y-%m-%dT%H:%M:%SZ}",
        "ca": "ca.pem",
        "client": "client.pem",
        "workers": made.workers,
    }
    if as_json:
        console.result_json(facts)
        return
    workers = {f"worker on {name or 'loopback'}": file for name, file in made.workers.items()}
    console.facts({**{key: value for key, value in facts.items() if key != "workers"}, **workers})
    console.say(f"these are for trials only, and valid for {days} days; keys lie beside them as NAME-key.pem")
    console.say(f"next: dgr-build run llama-tiny-2stage --tls {folder}")
