"""The id of a folder's files as git would name them, taken from the files themselves, committed or not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dulwich.objects import Blob, Tree

_LEFT_BEHIND = ("__pycache__", ".cache", ".git")
_EDITORS = ("~", ".swp", ".pyc", ".orig")


def tree_id(folder: Path) -> str:
    """Return the git tree id of a folder: its files, their names and whether they may be executed.

    Empty folders, caches and what editors leave behind do not count.
    """
    return _tree(folder).id.decode()


def _tree(folder: Path) -> Tree:
    tree = Tree()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in _LEFT_BEHIND or entry.name.endswith(_EDITORS):
                continue
            name = os.fsencode(entry.name)
            if entry.is_dir(follow_symlinks=False):
                inner = _tree(Path(entry.path))
                if len(inner):
                    tree.add(name, stat.S_IFDIR, inner.id)
            else:
                mode, blob = _leaf(Path(entry.path), entry.stat(follow_symlinks=False))
                tree.add(name, mode, blob.id)
    return tree


def _leaf(path: Path, status: os.stat_result) -> tuple[int, Blob]:
    if stat.S_ISLNK(status.st_mode):
        return stat.S_IFLNK, Blob.from_string(os.fsencode(path.readlink()))
    mode = 0o100755 if status.st_mode & stat.S_IXUSR else 0o100644
    return mode, Blob.from_string(path.read_bytes())
