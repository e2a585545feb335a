"""Reading and changing git trees on objects, touching only the folders on the way to a path."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dulwich.file import FileLocked
from dulwich.object_store import BaseObjectStore, MemoryObjectStore, OverlayObjectStore
from dulwich.objects import Blob, ObjectID, ShaFile, Tree

from dgr_build.errors import ProofError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCK_PATIENCE_S = 2.0  # a living writer holds the lock of one object for milliseconds

Entry = tuple[int, bytes]
"""The mode and the id of what a path names."""


class Overlay:
    """An object store with a layer above it: what is written stays in memory until `flush`."""

    def __init__(self, store: BaseObjectStore) -> None:
        self._store = store
        self._new = MemoryObjectStore()
        self._order: list[bytes] = []
        self._both = OverlayObjectStore([self._new, store], add_store=self._new)

    def tree(self, tree_id: bytes) -> Tree:
        """Return a tree; changing it changes nothing else.

        Raises:
            ProofError: the store lacks it.
        """
        found = self._get(tree_id)
        if not isinstance(found, Tree):
            raise ProofError(
                f"object {tree_id.decode()} is a {found.type_name.decode()}, a tree was expected"
            )
        return found

    def blob(self, blob_id: bytes) -> bytes:
        """Return the content of a blob.

        Raises:
            ProofError: the store lacks it.
        """
        found = self._get(blob_id)
        if not isinstance(found, Blob):
            raise ProofError(
                f"object {blob_id.decode()} is a {found.type_name.decode()}, a blob was expected"
            )
        return found.data

    def _get(self, object_id: bytes) -> ShaFile:
        try:
            return self._both[ObjectID(object_id)]
        except KeyError as error:
            raise ProofError(
                f"the object store lacks {object_id.decode()}",
                cause="the source is not complete",
                remedy="dgr-build source resolve",
            ) from error

    def add(self, new: Blob | Tree) -> bytes:
        """Keep a new object in the layer and return its id."""
        if new.id not in self._new and new.id not in self._store:
            self._new.add_object(new)
            self._order.append(new.id)
        return new.id

    def flush(self) -> int:
        """Write the layer to the store, parts before wholes, and return the number of objects.

        A crash in between leaves objects that nothing names; a tree is never there without what it names.
        """
        for object_id in self._order:
            _write(self._store, self._new[ObjectID(object_id)])
        written = len(self._order)
        self._order.clear()
        return written


def _write(store: BaseObjectStore, new: ShaFile) -> None:
    """Write one object, past the lock file that a killed process may have left beside its place."""
    give_up = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            store.add_object(new)
        except FileLocked as locked:
            if time.monotonic() < give_up:
                time.sleep(0.05)
                continue
            Path(os.fsdecode(locked.lockfilename)).unlink(missing_ok=True)
        else:
            return


def lookup(store: Overlay, tree_id: bytes, path: bytes) -> Entry | None:
    """Return what a path names in a tree, or None when nothing is there."""
    *folders, name = path.split(b"/")
    tree = store.tree(tree_id)
    for folder in folders:
        there = _at(tree, folder)
        if there is None or not stat.S_ISDIR(there[0]):
            return None
        tree = store.tree(there[1])
    return _at(tree, name)


def _at(tree: Tree, name: bytes) -> Entry | None:
    try:
        mode, object_id = tree[name]
    except KeyError:
        return None
    return mode, object_id


def edit(store: Overlay, tree_id: bytes | None, changes: Mapping[bytes, Entry | None]) -> bytes | None:
    """Return the id of the tree with files put at paths, or removed where the entry is None.

    Folders come and go with their files, as git does it. A file may take the place of a folder, or a folder
    that of a file, when the same changes remove what was there.

    Returns:
        The new tree's id, or None when nothing is left in it.

    Raises:
        FileExistsError: a file would land on a folder that keeps files, or below a file that stays.
    """
    tree = Tree() if tree_id is None else store.tree(tree_id)
    below: dict[bytes, dict[bytes, Entry | None]] = {}
    puts: dict[bytes, Entry] = {}
    for path, entry in changes.items():
        name, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(name, {})[rest] = entry
        elif entry is None:
            del tree[name]
        else:
            puts[name] = entry
    for name, inner in below.items():
        there = _at(tree, name)
        if there is not None and not stat.S_ISDIR(there[0]):
            raise FileExistsError(name.decode())
        left = edit(store, there[1] if there else None, inner)
        if left is not None:
            tree[name] = (stat.S_IFDIR, ObjectID(left))
        elif there is not None:
            del tree[name]
    for name, (mode, blob_id) in puts.items():
        if name in tree and stat.S_ISDIR(tree[name][0]):
            raise FileExistsError(name.decode())
        tree[name] = (mode, ObjectID(blob_id))
    return store.add(tree) if len(tree) else None
