"""Downloads that resume: into a `.part` file by ranges, hashed before anybody believes them."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from dgr_build import console
from dgr_build.errors import SourceUnavailableError
from dgr_build.workspace import require_space

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

_PAUSES_S = (0.0, 0.5, 1.0, 2.0)  # before each try; a try that got further starts the count anew
_SPARE = 16 << 20
_RANGE = re.compile(r"bytes ([0-9]+)-[0-9]+/(?:[0-9]+|\*)")
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG}
_PARTIAL, _OK, _BEYOND_END = 206, 200, 416


class Client(Protocol):
    """What is needed of an HTTP client; unearth's knows http, https and file."""

    def get_stream(
        self, url: str, *, headers: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Any]:
        """Open a response whose body is read piece by piece."""


class _CutOffError(Exception):
    """The transfer ended early; what came is kept."""


def fetch(client: Client, url: str, part: Path, *, size: int, title: str) -> bool:
    """Download into `part`, going on where an earlier run stopped.

    Args:
        client: the HTTP client.
        url: what to get.
        part: the file to fill; whatever it holds already is taken for the beginning.
        size: the expected size in bytes; the sender may differ, but not grow without limit.
        title: what a person calls it.

    Returns:
        Whether some of it was there before.

    Raises:
        SourceUnavailableError: it did not come in several tries; what came stays for the next run.
        HostError: there is no space for it.
    """
    had = _length(part)
    require_space(part.parent, max(0, size - had) + _SPARE, f"downloading {title}")
    if had:
        console.say(f"{title}: going on after {had} bytes")
    with console.progress(f"downloading {title}", size, unit="bytes") as task:
        tries, before, reason = iter(_PAUSES_S), had, ""
        while (pause := next(tries, None)) is not None:
            time.sleep(pause)
            try:
                _receive(client, url, part, 2 * size + _SPARE, task)
            except _CutOffError as error:
                reason = str(error)
                if (now := _length(part)) > before:
                    tries, before = iter(_PAUSES_S), now
                continue
            return had > 0
    raise SourceUnavailableError(
        f"{title} could not be downloaded",
        cause=f"{reason}; {_length(part)} bytes are kept",
        remedy="run the same command again: the download goes on where it stopped",
    )


def _receive(client: Client, url: str, part: Path, limit: int, task: console.Task) -> None:
    start = _length(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        with client.get_stream(url, headers=headers) as response:
            if not _is_complete(response, part, start):
                _keep(response, part, limit, task)
    except (_CutOffError, SourceUnavailableError):
        raise
    except OSError as error:
        if error.filename is not None or error.errno in _DISK_ERRORS:
            raise
        raise _CutOffError(_why(error)) from error
    except Exception as error:  # each HTTP client has an error tree of its own
        raise _CutOffError(_why(error)) from error


def _is_complete(response: Any, part: Path, start: int) -> bool:
    """Say whether all was there before; drop what was kept where the answer shows that it does not fit."""
    if response.status_code == _BEYOND_END and start:
        if response.headers.get("Content-Range", "") == f"bytes */{start}":
            return True
        part.unlink()
        raise _CutOffError("what was kept does not fit; it was dropped")
    if response.status_code not in {_OK, _PARTIAL}:
        raise _CutOffError(f"the server answers {response.status_code}")
    if response.status_code == _PARTIAL and _first_byte(response.headers) != start:
        part.unlink(missing_ok=True)
        raise _CutOffError("the server sends another range than was asked for")
    return False


def _keep(response: Any, part: Path, limit: int, task: console.Task) -> None:
    received = 0
    with part.open("ab" if response.status_code == _PARTIAL else "wb") as file:
        for chunk in response.iter_raw():  # as it comes: a chunk size would lose the rest of a cut transfer
            file.write(chunk)
            received += len(chunk)
            task.update(done=file.tell())
            if file.tell() > limit:
                raise SourceUnavailableError(
                    "what is sent is no such file", cause=f"more than {limit} bytes came"
                )
        file.flush()
        os.fsync(file.fileno())
    promised = response.headers.get("Content-Length", "")
    if promised.isdecimal() and int(promised) != received:
        raise _CutOffError(f"{received} of {promised} bytes came")


def _first_byte(headers: Mapping[str, str]) -> int:
    match = _RANGE.fullmatch(headers.get("Content-Range", ""))
    return int(match[1]) if match else -1


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def quarantine(path: Path) -> Path:
    """Move a file that cannot be used out of the way and return where it is now.

    One file of a name is kept: a source that stays bad does not fill the disk.
    """
    aside = path.parent / "quarantine" / path.name.removesuffix(".part")
    aside.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        path.replace(aside)
    return aside
