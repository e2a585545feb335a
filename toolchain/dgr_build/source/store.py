"""The object store: a bare git folder that real git can read too, filled by publishing whole packs."""

from __future__ import annotations

import filecmp
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.object_store import DiskObjectStore
from dulwich.objects import Blob, Commit, Tree
from dulwich.pack import PackData, UnpackedObject, iter_sha1, write_pack_data, write_pack_index

from dgr_build import console
from dgr_build.errors import ProofError
from dgr_build.source.names import SUBMODULE
from dgr_build.source.proof import read_object, read_tree
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dulwich.object_store import BaseObjectStore

_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
_LEVEL = 1  # zlib: a third of the time of the default for a tenth more bytes
_TRAILER = 20  # bytes of SHA-1 that end a pack and its index


@dataclass(frozen=True, kw_only=True)
class PackFiles:
    """A pack and its index, by name (without suffix), size and the checksum at their ends."""

    name: str
    pack_size: int
    pack_end: str
    index_size: int
    index_end: str

    def are_in(self, objects: Path) -> bool:
        """Say whether an objects folder holds both files, by size and checksum at the end."""
        try:
            return self == pack_files(objects, self.name)
        except OSError:
            return False


class _Store(DiskObjectStore):
    def close(self) -> None:
        # An error on its way up still holds views of the pack; closing must not take its place.
        with suppress(BufferError):
            super().close()


def open_store(path: Path) -> DiskObjectStore:
    """Open the object store that lies in a bare git folder; close it after use."""
    return _Store(str(path / "objects"))


@contextmanager
def opened(objects: Path) -> Iterator[DiskObjectStore]:
    """Open an objects folder for a while."""
    store = _Store(str(objects))
    try:
        yield store
    finally:
        store.close()


def lay_out(path: Path) -> None:
    """Make an empty bare git folder, or complete one that a killed run left unfinished."""
    for folder in ("objects/pack", "refs/heads"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    for name, content in (("config", _CONFIG), ("HEAD", b"ref: refs/heads/main\n")):
        if not (path / name).exists():
            write_atomic(path / name, content)


def copy_tree(source: BaseObjectStore, tree: str, commit: bytes | None, objects: Path) -> PackFiles:
    """Copy what a tree reaches, and the raw commit, into one new pack; nothing else comes along.

    Each object is read, hashed and packed anew, so neither the index nor the deltas of the source matter.

    Args:
        source: any object store, trusted or not.
        tree: the id of the tree.
        commit: the content of the commit object, when it is known.
        objects: the folder to write to; its `pack` folder is made.

    Raises:
        ProofError: an object is missing or damaged.
    """
    trees, blobs = _reachable(source, tree.encode())
    count = len(trees) + len(blobs) + (commit is not None)
    folder = objects / "pack"
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / "half"
    with half.open("wb") as file, console.progress("copying objects", count, unit="objects") as task:

        def records() -> Iterator[UnpackedObject]:
            if commit is not None:
                yield _record(Commit.type_num, commit)
                task.advance(1)
            for kind, ids in ((Tree, trees), (Blob, blobs)):
                for object_id, path in ids.items():
                    yield _record(kind.type_num, read_object(source, object_id, kind, path))
                    task.advance(1)

        entries, checksum = write_pack_data(
            file.write, records(), DEFAULT_OBJECT_FORMAT, num_records=count, compression_level=_LEVEL
        )
        file.flush()
        os.fsync(file.fileno())
    return _finish(half, [(k, *v) for k, v in entries.items()], checksum)


def _record(type_num: int, content: bytes) -> UnpackedObject:
    return UnpackedObject(type_num, decomp_chunks=[content])


def _reachable(store: BaseObjectStore, root: bytes) -> tuple[dict[bytes, str], dict[bytes, str]]:
    """Return trees and blobs by id, each with one path it is known by; submodules are left to the proof."""
    trees, blobs, todo = {root: "root folder"}, dict[bytes, str](), [(root, "")]
    while todo:
        here, path = todo.pop()
        for name, mode, object_id in read_tree(store, here, path or "root folder"):
            at = path + name.decode(errors="backslashreplace")
            if stat.S_ISDIR(mode):
                if object_id not in trees:
                    trees[object_id] = at
                    todo.append((object_id, at + "/"))
            elif stat.S_IFMT(mode) != SUBMODULE:
                blobs.setdefault(object_id, at)
    return trees, blobs


def index_pack(pack: Path) -> None:
    """Write the index of a pack from its content, so that no foreign index is ever believed.

    The pack gets the name of its content.

    Raises:
        ProofError: the pack is damaged, or needs objects that it does not carry.
    """
    try:
        with (
            pack.open("rb") as file,
            PackData(str(pack), object_format=DEFAULT_OBJECT_FORMAT, file=file) as data,
        ):
            data.check()
            entries, checksum = data.sorted_entries(), data.get_stored_checksum()
    except Exception as error:  # what a damaged pack raises is not foreseeable
        raise ProofError(
            f"{pack.name} is no complete git pack", cause=f"{type(error).__name__}: {error}"
        ) from error
    _finish(pack, entries, checksum)


def _finish(pack: Path, entries: Iterable[tuple[bytes, int, int | None]], checksum: bytes) -> PackFiles:
    listing = sorted(entries)
    name = "pack-" + iter_sha1(entry[0] for entry in listing).decode()
    index = pack.with_name(name + ".idx")
    with index.open("wb") as file:
        write_pack_index(file, listing, checksum)
        file.flush()
        os.fsync(file.fileno())
    final = pack.replace(pack.with_name(name + ".pack"))
    for file_path in (index, final):
        file_path.chmod(0o444)
    return pack_files(pack.parent.parent, name)


def pack_files(objects: Path, name: str) -> PackFiles:
    """Describe a pack of an objects folder.

    Raises:
        OSError: it is not there.
    """
    pack, index = (objects / "pack" / (name + suffix) for suffix in (".pack", ".idx"))
    return PackFiles(
        name=name,
        pack_size=pack.stat().st_size,
        pack_end=_end(pack),
        index_size=index.stat().st_size,
        index_end=_end(index),
    )


def _end(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TRAILER))
        return file.read().hex()


def publish_pack(files: PackFiles, staged: Path, store: Path) -> None:
    """Move a finished pack into the store: the pack first, since git looks for packs by their index."""
    for suffix in (".pack", ".idx"):
        new, there = (folder / "pack" / (files.name + suffix) for folder in (staged, store / "objects"))
        if not (there.exists() and filecmp.cmp(new, there, shallow=False)):  # others may be reading it
            new.replace(there)


def name_commit(store: Path, commit: str) -> None:
    """Let real git see a commit: as a ref that keeps its objects, and as one whose parents are elsewhere."""
    shallow = store / "shallow"
    known = shallow.read_text().split() if shallow.exists() else []
    if commit not in known:
        write_atomic(shallow, "".join(f"{line}\n" for line in sorted({*known, commit})).encode())
    write_atomic(store / "refs" / "pins" / commit, f"{commit}\n".encode())
