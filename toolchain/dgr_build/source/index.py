"""Finding a file of a package in the indexes that the user has set for pip."""

from __future__ import annotations

import logging
import ssl
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unearth import Link, PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers.sync import PyPIClient

from dgr_build.errors import SourceUnavailableError
from dgr_build.source.index_settings import pip_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dgr_build.source.index_settings import IndexSettings
    from dgr_build.source.wanted import Wanted

_TIMEOUT_S = 10.0
_KINDS = {"sdist": "source distribution", "wheel": "wheel"}


@dataclass(frozen=True, kw_only=True)
class Index:
    """The opened indexes of the user.

    Args:
        client: gets files from them; knows http, https and file.
        settings: where is looked.
        offline: only local places are looked at.
    """

    client: PyPIClient
    settings: IndexSettings
    offline: bool

    def find(self, wanted: Wanted) -> Link:
        """Return the link of a file.

        Raises:
            SourceUnavailableError: no index or link page has it; each is named with its reason.
        """
        settings = self.settings
        if not settings.indexes and not settings.find_links:
            why = (
                "--offline, and it is not in the cache"
                if self.offline
                else "pip is set to use no index and no links"
            )
            raise SourceUnavailableError(f"{wanted} was not looked for", cause=why)
        places = [("find_links", place) for place in settings.find_links]
        places += [("index_urls", place) for place in settings.indexes]
        reasons = []
        for kind, place in places:  # one by one: unearth gives up on all of them when one cannot be reached
            with _warnings_of("unearth") as warnings:
                try:
                    link = self._look(wanted, kind, place)
                except Exception as error:  # noqa: BLE001 - each HTTP client has an error tree of its own
                    link = None
                    warnings.append(f"{type(error).__name__}: {error}")
            if link is not None:
                return link
            reasons.append(
                f"{Link(place).redacted}: {'; '.join(warnings) or 'it answers, but does not list it'}"
            )
        raise SourceUnavailableError(
            f"no index has a {_KINDS[wanted.kind]} {wanted}",
            cause="; ".join(reasons),
            remedy="pip config list shows where it was looked for",
        )

    def _look(self, wanted: Wanted, kind: str, place: str) -> Link | None:
        finder = PackageFinder(
            self.client,  # type: ignore[arg-type]  # unearth makes the same by itself
            index_urls=[place] if kind == "index_urls" else [],
            find_links=[place] if kind == "find_links" else [],
            trusted_hosts=self.settings.trusted_hosts,
            ignore_compatibility=True,  # a wheel may be wanted for a machine that is not this one
            no_binary=[wanted.package] if wanted.kind == "sdist" else [],
            only_binary=[wanted.package] if wanted.kind == "wheel" else [],
        )
        found = finder.find_matches(str(wanted))
        return next((match.link for match in found if wanted.platform in match.link.filename), None)


@contextmanager
def opened(*, offline: bool = False) -> Iterator[Index]:
    """Open the user's indexes.

    Args:
        offline: use only those that need no network.

    Raises:
        SourceUnavailableError: pip's certificate file cannot be used.
    """
    settings = pip_settings(_usual_index())
    settings = settings.local_only() if offline else settings
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
        yield Index(client=client, settings=settings, offline=offline)


def _usual_index() -> str:
    """Return the index that is used where none is set: unearth's own choice."""
    return next(source["url"] for source in PackageFinder().sources if source["type"] == "index")


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
