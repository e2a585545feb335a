"""The one setting of a remote compiler cache: an address, read into what sccache wants to be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from dgr_build.errors import UsageError

SETTING = "DGR_REMOTE_CACHE"
_PREFIX = "dgr"
_PORTS = {"redis": 6379, "rediss": 6379, "http": 80, "https": 443}
_FORMS = "redis://HOST:PORT/NUMBER, rediss://..., http://HOST/FOLDER or https://..."


@dataclass(frozen=True, kw_only=True)
class RemoteCache:
    """A remote cache.

    Args:
        shown: its address without name and password.
        address: host and port.
        variables: what sccache reads; may hold a password.
        secrets: what must not appear in any message.
    """

    shown: str
    address: tuple[str, int]
    variables: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def parse_setting(setting: str) -> RemoteCache:
    """Read the address of a remote cache.

    Raises:
        UsageError: it is none; what it says is not repeated, since it may hold a password.
    """
    try:
        url = urlsplit(setting)
        port = url.port
    except ValueError as error:
        raise _wrong("it is no address") from error
    if not url.hostname or url.query or url.fragment or any(c.isspace() for c in setting):
        raise _wrong("it names no host, or has more than a host, a port and a path")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    if url.scheme in {"redis", "rediss"}:
        place, variables = _redis(url, f"{host}:{port or _PORTS[url.scheme]}")
    elif url.scheme in {"http", "https"}:
        place, variables = _webdav(url, host if port is None else f"{host}:{port}")
    else:
        raise _wrong(f"its scheme is {url.scheme!r}" if url.scheme else "it has no scheme")
    return RemoteCache(
        shown=place,
        address=(url.hostname, port or _PORTS[url.scheme]),
        variables=variables,
        # As it stands in the address and as it is meant; a name alone opens nothing.
        secrets=tuple(dict.fromkeys(s for s in (url.password, unquote(url.password or "")) if s)),
    )


def _redis(url: SplitResult, authority: str) -> tuple[str, dict[str, str]]:
    number = url.path.strip("/") or "0"
    if not (number.isascii() and number.isdecimal()):
        raise _wrong("the path of a Redis address is the number of a database")
    endpoint = f"{url.scheme}://{authority}"
    variables = {
        "SCCACHE_REDIS_ENDPOINT": endpoint,
        "SCCACHE_REDIS_DB": number,
        "SCCACHE_REDIS_KEY_PREFIX": _PREFIX,
    }
    return f"{endpoint}/{number}", variables | _credentials(url, "SCCACHE_REDIS")


def _webdav(url: SplitResult, authority: str) -> tuple[str, dict[str, str]]:
    endpoint = f"{url.scheme}://{authority}{url.path.rstrip('/')}"
    variables = {"SCCACHE_WEBDAV_ENDPOINT": endpoint, "SCCACHE_WEBDAV_KEY_PREFIX": _PREFIX}
    return endpoint, variables | _credentials(url, "SCCACHE_WEBDAV")


def _credentials(url: SplitResult, prefix: str) -> dict[str, str]:
    found = {f"{prefix}_USERNAME": url.username, f"{prefix}_PASSWORD": url.password}
    return {name: unquote(value) for name, value in found.items() if value}


def _wrong(cause: str) -> UsageError:
    return UsageError(
        f"{SETTING} is not the address of a cache", cause=cause, remedy=f"set it to {_FORMS}, or unset it"
    )
