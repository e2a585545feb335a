"""Upstream's git server: the commit by its id, at depth 1."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dulwich.client import HttpGitClient
from dulwich.object_store import ObjectStoreGraphWalker
from dulwich.objects import ObjectID

from dgr_build import console
from dgr_build.errors import SourceUnavailableError
from dgr_build.source.store import index_pack, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dulwich.object_store import BaseObjectStore

    from dgr_build.documents.pin import GitProvider
    from dgr_build.source.providers.base import Request

_ANSWER_S = 8.0  # for the name, the connection and the first answer together
_SILENCE_S = 30.0  # a server may think before it packs, but not forever
_LIMIT_S = 1800.0
_MAX_BYTES = 2 << 30


@contextmanager
def obtain(provider: GitProvider, request: Request) -> Iterator[BaseObjectStore]:
    """Fetch the pinned commit without history.

    Raises:
        SourceUnavailableError: the server cannot be reached, or refuses the commit, or stops sending.
        ProofError: what came is no complete pack.
    """
    if request.offline:
        raise SourceUnavailableError(f"{provider.url} was not asked", cause="--offline")
    pack = request.staging / "pack" / "fetched"
    pack.parent.mkdir()
    _bounded(lambda alive: _fetch(provider.url, request.pin.commit, pack, alive), provider.url)
    if not pack.stat().st_size:
        raise SourceUnavailableError(f"{provider.url} sent nothing for {request.pin.commit}")
    index_pack(pack)
    with opened(request.staging) as store:
        yield store


def _fetch(url: str, commit: str, pack: Path, alive: Callable[[], None]) -> None:
    # no config: what git was told on this machine must not change what is fetched, nor start a helper
    client = HttpGitClient(url, config=None, timeout=_SILENCE_S, thin_packs=False, quiet=True)
    with pack.open("wb") as file:

        def keep(data: bytes) -> int:
            alive()
            if file.tell() + len(data) > _MAX_BYTES:
                raise SourceUnavailableError(f"{url} does not stop sending", cause=f"{_MAX_BYTES} bytes came")
            return file.write(data)

        def wanted(refs: object, depth: int | None = None) -> list[ObjectID]:  # noqa: ARG001 - dulwich's
            alive()
            return [ObjectID(commit.encode())]

        client.fetch_pack(
            "",
            wanted,
            ObjectStoreGraphWalker([], lambda _: []),
            keep,
            progress=lambda _: alive(),
            depth=1,
            ref_prefix=[b"HEAD"],
        )


def _bounded(work: Callable[[Callable[[], None]], None], url: str) -> None:
    """Run network work in a thread of its own, so that no name service or server holds up the whole.

    The work calls `alive` whenever something came. A thread that stays silent too long is left behind; it
    writes into a staging folder that nobody looks at any more and ends with the program.
    """
    signs: queue.Queue[Exception | str] = queue.Queue()
    gone = threading.Event()

    def alive() -> None:
        if gone.is_set():
            raise SourceUnavailableError("given up")
        signs.put("alive")

    def story() -> None:
        try:
            work(alive)
        except Exception as error:  # noqa: BLE001 - told to the one who waits
            signs.put(error)
        else:
            signs.put("done")

    threading.Thread(target=story, daemon=True, name="fetch").start()
    try:
        end = _last_sign(signs, url)
    finally:
        gone.set()
    if isinstance(end, SourceUnavailableError):
        raise end
    if isinstance(end, Exception):
        raise SourceUnavailableError(f"{url} did not send the commit", cause=_why(end)) from end


def _last_sign(signs: queue.Queue[Exception | str], url: str) -> Exception | str:
    """Wait for the end of the work.

    Raises:
        SourceUnavailableError: it went silent, or takes too long altogether.
    """
    patience, limit = _ANSWER_S, time.monotonic() + _LIMIT_S
    with console.progress(f"asking {url}"):
        while time.monotonic() < limit:
            try:
                sign = signs.get(timeout=patience)
            except queue.Empty:
                raise SourceUnavailableError(
                    f"{url} does not answer", cause=f"it was silent for {patience:.0f} s"
                ) from None
            if sign != "alive":
                return sign
            patience = _SILENCE_S
    raise SourceUnavailableError(f"{url} is too slow", cause=f"it did not end in {_LIMIT_S:.0f} s")


def _why(error: Exception) -> str:
    """Return the root of an error in one line: what wraps it says the same at greater length."""
    root: BaseException = error
    while isinstance(inner := getattr(root, "reason", None) or root.__cause__, BaseException):
        root = inner
    text = " ".join(str(root).split())
    return f"{type(root).__name__}: {text}" if text else type(root).__name__
