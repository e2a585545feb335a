"""A Python source distribution that ships upstream's git objects."""

from __future__ import annotations

import logging
import ssl
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from unearth import Link, PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers.sync import PyPIClient

from dgr_build import console, workspace
from dgr_build.errors import ProofError, SourceUnavailableError
from dgr_build.source import download
from dgr_build.source.archive import extract_objects
from dgr_build.source.index_settings import pip_settings
from dgr_build.source.store import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dulwich.object_store import BaseObjectStore

    from dgr_build.documents.pin import SdistProvider
    from dgr_build.source.index_settings import IndexSettings
    from dgr_build.source.providers.base import Request

_TIMEOUT_S = 10.0
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
    settings = pip_settings(_usual_index())
    settings = settings.local_only() if request.offline else settings
    with _client(settings) as client:
        link = _find(provider, settings, client, offline=request.offline)
        for _ in range(2):
            resumed = download.fetch(
                client, link.url_without_fragment, part, size=provider.size, title=final.name
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


def _usual_index() -> str:
    """Return the index that is used where none is set: unearth's own choice."""
    return next(source["url"] for source in PackageFinder().sources if source["type"] == "index")


@contextmanager
def _client(settings: IndexSettings) -> Iterator[PyPIClient]:
    try:
        verify = ssl.create_default_context(cafile=settings.cert) if settings.cert else True
    except OSError as error:
        raise SourceUnavailableError(
            "no index was asked", cause=f"pip's certificate file {settings.cert}: {error}"
        ) from error
    client = PyPIClient(
        trusted_hosts=settings.trusted_hosts, verify=verify, timeout=_TIMEOUT_S, follow_redirects=True
    )
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=list(settings.indexes))
    with client:
        yield client


def _find(provider: SdistProvider, settings: IndexSettings, client: PyPIClient, *, offline: bool) -> Link:
    """Return the link of the archive.

    Raises:
        SourceUnavailableError: no index or link page has it.
    """
    wanted = f"{provider.package}=={provider.version}"
    if not settings.indexes and not settings.find_links:
        why = (
            "--offline, and it is not in the cache" if offline else "pip is set to use no index and no links"
        )
        raise SourceUnavailableError(f"{wanted} was not looked for", cause=why)
    places = [("find_links", place) for place in settings.find_links]
    places += [("index_urls", place) for place in settings.indexes]
    reasons = []
    for kind, place in places:  # one by one: unearth gives up on all of them when one cannot be reached
        with _warnings_of("unearth") as warnings:
            try:
                finder = PackageFinder(
                    client,  # type: ignore[arg-type]  # unearth makes the same by itself
                    index_urls=[place] if kind == "index_urls" else [],
                    find_links=[place] if kind == "find_links" else [],
                    trusted_hosts=settings.trusted_hosts,
                    ignore_compatibility=True,
                    no_binary=[provider.package],
                )
                best = finder.find_best_match(wanted).best
            except Exception as error:  # noqa: BLE001 - each HTTP client has an error tree of its own
                best = None
                warnings.append(f"{type(error).__name__}: {error}")
        if best is not None:
            return best.link
        reasons.append(f"{Link(place).redacted}: {'; '.join(warnings) or 'it answers, but does not list it'}")
    raise SourceUnavailableError(
        f"no index has a source distribution {wanted}",
        cause="; ".join(reasons),
        remedy="pip config list shows where it was looked for",
    )


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            self.messages.append(record.getMessage())


@contextmanager
def _warnings_of(name: str) -> Iterator[list[str]]:
    """Collect what a library only logs: which index could not be reached, and why."""
    logger, collector = logging.getLogger(name), _Collector()
    logger.addHandler(collector)
    try:
        yield collector.messages
    finally:
        logger.removeHandler(collector)
