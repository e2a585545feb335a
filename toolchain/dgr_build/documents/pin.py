"""The pin: one upstream commit with its tree, its lineage, and the providers of its objects."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, StringConstraints

from dgr_build.documents.base import Document, Sha1, Sha256, load_toml

_Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$")]
_Package = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
_Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#]+/[^\s?#]+$")]
_Inner = Annotated[str, StringConstraints(pattern=r"^[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]$")]


class GitProvider(Document):
    """Upstream's git server, asked for the commit by its id at depth 1; smart HTTP only."""

    kind: Literal["git"]
    url: _Url

    @property
    def description(self) -> str:
        """What it is, in one line."""
        return f"git {self.url}"


class SdistProvider(Document):
    """A Python source distribution that ships upstream's git objects.

    `objects` is the git folder inside the archive's one top folder. `sha256` is a second check only:
    an index may regenerate an archive, the objects in it are proven one by one in any case.
    """

    kind: Literal["sdist"]
    package: _Package
    version: _Version
    sha256: Sha256
    size: PositiveInt
    objects: _Inner

    @property
    def description(self) -> str:
        """What it is, in one line."""
        return f"sdist {self.package} {self.version}"


class RepositoryProvider(Document):
    """A local git repository, bare or with a work tree; read only, its settings are never looked at."""

    kind: Literal["repository"]
    path: _Line

    @property
    def description(self) -> str:
        """What it is, in one line."""
        return f"repository {self.path}"


class BundleProvider(Document):
    """A local git bundle file."""

    kind: Literal["bundle"]
    path: _Line

    @property
    def description(self) -> str:
        """What it is, in one line."""
        return f"bundle {self.path}"


Provider = GitProvider | SdistProvider | RepositoryProvider | BundleProvider


class Lineage(Document):
    """The upstream merge that a feature began with, and whether the pin was shown to descend from it."""

    what: _Line
    merge: Sha1
    tree: Sha1
    parent: Sha1
    build: PositiveInt
    pull_request: PositiveInt | None = None
    ancestry: Literal["stated", "proven"] = "stated"


class Pin(Document):
    """One upstream commit.

    Attributes:
        commit_object: the file with the commit's raw bytes, beside the manifest.
        content_sha256: the digest of the whole tree as `source.proof.prove_tree` defines it.
        folder: where the manifest lies; relative paths in it start there. Not part of the document.
    """

    commit: Sha1
    tree: Sha1
    committed: dt.date
    build: PositiveInt
    version: _Line
    commit_object: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")] | None = None
    content_sha256: Sha256 | None = None
    lineage: Lineage | None = None
    providers: tuple[Annotated[Provider, Field(discriminator="kind")], ...] = ()
    folder: Annotated[Path, Field(exclude=True)] = Path()


def load_pin(path: Path) -> Pin:
    """Read the pin's manifest.

    Raises:
        UsageError: the file is missing, is not TOML, or a field is wrong.
    """
    return load_toml(path, Pin).model_copy(update={"folder": path.absolute().parent})
