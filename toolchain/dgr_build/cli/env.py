"""`dgr-build env`: the environments that lanes are built in."""

from __future__ import annotations

from typing import Annotated

import typer

from dgr_build import console
from dgr_build.documents.matrix import load_matrix
from dgr_build.lanes.environment import manage, state
from dgr_build.workspace import Workspace

_HELP = """Make, show, lock and remove the environments that lanes are built in.

An environment is this machine (host), a Debian root (sysroot) or a toolkit of wheels. Roots and toolkits are
made from a lock in lanes/locks that names every file with its SHA-256; `dgr-build lane NAME` makes what it
needs by itself, once.

Examples:

  dgr-build env show

  dgr-build env create trixie

  dgr-build env lock trixie      (take the suite's packages of today; then read the change and commit it)
"""
_Name = Annotated[str, typer.Argument(help="An environment of lanes/matrix.toml.", metavar="NAME")]
_Json = Annotated[bool, typer.Option("--json", help="Print the result as data.")]


def register(app: typer.Typer) -> None:
    """Add the group to the application."""
    group = typer.Typer(help=_HELP, no_args_is_help=True)
    for command in (create, show, lock, remove):
        group.command()(command)
    app.add_typer(group, name="env")


def create(name: _Name, *, as_json: _Json = False) -> None:
    """Make an environment from its lock, unless it is there.

    Example: dgr-build env create trixie
    """
    ws = Workspace.open()
    made = manage.create(ws, load_matrix(ws.matrix_file), name)
    facts = {"environment": made.name, "kind": made.kind, "digest": made.digest, "folder": made.root}
    _print({key: str(value) for key, value in facts.items() if value is not None}, as_json=as_json)


def show(
    name: Annotated[
        str | None, typer.Argument(help="An environment; without it, all of them.", metavar="NAME")
    ] = None,
    *,
    files: Annotated[bool, typer.Option("--files", help="List every file of the lock too.")] = False,
    as_json: _Json = False,
) -> None:
    """Show what environments are made of, and what there is of them here.

    As JSON, one that is named is an object, and all of them are a list.

    Example: dgr-build env show trixie --files
    """
    ws = Workspace.open()
    found = [one.to_json(files=files) for one in state.states(ws, load_matrix(ws.matrix_file), name)]
    if as_json:
        console.result_json(found if name is None else found[0])
        return
    columns = ("environment", "kind", "state", "files", "download_bytes", "folder")
    rows = [["" if one[key] is None else str(one[key]) for key in columns] for one in found]
    console.table("environments", [column.replace("_", " ") for column in columns], rows)
    for one in found:
        for file in one.get("locked", ()):
            console.result(
                f"{file['package']} {file['version']} {file['file']} {file['size']} {file['sha256']}"
            )


def lock(name: _Name, *, as_json: _Json = False) -> None:
    """Resolve an environment anew and write its lock; says what changed.

    Example: dgr-build env lock trixie
    """
    ws = Workspace.open()
    before, now = manage.renew_lock(ws, load_matrix(ws.matrix_file), name)
    changes = state.changes(before, now)
    if as_json:
        console.result_json({"environment": name, "digest": now.digest, "changes": list(changes)})
        return
    for change in changes:
        console.result(change)
    _print({"environment": name, "digest": now.digest, "lock": str(ws.environment_lock(name))}, as_json=False)


def remove(name: _Name, *, as_json: _Json = False) -> None:
    """Remove what was made of an environment; its lock and its downloads stay.

    Example: dgr-build env remove trixie
    """
    ws = Workspace.open()
    gone = manage.remove_made(ws, load_matrix(ws.matrix_file), name)
    if as_json:
        console.result_json([str(folder) for folder in gone])
        return
    for folder in gone:
        console.result(f"removed {folder}")
    if not gone:
        console.say(f"nothing of environment {name} is here")


def _print(facts: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        console.result_json(facts)
    else:
        console.facts(facts)
