"""dgr-build patch: prove, apply, undo, show and write the patch stack."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from dgr_build import console
from dgr_build.documents.series import load_series
from dgr_build.patches import project
from dgr_build.workspace import Workspace

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the command group to the root application."""
    group = typer.Typer(no_args_is_help=True, help="The patch stack: prove, apply, undo, show, export.")
    group.command("verify")(verify)
    group.command("apply")(apply)
    group.command("reverse")(reverse)
    group.command("status")(status)
    group.command("show")(show)
    group.command("export")(export)
    app.add_typer(group, name="patch")


def verify(as_json: Json = False) -> None:
    """Apply the whole stack and reverse it again in memory, and compare the tree at each step.

    Nothing is written. Example: dgr-build patch verify --json
    """
    start = monotonic()
    proven = project.verify_project(Workspace.open())
    if as_json:
        console.result_json(asdict(proven) | {"seconds": round(monotonic() - start, 3)})
        return
    _steps(proven.base_tree, proven.applied)
    console.result(
        f"verified: {len(proven.applied)} patches, +{proven.added} -{proven.removed} lines in "
        f"{len(proven.files)} files; reversing gives {proven.base_tree}"
    )


def apply(
    checkout: Annotated[
        Path | None, typer.Option(help="Also publish the patched files in this folder, read-only.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove the stack, put the patched tree into the store and print its id.

    A second run finds everything there. Example: dgr-build patch apply --checkout /tmp/patched
    """
    patched = project.apply_project(Workspace.open(), publish_at=checkout)
    if as_json:
        console.result_json(asdict(patched))
        return
    _steps(patched.base_tree, patched.steps)
    console.result(f"patched tree {patched.tree}")
    if checkout is not None:
        console.result(f"published in {checkout}")


def reverse(as_json: Json = False) -> None:
    """Undo the stack in memory, last patch first, and print the tree after each step down to the base.

    Nothing is written: the base tree always stays in the store. Example: dgr-build patch reverse
    """
    proven = project.verify_project(Workspace.open())
    if as_json:
        console.result_json({"tree": proven.tree, "base_tree": proven.base_tree, "steps": proven.reversed})
        return
    _steps(proven.tree, proven.reversed)
    console.result(f"reversed to the base tree {proven.base_tree}")


def status(as_json: Json = False) -> None:
    """List the patches: what each is for, its size, the tree after it, and how it stands upstream.

    Reads the series only; `dgr-build patch verify` proves it. Example: dgr-build patch status
    """
    series = load_series(Workspace.open().series_file)
    if as_json:
        console.result_json(series.model_dump(mode="json"))
        return
    rows = [
        [e.file, e.purpose, f"+{e.added} -{e.removed}", str(len(e.files)), e.tree[:12], e.upstream]
        for e in series.patches
    ]
    console.table(
        f"on {series.base_commit} (tree {series.base_tree})",
        ["patch", "purpose", "lines", "files", "tree after it", "upstream"],
        rows,
    )
    files = {file.path for entry in series.patches for file in entry.files}
    console.result(
        f"{sum(e.added for e in series.patches)} of {series.limits.added} added lines, "
        f"{len(files)} of {series.limits.files} files used"
    )


def show(
    name: Annotated[str, typer.Argument(help="Its number, its file name, or some of its words.")],
    as_json: Json = False,
) -> None:
    """Print one patch. Example: dgr-build patch show 3."""
    ws = Workspace.open()
    entry = project.find(load_series(ws.series_file), name)
    path = ws.series_file.parent / entry.file
    if as_json:
        console.result_json(entry.model_dump(mode="json") | {"path": str(path)})
        return
    console.say(f"{path}\nupstream: {entry.upstream}\ntree after it: {entry.tree}\n")
    console.stream(path.read_bytes().decode(errors="replace"))


def export(
    source: Annotated[Path, typer.Option("--from", help="A git work tree with one commit a patch.")],
    base: Annotated[
        str | None, typer.Option(help="The commit in it that the stack stands on; the pin's by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write patches/ anew from the commits of a work tree, verified before it is published.

    The subject of a commit becomes the purpose of its patch, the last `Upstream-Status:` line of its message
    the upstream status. Example: dgr-build patch export --from ../llama.cpp --base v1
    """
    done = project.export_project(Workspace.open(), source, base)
    if as_json:
        console.result_json({"changed": done.changed, "removed": done.removed, "proof": asdict(done.proof)})
        return
    for name in done.changed:
        console.result(f"wrote    {name}")
    for name in done.removed:
        console.result(f"removed  {name}")
    console.result(
        f"{len(done.series.patches)} patches, +{done.proof.added} -{done.proof.removed} in "
        f"{len(done.proof.files)} files, patched tree {done.proof.tree}"
        + ("" if done.changed or done.removed else " (nothing changed)")
    )


def _steps(start: str, steps: tuple[tuple[str, str], ...]) -> None:
    width = max((len(name) for name, _ in steps), default=0)
    console.result(f"{'start':<{width}}  {start}")
    for name, tree in steps:
        console.result(f"{name:<{width}}  {tree}")
