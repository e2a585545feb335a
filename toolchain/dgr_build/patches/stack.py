"""The whole stack: read it, prove that it applies and reverses, and put the patched tree into the store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.documents.base import digest
from dgr_build.errors import PatchError
from dgr_build.patches.apply import apply_patch
from dgr_build.patches.gate import check_limits, check_lines
from dgr_build.patches.model import Patch, invert
from dgr_build.patches.parse import parse_patch
from dgr_build.patches.trees import Overlay

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dulwich.object_store import BaseObjectStore

    from dgr_build.documents.series import PatchEntry, Series


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A stack that was proven: applied and reversed, every tree as recorded.

    `applied` and `reversed` hold (patch file, tree after the step) in the order of the steps.
    """

    base_tree: str
    tree: str
    applied: tuple[tuple[str, str], ...]
    reversed: tuple[tuple[str, str], ...]
    added: int
    removed: int
    files: tuple[str, ...]
    series_sha256: str


@dataclass(frozen=True, kw_only=True)
class PatchedTree:
    """The tree after the whole stack, with all its objects in the store.

    `steps` holds (patch file, tree after it) in order; `series_sha256` is the digest of the series document.
    """

    base_tree: str
    tree: str
    steps: tuple[tuple[str, str], ...]
    series_sha256: str


def read_patches(series: Series, folder: Path) -> tuple[Patch, ...]:
    """Read and parse the patches of a series and check them against what it records.

    Raises:
        PatchError: a file is missing, is not what the series recorded, or is malformed.
    """
    return tuple(_read(entry, folder) for entry in series.patches)


def verify(store: BaseObjectStore, series: Series, folder: Path) -> Verified:
    """Prove the stack: apply all, reverse all last in, first out, and compare the tree at each step.

    Nothing is written, neither to the store nor anywhere else.

    Args:
        store: holds the base tree.
        series: the declared stack.
        folder: where the patch files lie.

    Raises:
        PatchError: a patch is malformed, does not fit, leads to another tree, adds untidy lines, or the stack
            goes beyond its limits.
        ProofError: the store lacks objects of the base tree.
    """
    return _prove(Overlay(store), series, folder)


def apply_series(store: BaseObjectStore, base_tree: str, series: Series, folder: Path) -> PatchedTree:
    """Prove the stack as `verify` does, then write the objects of the patched tree to the store.

    Args:
        store: holds the base tree and takes the new objects.
        base_tree: the tree that was resolved and proven; it must be the one that the series stands on.
        series: the declared stack.
        folder: where the patch files lie.

    Raises:
        PatchError: as `verify`, or the series stands on another tree. The store is untouched then.
        ProofError: the store lacks objects of the base tree.
    """
    if base_tree != series.base_tree:
        raise PatchError(
            "the stack stands on another source",
            cause=f"the resolved tree is {base_tree}, series.toml names {series.base_tree}",
            remedy="dgr-build source show; the stack has to be moved to this source before it can be applied",
        )
    overlay = Overlay(store)
    proven = _prove(overlay, series, folder)
    overlay.flush()
    return PatchedTree(
        base_tree=proven.base_tree, tree=proven.tree, steps=proven.applied, series_sha256=proven.series_sha256
    )


def series_digest(series: Series) -> str:
    """Return the sha256 of the series document; it covers each patch file through its recorded sha256."""
    return digest(series.model_dump(mode="json"))


def _prove(overlay: Overlay, series: Series, folder: Path) -> Verified:
    patches = read_patches(series, folder)
    check_limits(series.limits, patches)
    applied = _apply_all(overlay, series, patches)
    undone = _reverse_all(overlay, series, patches)
    return Verified(
        base_tree=series.base_tree,
        tree=series.tree,
        applied=applied,
        reversed=undone,
        added=sum(patch.added for patch in patches),
        removed=sum(patch.removed for patch in patches),
        files=tuple(sorted({file.path.decode() for patch in patches for file in patch.files})),
        series_sha256=series_digest(series),
    )


def _read(entry: PatchEntry, folder: Path) -> Patch:
    path = folder / entry.file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PatchError(
            f"cannot read {path}", cause=error.strerror or str(error), remedy=f"git checkout -- {path}"
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != entry.sha256:
        crlf = b"\r\n" in data and hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest() == entry.sha256
        raise PatchError(
            f"{path} is not the file that series.toml records",
            cause="its line ends were rewritten to CR LF (autocrlf)"
            if crlf
            else f"its sha256 is {found}, recorded is {entry.sha256}",
            remedy=f"git checkout -- {path}, or after a wanted change: dgr-build patch export --from TREE",
        )
    patch = parse_patch(data, entry.file)
    is_now = [(f.path.decode(), f.before.decode(), f.after.decode()) for f in patch.files]
    recorded = [(f.path, f.before, f.after) for f in entry.files]
    counts = (patch.added, patch.removed) == (entry.added, entry.removed)
    if is_now != recorded or not counts:
        raise PatchError(
            f"{path} does not do what series.toml records for it",
            cause=f"files and blobs {is_now} +{patch.added} -{patch.removed}; recorded {recorded} "
            f"+{entry.added} -{entry.removed}",
            remedy="write both anew: dgr-build patch export --from THE-WORK-TREE",
        )
    return patch


def _apply_all(overlay: Overlay, series: Series, patches: Sequence[Patch]) -> tuple[tuple[str, str], ...]:
    tree = series.base_tree
    steps: list[tuple[str, str]] = []
    for entry, patch in zip(series.patches, patches, strict=True):
        tree = apply_patch(overlay, tree, patch)
        if tree != entry.tree:
            raise PatchError(
                f"{entry.file} leads to another tree than series.toml records",
                cause=f"expected {entry.tree}, the patch gives {tree}",
                remedy="write the series anew: dgr-build patch export --from THE-WORK-TREE",
            )
        check_lines(overlay, patch)
        steps.append((entry.file, tree))
    return tuple(steps)


def _reverse_all(overlay: Overlay, series: Series, patches: Sequence[Patch]) -> tuple[tuple[str, str], ...]:
    before = [series.base_tree, *(entry.tree for entry in series.patches)]
    tree = series.tree
    steps: list[tuple[str, str]] = []
    for position in range(len(patches) - 1, -1, -1):
        tree = apply_patch(overlay, tree, invert(patches[position]))
        if tree != before[position]:
            raise PatchError(
                f"{patches[position].name} does not reverse to the tree before it",
                cause=f"expected {before[position]}, reversing gives {tree}",
                remedy=f"dgr-build patch show {patches[position].name}",
            )
        steps.append((patches[position].name, tree))
    return tuple(steps)
