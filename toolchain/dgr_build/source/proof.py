"""The proof: that objects are what their ids say, down to the last file, and safe to write out."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dulwich.objects import Blob, Commit, ObjectID, Tree, parse_tree, serialize_tree

from dgr_build.errors import DgrError, ProofError
from dgr_build.source.names import collision, why_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dulwich.object_store import BaseObjectStore

_REMEDY = "dgr-build source resolve obtains it anew; --repository DIR or --bundle FILE names another source"
_MAX_DEPTH = 64
_MAX_FILES = 200_000  # a tree that names one folder again and again is small and yet endless on disk
_TYPES = {Blob: b"blob", Tree: b"tree", Commit: b"commit"}

Entry = tuple[bytes, int, ObjectID]
"""Name, mode and object id (hex) of what a tree holds."""


@dataclass(frozen=True, kw_only=True)
class TreeProof:
    """A tree of which every object was read, hashed to its name and found safe.

    `trees`, `blobs` and `size` (bytes) count each object once; `files` counts paths.
    """

    tree: str
    content_sha256: str
    trees: int
    blobs: int
    files: int
    size: int


def read_object(store: BaseObjectStore, object_id: bytes, kind: type[Blob | Tree | Commit], at: str) -> bytes:
    """Return the content of an object, hashed to its name.

    Args:
        store: any object store, trusted or not.
        object_id: the id in hex.
        kind: what it must be.
        at: the path or word by which a person knows it, for the error.

    Raises:
        ProofError: it is missing, unreadable, of another kind, or hashes to another name.
    """
    name = object_id.decode()
    try:
        number, content = store.get_raw(ObjectID(object_id))
    except KeyError as error:
        raise ProofError(
            f"{at}: object {name} is missing", cause="the source is not complete", remedy=_REMEDY
        ) from error
    except DgrError:
        raise
    except Exception as error:  # what a damaged pack raises is not foreseeable: assertions, zlib, struct
        raise ProofError(
            f"{at}: object {name} cannot be read", cause=f"{type(error).__name__}: {error}", remedy=_REMEDY
        ) from error
    if number != kind.type_num:
        raise ProofError(f"{at}: object {name} is no {_TYPES[kind].decode()}", remedy=_REMEDY)
    actual = object_name(_TYPES[kind], content)
    if actual != object_id:
        raise ProofError(
            f"{at}: object {name} is damaged",
            cause=f"its content hashes to {actual.decode()}",
            remedy=_REMEDY,
        )
    return content


def object_name(kind: bytes, content: bytes) -> bytes:
    """Return the id (hex) that git gives to an object."""
    header = b"%s %d\0" % (kind, len(content))
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest().encode()


def read_tree(store: BaseObjectStore, tree_id: bytes, at: str) -> list[Entry]:
    """Return the entries of a tree; that they are safe is `prove_tree`'s business.

    Raises:
        ProofError: see `read_object`; or it does not parse, or is not written the way git writes it.
    """
    content = read_object(store, tree_id, Tree, at)
    try:
        entries: list[Entry] = [
            (name, mode, ObjectID(object_id))
            for name, mode, object_id in parse_tree(content, 20, strict=True)
        ]
        plain = b"".join(serialize_tree(entries)) == content
    except Exception as error:
        raise ProofError(f"{at}: tree {tree_id.decode()} is malformed", cause=str(error)) from error
    if not plain:
        raise ProofError(f"{at}: tree {tree_id.decode()} is not written the way git writes it")
    return entries


def prove_tree(
    store: BaseObjectStore, tree_id: str, on_blob: Callable[[int], None] | None = None
) -> TreeProof:
    """Prove a tree: everything reachable is present, hashes to its name, and is safe to write out.

    The content digest is the SHA-256 of, for every file in byte order of its path, the bytes
    `MODE SHA256 PATH NUL` with single spaces, where MODE is six octal digits and SHA256 is the hex digest of
    the file's content. So two sources agree on it whatever their packs look like.

    Args:
        store: any object store, trusted or not.
        tree_id: the id in hex.
        on_blob: told the size of each blob after it was checked.

    Raises:
        ProofError: something is missing, damaged or unsafe; path and object are named.
    """
    listing: list[tuple[bytes, int, bytes]] = []
    trees: set[bytes] = set()
    for path, entries, own_id in _walk(store, tree_id.encode()):
        trees.add(own_id)
        _check_entries(path, own_id, entries)
        listing += [(path + name, mode, blob) for name, mode, blob in entries if not stat.S_ISDIR(mode)]
        if len(listing) > _MAX_FILES:
            raise ProofError(f"tree {tree_id} holds more than {_MAX_FILES} files")
    digests: dict[bytes, bytes] = {}
    size = 0
    whole = hashlib.sha256()
    for path, mode, blob in sorted(listing):
        if blob not in digests:
            content = read_object(store, blob, Blob, _text(path))
            digests[blob] = hashlib.sha256(content).hexdigest().encode()
            size += len(content)
            if on_blob:
                on_blob(len(content))
        whole.update(b"%06o %s %s\0" % (mode, digests[blob], path))
    return TreeProof(
        tree=tree_id,
        content_sha256=whole.hexdigest(),
        trees=len(trees),
        blobs=len(digests),
        files=len(listing),
        size=size,
    )


def _walk(store: BaseObjectStore, root: bytes) -> Iterator[tuple[bytes, list[Entry], bytes]]:
    """Yield each folder: its path with a slash at the end, its entries, its id."""
    known: dict[bytes, list[Entry]] = {}
    todo = [(b"", root, 0)]
    folders = 0
    while todo:
        path, tree_id, depth = todo.pop()
        folders += 1
        if depth > _MAX_DEPTH or folders > _MAX_FILES:
            raise ProofError(f"{_text(path)}: more than {_MAX_DEPTH} folders deep, or endless folders")
        if tree_id not in known:
            known[tree_id] = read_tree(store, tree_id, _text(path) or "root folder")
        entries = known[tree_id]
        yield path, entries, tree_id
        todo += [
            (path + name + b"/", inner, depth + 1) for name, mode, inner in entries if stat.S_ISDIR(mode)
        ]


def _check_entries(path: bytes, tree_id: bytes, entries: list[Entry]) -> None:
    for name, mode, _ in entries:
        why = why_unsafe(name, mode)
        if why:
            raise ProofError(f"{_text(path + name)}: unsafe entry in tree {tree_id.decode()}", cause=why)
    try:
        tree = Tree.from_string(b"".join(serialize_tree(entries)))
        tree.check()
    except Exception as error:
        raise ProofError(f"{_text(path)}: tree {tree_id.decode()} is malformed", cause=str(error)) from error
    both = collision(name for name, _, _ in entries)
    if both:
        raise ProofError(
            f"{_text(path + both[0])} and {_text(path + both[1])} collide",
            cause="a file system that ignores case or form keeps only one of them",
        )


def check_commit(content: bytes, commit: str, tree: str, at: str) -> None:
    """Check that a raw commit object is the pinned commit and names the pinned tree.

    Raises:
        ProofError: it is not, or does not.
    """
    actual = object_name(b"commit", content).decode()
    if actual != commit:
        raise ProofError(f"{at} is not commit {commit}", cause=f"its content hashes to {actual}")
    if not content.startswith(b"tree %s\n" % tree.encode()):
        raise ProofError(
            f"commit {commit} does not name tree {tree}",
            cause="its first line is: " + content.partition(b"\n")[0].decode(errors="replace"),
            remedy="correct commit and tree in the manifest: they must belong together",
        )


def descends(store: BaseObjectStore, commit: str, ancestor: str) -> bool:
    """Say whether the commits present show that `commit` descends from `ancestor`.

    False means that they do not show it: a shallow source ends early.
    """
    todo, seen = [commit.encode()], set[bytes]()
    while todo:
        here = todo.pop()
        if here == ancestor.encode():
            return True
        if here in seen or ObjectID(here) not in store:
            continue
        seen.add(here)
        content = read_object(store, here, Commit, "history")
        header = content.partition(b"\n\n")[0].split(b"\n")
        todo += [line.removeprefix(b"parent ") for line in header if line.startswith(b"parent ")]
    return False


def _text(path: bytes) -> str:
    return path.decode(errors="backslashreplace")
