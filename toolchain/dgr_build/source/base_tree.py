"""The pinned source in the store: what is known of it, and proving it again."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dulwich.objects import Commit, ObjectID, Tree

from dgr_build import console
from dgr_build.errors import ProofError, SourceUnavailableError
from dgr_build.source import record as records
from dgr_build.source.proof import TreeProof, check_commit, prove_tree, read_object
from dgr_build.source.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from dulwich.object_store import BaseObjectStore

    from dgr_build.documents.pin import Pin
    from dgr_build.source.record import ProofRecord
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class BaseTree:
    """The pinned source, proven and in the store.

    Attributes:
        commit: full id; only stated, not proven, when `proof` is "tree".
        tree: full id of the proven tree.
        content_sha256: the digest of the whole tree, see `proof.prove_tree`.
        build: upstream's build number.
        version: upstream's version.
        proof: "full" from the commit down, or "tree" where no commit object could be had.
        provider: where the objects came from.
        override: the source was named on the command line, not by the manifest.
        attempts: providers that were tried before, each with the reason why it did not do.
        ancestry: whether the source's commits showed the descent from the lineage's merge.
        remarks: what a person should know about the source.
        files: number of files.
        size: bytes of all distinct contents.
        store: the bare git folder with the objects.
    """

    commit: str
    tree: str
    content_sha256: str
    build: int
    version: str
    proof: Literal["full", "tree"]
    provider: str
    override: bool
    attempts: tuple[tuple[str, str], ...]
    ancestry: Literal["stated", "proven"]
    remarks: tuple[str, ...]
    files: int
    size: int
    store: Path


def recorded(ws: Workspace, pin: Pin, *, allow_tree_proof: bool = False) -> BaseTree | None:
    """Return the source when an earlier proof of it stands, by a quick look; None when it does not.

    Looked at: that the record speaks of this pin, that the pack it speaks of is in the store unchanged in
    size and checksum, and that commit and root folder can be read. `verify` looks at everything.
    """
    known = records.read(ws.store, pin.tree)
    if known is None or known.commit != pin.commit or known.tree != pin.tree:
        return None
    if known.content_sha256 != (pin.content_sha256 or known.content_sha256):
        return None
    if known.proof == "tree" and not allow_tree_proof:
        return None
    if not known.pack.are_in(ws.store / "objects"):
        return None
    with suppress(ProofError), closing(open_store(ws.store)) as store:
        read_object(store, pin.tree.encode(), Tree, "root folder")
        if known.proof == "full":
            read_object(store, pin.commit.encode(), Commit, "commit")
        return base_tree_of(ws, pin, known)
    return None


def verify(ws: Workspace, pin: Pin) -> BaseTree:
    """Prove the source in the store anew, every object of it; forget its record when it does not hold.

    Raises:
        SourceUnavailableError: it was not obtained yet.
        ProofError: something is missing or damaged; the next `resolve` obtains it anew.
    """
    known = records.read(ws.store, pin.tree)
    if known is None:
        raise SourceUnavailableError(
            f"tree {pin.tree} is not in {ws.store}", remedy="dgr-build source resolve obtains it"
        )
    try:
        _prove_again(ws, pin, known)
    except ProofError:
        records.forget(ws.store, pin.tree)
        raise
    return base_tree_of(ws, pin, known)


def _prove_again(ws: Workspace, pin: Pin, known: ProofRecord) -> None:
    stated = stated_commit(pin)
    with closing(open_store(ws.store)) as store:
        if known.proof == "full":
            content = read_object(store, pin.commit.encode(), Commit, "commit")
            check_commit(content, pin.commit, pin.tree, "the store's commit object")
            if stated not in {None, content}:
                raise ProofError("the store's commit object is not the manifest's")
        proven = prove_content(store, pin)
    if proven.content_sha256 != known.content_sha256:
        raise ProofError(
            f"the content of tree {pin.tree} is not what was recorded",
            cause=f"its SHA-256 is {proven.content_sha256}, {known.content_sha256} was recorded",
            remedy="dgr-build source resolve obtains it anew",
        )


def base_tree_of(ws: Workspace, pin: Pin, known: ProofRecord) -> BaseTree:
    """Return the source that a record speaks of."""
    return BaseTree(
        commit=known.commit,
        tree=known.tree,
        content_sha256=known.content_sha256,
        build=pin.build,
        version=pin.version,
        proof=known.proof,
        provider=known.provider,
        override=known.override,
        attempts=known.attempts,
        ancestry=known.ancestry,
        remarks=known.remarks,
        files=known.files,
        size=known.size,
        store=ws.store,
    )


def stated_commit(pin: Pin) -> bytes | None:
    """Return the raw commit object that lies beside the manifest.

    Raises:
        ProofError: it is not the pinned commit, or does not name the pinned tree.
    """
    if pin.commit_object is None:
        return None
    path = pin.folder / pin.commit_object
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProofError(
            f"{path} cannot be read", cause=error.strerror or str(error), remedy=f"git checkout -- {path}"
        ) from error
    check_commit(content, pin.commit, pin.tree, str(path))
    return content


def is_damaged(ws: Workspace, pin: Pin) -> bool:
    """Say whether the store holds the pinned tree, but not as it should."""
    if not (ws.store / "objects").is_dir():
        return False
    with closing(open_store(ws.store)) as store:
        try:
            if ObjectID(pin.tree.encode()) not in store:
                return False
            prove_tree(store, pin.tree)
        except ProofError as error:
            console.warn(f"{error.message}: {error.cause}")
            return True
        except Exception as error:  # noqa: BLE001 - a damaged index raises whatever it likes
            console.warn(f"the object store cannot be read: {error}")
            return True
    return False


def prove_content(store: BaseObjectStore, pin: Pin) -> TreeProof:
    """Prove the pinned tree in a store, and that its content is the pinned one.

    Raises:
        ProofError: see `prove_tree`; or the content's digest differs.
    """
    with console.progress("proving every object", None, unit="objects") as task:
        proven = prove_tree(store, pin.tree, lambda _: task.advance(1))
    if proven.content_sha256 != (pin.content_sha256 or proven.content_sha256):
        raise ProofError(
            f"the content of tree {pin.tree} is not the pinned one, although every SHA-1 fits",
            cause=f"its SHA-256 is {proven.content_sha256}, {pin.content_sha256} is pinned",
            remedy="correct content_sha256 in the manifest, or distrust this source",
        )
    return proven
