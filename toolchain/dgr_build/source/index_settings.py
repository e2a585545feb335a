"""The package indexes that the user has set for pip: its configuration files and environment."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dgr_build import process, workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECTIONS = ("global", "install", "download")  # later ones win, as in pip; the environment wins over all
_OPTIONS = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert")
_OFF = {"", "0", "no", "false", "off", "n", "f"}


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """Where packages are looked for.

    Attributes:
        indexes: simple indexes by URL, the main one first; empty where pip was told to use none.
        find_links: folders, pages and files with links.
        trusted_hosts: hosts whose certificate is not checked.
        cert: a file with certificate authorities.
    """

    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None

    def local_only(self) -> IndexSettings:
        """Return what of it needs no network."""
        return IndexSettings(
            indexes=tuple(filter(_is_local, self.indexes)),
            find_links=tuple(filter(_is_local, self.find_links)),
        )


def pip_settings(usual_index: str) -> IndexSettings:
    """Ask the pip of this environment for its settings and read PIP_* from the environment.

    Args:
        usual_index: the main index where none is set.
    """
    asked = process.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"])
    listing = asked.stdout if asked.returncode == 0 else ""  # without pip the environment is all there is
    return combine(listing, os.environ, usual_index)


def combine(listing: str, environment: Mapping[str, str], usual_index: str) -> IndexSettings:
    """Return the settings that `pip config list` output and the environment make together."""
    options = _from_listing(listing)
    for name in _OPTIONS:
        stated = environment.get("PIP_" + name.upper().replace("-", "_"))
        if stated is not None:
            options[name] = stated
    off = options.get("no-index", "").strip().lower() in _OFF
    main = options.get("index-url", "").strip() or usual_index
    return IndexSettings(
        indexes=(main, *_words(options, "extra-index-url")) if off else (),
        find_links=tuple(workspace.expand_home(w) for w in _words(options, "find-links")),
        trusted_hosts=_words(options, "trusted-host"),
        cert=options.get("cert", "").strip() or None,
    )


def _from_listing(listing: str) -> dict[str, str]:
    by_section: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        key, equals, quoted = line.partition("=")
        section, dot, name = key.strip().partition(".")
        if not equals or not dot or section not in _SECTIONS or name not in _OPTIONS:
            continue
        try:
            value = ast.literal_eval(quoted.strip())
        except (ValueError, SyntaxError):
            continue
        by_section.setdefault(section, {})[name] = str(value)
    return {name: value for s in _SECTIONS for name, value in by_section.get(s, {}).items()}


def _words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(options.get(name, "").split())


def _is_local(location: str) -> bool:
    scheme = urlsplit(location).scheme if "://" in location else ""
    return scheme in {"", "file"}
