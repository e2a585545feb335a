"""Writing a tree out as a read-only folder, file by file: what did not change keeps its time stamp.

Build tools compare time stamps, so an edited patch rebuilds only what it touches. What was written is
remembered in a stamp beside the folder, so that a second run only looks, and one that was killed is mended.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dulwich.objects import Blob
from pydantic import Field

from dgr_build import console, workspace
from dgr_build.documents.base import Document, Sha1, load_json, save_json
from dgr_build.errors import HostError, ProofError, UsageError
from dgr_build.source.names import EXECUTABLE, why_unsafe
from dgr_build.source.proof import object_name, read_object, read_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dulwich.object_store import BaseObjectStore

_FOLDER, _OPEN_FOLDER = 0o555, 0o755
_NO_TREE = "0" * 40
_NAMED = 5  # stray files that are named before the rest is only counted

Seen = tuple[str, int, int, int, int]
"""Blob id, mode, size, and the two time stamps (ns) that any change of content or mode changes."""


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """A tree to write out: its files by path, each with mode and blob id."""

    tree: str
    files: Mapping[str, tuple[int, bytes]]


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A published folder: how many files were written, removed, and left as they were."""

    tree: str
    path: Path
    written: int
    removed: int
    kept: int


class Stamp(Document):
    """What was last written to a folder; `complete` is False while it is being changed."""

    tree: Sha1
    complete: bool
    files: dict[str, Seen] = Field(default_factory=dict)


def stamp_of(dest: Path) -> Path:
    """Return where the stamp of a folder lies: hidden beside it, never in it."""
    return dest.parent / f".{dest.name}.json"


def update(store: BaseObjectStore, tree_id: str, dest: Path) -> Checkout:
    """Make a folder hold exactly a tree, read-only, changing only the files that differ.

    Folders are 0555, files 0444 or 0555. A new folder appears at once, by rename. What somebody changed or
    added is put right or removed, with a warning.

    Args:
        store: holds the tree; each object is hashed before it is written.
        tree_id: the id of the tree.
        dest: the folder.

    Raises:
        ProofError: the store lacks an object, or it is damaged or unsafe to write.
        UsageError: the folder exists and was not made here.
        HostError: it cannot be written.
    """
    dest = Path(os.path.abspath(dest))  # noqa: PTH100 - resolve() would follow a link that is refused below
    if not dest.name or (_read_stamp(dest) is None and _is_foreign(dest)):
        raise UsageError(
            f"{dest} exists and is not a checkout made by this tool",
            cause="its files would be replaced",
            remedy=f"name a folder that does not exist yet, or remove {dest}",
        )
    try:
        with workspace.lock_file(dest.parent / f".{dest.name}.lock", f"the checkout {dest}"):
            for name in (f"{dest.name}-", f"{stamp_of(dest).name}-"):
                workspace.sweep(dest.parent, name)
            stamp = _read_stamp(dest)
            want = _wanted(store, tree_id, stamp)
            if not dest.exists() or not any(dest.iterdir()):
                return _create(store, want, dest)
            return _change(store, want, dest, stamp)
    except OSError as error:
        raise HostError(
            f"the checkout {dest} cannot be written",
            cause=str(error),
            remedy="free some space and check who may write there",
        ) from error


def _wanted(store: BaseObjectStore, tree_id: str, stamp: Stamp | None) -> _Wanted:
    """Return what a folder must hold; a stamp of the same tree knows it already."""
    if stamp and stamp.complete and stamp.tree == tree_id:
        return _Wanted(
            tree=tree_id, files={p: (seen[1], seen[0].encode()) for p, seen in stamp.files.items()}
        )
    return _Wanted(tree=tree_id, files=dict(_files(store, tree_id)))


def _files(store: BaseObjectStore, tree_id: str) -> Iterator[tuple[str, tuple[int, bytes]]]:
    """Yield path, mode and blob id of each file."""
    todo = [("", tree_id.encode())]
    while todo:
        path, here = todo.pop()
        for name, mode, object_id in read_tree(store, here, path or "root folder"):
            why = why_unsafe(name, mode)
            if why:
                raise ProofError(f"{path}{name.decode(errors='backslashreplace')} is not written", cause=why)
            if stat.S_ISDIR(mode):
                todo.append((f"{path}{name.decode()}/", object_id))
            else:
                yield path + name.decode(), (mode, object_id)


def _read_stamp(dest: Path) -> Stamp | None:
    """Return the stamp of a folder; one that cannot be read still says that the folder is ours."""
    if not stamp_of(dest).exists():
        return None
    try:
        return load_json(stamp_of(dest), Stamp)
    except UsageError:
        return Stamp(tree=_NO_TREE, complete=False)


def _is_foreign(dest: Path) -> bool:
    if dest.is_symlink() or (dest.exists() and not dest.is_dir()):
        return True
    return dest.is_dir() and any(dest.iterdir())


