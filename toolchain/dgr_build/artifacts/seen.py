"""Remembering that a model was hashed and is sound, until any of its files is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build.artifacts.manifest import Artifact, load, manifest_path
from dgr_build.documents.base import Document, load_json, save_json
from dgr_build.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

Status = tuple[int, int, int, int, int]
"""Device, inode, size, and the two time stamps (ns): any change of content changes the last."""


class _Seen(Document):
    files: dict[str, Status]


def remember_sound(artifact: Artifact) -> None:
    """Note that an artifact was verified just now."""
    save_json(_note(artifact.path), _Seen(files=_files(artifact)))


def known_sound(first: Path) -> Artifact | None:
    """Return a model that was verified and not touched since; None where it must be hashed.

    Raises:
        ArtifactError: the manifest or a file is missing, broken or of another size, or lies under /home.
    """
    try:
        seen = load_json(_note(first), _Seen)
    except UsageError:
        return None
    artifact = load(first)
    return artifact if _files(artifact) == seen.files else None


def _files(artifact: Artifact) -> dict[str, Status]:
    return {file.name: _status(file) for file in (*artifact.parts, artifact.manifest_path)}


def _status(file: Path) -> Status:
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _note(first: Path) -> Path:
    manifest = manifest_path(first)
    return manifest.with_name(manifest.name + ".seen")
