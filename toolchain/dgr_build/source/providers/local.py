"""Objects that are on this machine already: a repository, or a bundle."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgr_build.errors import ProofError, SourceUnavailableError
from dgr_build.source.store import index_pack, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dulwich.object_store import BaseObjectStore

    from dgr_build.documents.pin import BundleProvider, RepositoryProvider
    from dgr_build.source.providers.base import Request

_SIGNATURES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_MAX_HEADER = 1 << 22
_MAX_POINTER = 4096


@contextmanager
def obtain_repository(provider: RepositoryProvider, request: Request) -> Iterator[BaseObjectStore]:
    """Read a repository's objects in place. Only its objects: no settings, hooks or owners matter.

    Raises:
        SourceUnavailableError: there is no repository.
    """
    with opened(objects_of(request.pin.folder / provider.path)) as store:
        yield store


def objects_of(path: Path) -> Path:
    """Return the objects folder of a repository: bare, with a work tree, a linked work tree or submodule.

    Raises:
        SourceUnavailableError: there is none.
    """
    git = path / ".git"
    try:
        if git.is_file():
            git = path / _pointer(git).removeprefix("gitdir:").strip()
        elif not git.is_dir():
            git = path
        common = git / "commondir"
        objects = (git / _pointer(common) if common.is_file() else git) / "objects"
        if objects.is_dir():
            return objects
    except (OSError, UnicodeError, ValueError) as error:
        raise SourceUnavailableError(f"{path} cannot be read", cause=str(error)) from error
    raise SourceUnavailableError(
        f"{path} is no git repository",
        cause="neither .git nor objects/ is in it" if path.is_dir() else "no such folder",
    )


def _pointer(file: Path) -> str:
    with file.open("rb") as source:
        return source.read(_MAX_POINTER).decode().strip()


@contextmanager
def obtain_bundle(provider: BundleProvider, request: Request) -> Iterator[BaseObjectStore]:
    """Take the pack out of a git bundle.

    dulwich's reader holds the whole pack in memory, and the references in the header do not matter to us.

    Raises:
        SourceUnavailableError: there is no such file, or it is no bundle.
        ProofError: its pack is damaged, or needs commits that it does not carry.
    """
    path = request.pin.folder / provider.path
    pack = request.staging / "pack" / "bundled"
    pack.parent.mkdir()
    try:
        with path.open("rb") as source:
            if source.readline(64) not in _SIGNATURES:
                raise SourceUnavailableError(f"{path} is no git bundle", cause="it does not begin like one")
            needed = 0
            while (line := source.readline(_MAX_HEADER)) not in {b"\n", b""} and source.tell() < _MAX_HEADER:
                if line.strip() == b"@object-format=sha256" or line.startswith(b"@filter"):
                    raise SourceUnavailableError(
                        f"{path} cannot be used", cause=f"it says {line.decode().strip()}"
                    )
                needed += line.startswith(b"-")
            with pack.open("wb") as target:
                shutil.copyfileobj(source, target)
    except OSError as error:
        raise SourceUnavailableError(f"{path} cannot be read", cause=error.strerror or str(error)) from error
    try:
        index_pack(pack)
    except ProofError as error:
        if not needed:
            raise
        raise ProofError(
            f"{path} cannot stand alone",
            cause=f"it was made on top of {needed} commits that it does not carry ({error.cause})",
            remedy="make a bundle of the whole commit, from a clone with --depth 1",
        ) from error
    with opened(request.staging) as store:
        yield store