def _create(store: BaseObjectStore, want: _Wanted, dest: Path) -> Checkout:
    with workspace.staging(dest.parent, dest.name) as staged:
        folder = staged / "tree"
        folder.mkdir()
        with console.progress(f"writing {dest.name}", len(want.files), unit="files") as task:
            for path, (mode, blob) in want.files.items():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                _write(store, blob, mode, path, target)
                task.advance(1)
        # The folder becomes ours before it is there: without a stamp it would be taken for somebody else's.
        save_json(stamp_of(dest), Stamp(tree=want.tree, complete=False))
        workspace.publish(folder, dest)
    _finish(dest, want)
    return Checkout(tree=want.tree, path=dest, written=len(want.files), removed=0, kept=0)


def _change(store: BaseObjectStore, want: _Wanted, dest: Path, stamp: Stamp | None) -> Checkout:
    known = stamp.files if stamp else {}
    files, folders = _scan(dest)
    stale = [
        p
        for p, (mode, blob) in want.files.items()
        if p not in files or known.get(p) != _seen(files[p], mode, blob)
    ]
    strays = [p for p in files if p not in want.files]
    wanted_folders = _folders_of(want.files)
    stray_folders = [p for p in folders if p not in wanted_folders]
    if stamp and stamp.complete and stamp.tree == want.tree:
        if not stale and not strays and not stray_folders:
            _close_folders(dest, folders)
            return Checkout(tree=want.tree, path=dest, written=0, removed=0, kept=len(want.files))
        _warn_of_changes(dest, [*stale, *strays, *stray_folders])
    save_json(stamp_of(dest), Stamp(tree=want.tree, complete=False, files=known))
    for path in folders:
        (dest / path).chmod(_OPEN_FOLDER)
    for path in strays:
        (dest / path).unlink()
    for path in sorted(stray_folders, reverse=True):  # what lies deeper sorts later
        (dest / path).rmdir()
    written = 0
    with (
        workspace.staging(dest.parent, dest.name) as staged,
        console.progress(f"updating {dest.name}", len(stale), unit="files") as task,
    ):
        for path in stale:
            written += _put(store, path, want.files[path], dest, staged / "file")
            task.advance(1)
    _finish(dest, want)
    return Checkout(
        tree=want.tree, path=dest, written=written, removed=len(strays), kept=len(want.files) - written
    )


def _folders_of(files: Iterable[str]) -> set[str]:
    """Return every folder that files lie in, the root as "."."""
    folders = {"."}
    for path in files:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def _put(store: BaseObjectStore, path: str, entry: tuple[int, bytes], dest: Path, spare: Path) -> bool:
    """Make a file hold a blob; say whether its content had to be written."""
    mode, blob = entry
    target = dest / path
    if target.exists() and object_name(b"blob", target.read_bytes()) == blob:
        if stat.S_IMODE(target.stat().st_mode) != _permissions(mode):
            target.chmod(_permissions(mode))
        return False
    _write(store, blob, mode, path, spare)
    target.parent.mkdir(parents=True, exist_ok=True)
    spare.replace(target)
    return True


def _write(store: BaseObjectStore, blob: bytes, mode: int, path: str, target: Path) -> None:
    target.write_bytes(read_object(store, blob, Blob, path))
    target.chmod(_permissions(mode))


def _permissions(mode: int) -> int:
    return 0o555 if mode == EXECUTABLE else 0o444


def _scan(dest: Path) -> tuple[dict[str, os.stat_result], dict[str, int]]:
    """Return by path what lies in a folder: all that is no folder, and the folders with their modes."""
    files: dict[str, os.stat_result] = {}
    folders = {".": stat.S_IMODE(dest.stat().st_mode)}
    todo = [""]
    while todo:
        below = todo.pop()
        with os.scandir(dest / below) as entries:
            for entry in entries:
                path = below + entry.name
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders[path] = stat.S_IMODE(status.st_mode)
                    todo.append(path + "/")
                else:
                    files[path] = status
    return files, folders


def _seen(status: os.stat_result, mode: int, blob: bytes) -> Seen | None:
    """Return what the stamp says of a file that is as it should be; None when it plainly is not."""
    if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != _permissions(mode):
        return None
    return blob.decode(), mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _finish(dest: Path, want: _Wanted) -> None:
    files, folders = _scan(dest)
    _close_folders(dest, folders)
    seen = {p: _seen(files[p], mode, blob) for p, (mode, blob) in want.files.items() if p in files}
    kept = {p: one for p, one in seen.items() if one is not None}
    if len(kept) != len(want.files):
        raise HostError(
            f"{dest} was changed by somebody while it was written", remedy="run the same command again"
        )
    save_json(stamp_of(dest), Stamp(tree=want.tree, complete=True, files=kept))


def _close_folders(dest: Path, folders: Mapping[str, int]) -> None:
    for path, mode in folders.items():
        if mode != _FOLDER:
            (dest / path).chmod(_FOLDER)


def _warn_of_changes(dest: Path, paths: list[str]) -> None:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    console.warn(f"{dest} was changed by somebody; put right: {', '.join(paths[:_NAMED])}{more}")
