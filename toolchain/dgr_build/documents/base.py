"""What all documents share: frozen models, exact field names, and errors that name file and field."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from dgr_build.errors import UsageError
from dgr_build.workspace import write_atomic

Sha1 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Document(BaseModel):
    """A frozen document; unknown fields are errors, so a typo never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


D = TypeVar("D", bound=Document)


def load_toml(path: Path, kind: type[D]) -> D:
    """Read a TOML file into a document.

    Raises:
        UsageError: the file is missing, is not TOML, or a field is wrong; each wrong field is named.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}", cause=error.strerror or str(error)) from error
    try:
        data = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML", cause=str(error)) from error
    return parse(data, kind, str(path))


def load_json(path: Path, kind: type[D]) -> D:
    """Read a JSON file into a document.

    Raises:
        UsageError: the file is missing, is not JSON, or a field is wrong; each wrong field is named.
    """
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}", cause=error.strerror or str(error)) from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", cause=str(error)) from error
    return parse(data, kind, str(path))


def parse(data: Any, kind: type[D], where: str) -> D:
    """Check data against a document type.

    Raises:
        UsageError: a field is wrong; each wrong field is named.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'document'}: {item['msg']}"
            for item in error.errors()
        )
        raise UsageError(
            f"{where} is not a valid {kind.__name__}", cause=problems, remedy=f"edit {where} and try again"
        ) from error


def save_toml(path: Path, document: Document, *, comment: str = "") -> None:
    """Write a document as TOML, by rename; `comment` heads the file."""
    body = tomli_w.dumps(document.model_dump(mode="json", exclude_none=True))
    write_atomic(path, (comment + body).encode())


def save_json(path: Path, document: Document) -> None:
    """Write a document as readable JSON, by rename."""
    write_atomic(path, (document.model_dump_json(indent=2) + "\n").encode())


def canonical_json(data: Any) -> bytes:
    """Return data as JSON with sorted keys, no spaces and ASCII only: the form that digests are taken of."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest(data: Any) -> str:
    """Return the sha256 of the canonical JSON of `data`."""
    return hashlib.sha256(canonical_json(data)).hexdigest()
