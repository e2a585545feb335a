"""The stack of this project: its series on its pin, in its store."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from dgr_build.documents.base import load_toml
from dgr_build.documents.pin import load_pin
from dgr_build.documents.series import Series, load_series
from dgr_build.errors import UsageError
from dgr_build.patches.export import Exported, export
from dgr_build.patches.stack import PatchedTree, Verified, apply_series, verify
from dgr_build.source import checkout
from dgr_build.source.resolve import resolve
from dgr_build.source.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.series import PatchEntry
    from dgr_build.workspace import Workspace


def verify_project(ws: Workspace) -> Verified:
    """Resolve the pinned source and prove the stack on it; nothing of the stack is written.

    Raises:
        SourceUnavailableError, ProofError: the source cannot be had, or is not the pinned one.
        PatchError: the stack is not what it says.
    """
    series = load_series(ws.series_file)
    base = resolve(ws, load_pin(ws.pin_file))
    with closing(open_store(base.store)) as store:
        return verify(store, series, ws.series_file.parent)


def apply_project(ws: Workspace, *, publish_at: Path | None = None) -> PatchedTree:
    """Resolve the pinned source, prove the stack on it and put the patched tree into the store.

    Args:
        ws: the workspace.
        publish_at: also publish the patched files there, read-only.

    Raises:
        SourceUnavailableError, ProofError: the source cannot be had, or is not the pinned one.
        PatchError: the stack is not what it says; the store is untouched then.
    """
    series = load_series(ws.series_file)
    base = resolve(ws, load_pin(ws.pin_file))
    with closing(open_store(base.store)) as store:
        patched = apply_series(store, base.tree, series, ws.series_file.parent)
        if publish_at is not None:
            checkout.update(store, patched.tree, publish_at.absolute())
    return patched


def export_project(ws: Workspace, repository: Path, base: str | None) -> Exported:
    """Write the stack anew from the commits of a repository; the limits of the series stay.

    Args:
        ws: the workspace.
        repository: a git work tree or bare repository with one commit a patch.
        base: the commit in it that the stack stands on; the pin's when None.

    Raises:
        UsageError, PatchError, HostError: see `export`; nothing was published then.
    """
    pin = load_pin(ws.pin_file)
    limits = load_toml(ws.series_file, Series).limits if ws.series_file.exists() else None
    with ws.lock("patches"):
        return export(
            repository.absolute(),
            ws.series_file.parent,
            base=base or pin.commit,
            pinned=(pin.commit, pin.tree),
            limits=limits,
        )


def find(series: Series, name: str) -> PatchEntry:
    """Return the patch that a person means by a number, a file name, or the words of it.

    Raises:
        UsageError: none or several fit.
    """
    exact = [e for e in series.patches if name in {e.file, e.file.removesuffix(".patch")}]
    numbered = [e for e in series.patches if name.isdecimal() and int(e.file.split("-")[0]) == int(name)]
    found = exact or numbered or [e for e in series.patches if name.lower() in e.file]
    if len(found) != 1:
        names = ", ".join(e.file for e in found or series.patches)
        raise UsageError(
            f"{len(found) or 'no'} patches are called {name!r}",
            cause=f"{'those that fit' if found else 'there are'}: {names or 'none'}",
            remedy="dgr-build patch status lists them with their numbers",
        )
    return found[0]
