"""What is remembered about a proof, so that the next run need not repeat it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from dgr_build.documents.base import Document, Sha1, Sha256, load_json, save_json
from dgr_build.errors import UsageError
from dgr_build.source.store import PackFiles  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = 1


class ProofRecord(Document):
    """A proof that was made of a tree in the store.

    Attributes:
        attempts: each provider that was tried before, with the reason why it did not do.
        override: the source was named on the command line, not by the manifest.
        ancestry: whether the source's own commits showed the descent from the lineage's merge.
        remarks: what a person should know about it, such as an archive that was regenerated.
    """

    schema_version: Annotated[int, Field(ge=_SCHEMA, le=_SCHEMA)] = _SCHEMA
    commit: Sha1
    tree: Sha1
    content_sha256: Sha256
    proof: Literal["full", "tree"]
    provider: str
    override: bool = False
    attempts: tuple[tuple[str, str], ...] = ()
    ancestry: Literal["stated", "proven"] = "stated"
    remarks: tuple[str, ...] = ()
    trees: int
    blobs: int
    files: int
    size: int
    pack: PackFiles


def path_of(store: Path, tree: str) -> Path:
    """Return where the record of a tree lies."""
    return store / "proofs" / f"{tree}.json"


def read(store: Path, tree: str) -> ProofRecord | None:
    """Return the record of a tree, or None when there is none that can be read."""
    try:
        return load_json(path_of(store, tree), ProofRecord)
    except UsageError:
        return None


def write(store: Path, record: ProofRecord) -> None:
    """Keep a record."""
    save_json(path_of(store, record.tree), record)


def forget(store: Path, tree: str) -> None:
    """Remove the record of a tree."""
    path_of(store, tree).unlink(missing_ok=True)
