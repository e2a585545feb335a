"""A Python source distribution that ships upstream's git objects."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgr_build import console, workspace
from dgr_build.errors import ProofError
from dgr_build.source import download, index
from dgr_build.source.archive import extract_objects
from dgr_build.source.store import opened
from dgr_build.source.wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dulwich.object_store import BaseObjectStore

    from dgr_build.documents.pin import SdistProvider
    from dgr_build.source.providers.base import Request

_MAX_UNPACKED = 2 << 30
_SPACE_FACTOR = 3  # the objects once as they come and once as we pack them, and some room


@contextmanager
def obtain(provider: SdistProvider, request: Request) -> Iterator[BaseObjectStore]:
    """Download the archive, or take it from the cache, and take the git objects out of it.

    An archive whose hash is not the pinned one is used once, with a remark, when its objects prove
    themselves, and is moved to quarantine when they do not.

    Raises:
        SourceUnavailableError: no index has it, or it does not come.
        ProofError: it is no archive with git objects.
        HostError: there is no space.
    """
    name = f"{provider.package}-{provider.version}.tar.gz"
    final = request.downloads / name
    with workspace.lock_file(request.downloads / f".{name}.lock", f"the download of {name}"):
        archive = _cached(provider, final) or _downloaded(provider, request, final)
        workspace.require_space(request.staging, _SPACE_FACTOR * provider.size, f"the objects of {name}")
        objects = request.staging / "objects"
        try:
            extract_objects(archive, provider.objects, objects, limit=_MAX_UNPACKED)
            with opened(objects) as store:
                yield store
        except ProofError as error:
            if archive == final:  # it is what the manifest pins, byte for byte
                raise
            aside = download.quarantine(archive)
            raise ProofError(
                error.message, cause=f"{error.cause}; the archive was moved to {aside}", remedy=error.remedy
            ) from error
        finally:
            if archive != final:  # not the pinned archive: nobody may find it in the cache
                archive.unlink(missing_ok=True)


def _cached(provider: SdistProvider, final: Path) -> Path | None:
    if not final.exists():
        return None
    if download.sha256_of(final) == provider.sha256:
        return final
    console.warn(f"{final.name} in the cache is damaged; it was moved to {download.quarantine(final)}")
    return None


def _downloaded(provider: SdistProvider, request: Request, final: Path) -> Path:
    part = final.with_name(final.name + ".part")
    wanted = Wanted(package=provider.package, version=provider.version, kind="sdist")
    with index.opened(offline=request.offline) as packages:
        link = packages.find(wanted)
        for _ in range(2):
            resumed = download.fetch(
                packages.client, link.url_without_fragment, part, size=provider.size, title=final.name
            )
            actual = download.sha256_of(part)
            if actual == provider.sha256:
                workspace.publish(part, final)
                return final
            if not resumed:
                break
            console.warn(f"{part.name} does not hash to what is pinned; starting over")
            download.quarantine(part)
    remark = f"the archive is not the pinned one: its SHA-256 is {actual}; its objects decide"
    console.warn(remark)
    request.remarks.append(remark)
    return part
