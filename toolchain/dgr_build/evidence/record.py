"""Keeping evidence records: written once under their own digest, read only for what they are about."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from dgr_build.documents.base import canonical_json, load_json, save_json
from dgr_build.documents.evidence import Record
from dgr_build.errors import CheckError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ID = re.compile(r"[0-9a-f]{4,64}")


def write(folder: Path, record: Record, private: Mapping[str, str] | None = None) -> Path:
    """Write a record as `ID.json`, by rename, and return where.

    Args:
        folder: where records are kept.
        record: what to keep.
        private: folders of this machine (see `public`), none of which may appear in it.

    Raises:
        CheckError: the record names the machine or a folder of it.
    """
    check_private(record, private or {})
    target = folder / f"{record.id}.json"
    save_json(target, record)
    return target


def check_private(record: Record, private: Mapping[str, str]) -> None:
    """Check that a record tells nothing of the machine but its hardware.

    Raises:
        CheckError: it names the host or one of the folders.
    """
    text = canonical_json(record.model_dump(mode="json")).decode()
    host = socket.gethostname()
    # A short host name ("debian") may be an honest word of the record.
    named = [folder for folder in private if len(folder) > 1 and _holds(text, folder)]
    if named or (len(host) > 6 and re.search(rf"\b{re.escape(host)}\b", text)):  # noqa: PLR2004
        raise CheckError(
            f"the record of {record.subject} names this machine",
            cause=f"it holds {', '.join(named) or 'the host name'}",
            remedy="report this as a bug: commands and metrics must go through evidence.record.public",
        )


def _holds(text: str, folder: str) -> bool:
    return re.search(re.escape(folder.rstrip("/")) + r"(?![A-Za-z0-9_.-])", text) is not None


def public(text: str, private: Mapping[str, str]) -> str:
    """Return text with the folders of this machine replaced by their public names.

    Args:
        text: a command, an argument, a message.
        private: public name of each folder, such as {"/home/a/clone": "."}; longer folders win.
    """
    for folder in sorted(private, key=len, reverse=True):
        if len(folder) > 1:
            pattern = re.escape(folder.rstrip("/")) + r"(?![A-Za-z0-9_.-])"
            text = re.sub(pattern, lambda _, name=private[folder]: name, text)  # type: ignore[misc]
    return text


def read(path: Path) -> Record:
    """Read a record and check that it is what its name says.

    Raises:
        CheckError: its content is not what its name is the digest of.
        UsageError: there is no such record, or a field is wrong.
    """
    record = load_json(path, Record)
    if path.stem not in {record.id, "record"}:
        raise CheckError(
            f"{path} was changed after it was written",
            cause=f"its content has the digest {record.id}",
            remedy="remove it and run what it records again",
        )
    return record


def read_for(path: Path, *, lane_digest: str, artifact: str | None = None) -> Record:
    """Read a record for a worker and a model; a record of others is refused, however alike they are.

    Args:
        path: the record.
        lane_digest: of the worker that asks for credit.
        artifact: digest of the model that asks, None where no model matters.

    Raises:
        CheckError: it was changed, or is about another worker or another model.
        UsageError: there is no such record, or a field is wrong.
    """
    record = read(path)
    _require(record, "lane digest", lane_digest, {record.digests.lane_digest or "none"})
    if artifact is not None:
        _require(record, "artifact", artifact, {known.digest for known in record.digests.artifacts})
    return record


def _require(record: Record, what: str, wanted: str, known: set[str]) -> None:
    if wanted not in known:
        raise CheckError(
            f"the record of {record.subject} says nothing about {what} {wanted}",
            cause=f"it is about {', '.join(sorted(known)) or 'none'}",
            remedy="run the check for this one: dgr-build lane cpu --force",
        )


def find(folder: Path, name: str) -> Path:
    """Return the one record whose id begins with `name`.

    Raises:
        UsageError: there is none, or there are several.
    """
    found = sorted(folder.glob(f"{name}*.json")) if _ID.fullmatch(name) else []
    if len(found) != 1:
        raise UsageError(
            f"{'no record is' if not found else f'{len(found)} records are'} called {name!r}",
            cause="a record is named by its id or the beginning of it, at least 4 of its digits",
            remedy="dgr-build evidence list shows what there is",
        )
    return found[0]


def read_all(folder: Path) -> tuple[Record, ...]:
    """Return every sound record of a folder, oldest first.

    Raises:
        CheckError: one was changed after it was written.
        UsageError: one has a wrong field.
    """
    records = (read(path) for path in folder.glob("*.json"))
    return tuple(sorted(records, key=lambda record: (record.ran_at, record.id)))
