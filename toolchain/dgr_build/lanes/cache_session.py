"""A compiler cache while a build runs: its server, which ends with the build, and its statistics."""

from __future__ import annotations

import json
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import HostError
from dgr_build.lanes.remote_cache import SETTING
from dgr_build.process import Child, run
from dgr_build.workspace import socket_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dgr_build.lanes.compiler_cache import Cache
    from dgr_build.workspace import Workspace

_REACH_S = 10.0
_START_S = 60.0
_SETTLE_S = 2.0  # without any write
_STOP_S = 15.0
_HITS = {"direct_cache_hit", "preprocessed_cache_hit"}
_NO_COMPILATION = {"called_for_link", "called_for_preprocessing"}
_SAID_CHARACTERS = 2000


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What a cache did for one build, in compilations.

    Args:
        hits: answered.
        misses: compiled, and kept for the next.
        other: compiled without being kept: not cacheable, or an error of the cache.
    """

    hits: int
    misses: int
    other: int

    def to_json(self) -> dict[str, int]:
        """Return it as data."""
        return {"hits": self.hits, "misses": self.misses, "other": self.other}


class Session:
    """A cache while a build runs.

    Args:
        variables: what the build's environment has, those of the cache included.
        folder: what must be there where the build runs, None when there is nothing.
    """

    def __init__(self, cache: Cache, variables: Mapping[str, str], folder: Path | None = None) -> None:
        self.variables = dict(variables)
        self.folder = folder
        self._cache = cache

    def statistics(self) -> Statistics | None:
        """Return what the cache has done since the session began; None when that is not known."""
        if self._cache.name == "sccache":
            return sccache_statistics(_told(self._cache, self.variables))
        if self._cache.name == "ccache":
            return ccache_statistics(Path(self.variables["CCACHE_STATSLOG"]))
        return None


@contextmanager
def serving(ws: Workspace, cache: Cache, *, prefix: Sequence[str | Path] = ()) -> Iterator[Session]:
    """Keep a cache ready while a build runs; its server, where it has one, is ours and ends with this.

    Args:
        ws: where the server's socket and log lie.
        cache: what was chosen.
        prefix: words before the server's command that enter the environment whose compilers it starts; with a
            network.

    Raises:
        HostError: the remote cache cannot be reached.
    """
    if cache.name == "none":
        yield Session(cache, cache.variables)
        return
    with socket_folder(ws.root / "run", "cache") as folder:
        if cache.name == "ccache":
            yield Session(cache, {**cache.variables, "CCACHE_STATSLOG": str(folder / "results")})
            return
        _reach(cache)
        variables = {**cache.variables, "SCCACHE_SERVER_UDS": str(folder / "s")}
        log = folder / "server.log"
        with log.open("wb") as out:
            server = Child(
                [*prefix, str(cache.program)],
                cwd=folder,
                env={**cache.server, **variables, "SCCACHE_START_SERVER": "1"},
                stdout=out,
                stderr=out,
            )
        try:
            _await(server, folder / "s", cache, log)
            yield Session(cache, variables, folder)
            _settle(cache, variables)
        finally:
            server.stop(_STOP_S)


def sccache_statistics(told: Mapping[str, object]) -> Statistics | None:
    """Read what sccache says of itself (`--show-stats --stats-format json`); None where it says nothing."""
    stats = told.get("stats")
    if not isinstance(stats, dict):
        return None
    hits, misses = (
        sum(stats.get(name, {}).get("counts", {}).values()) for name in ("cache_hits", "cache_misses")
    )
    asked = stats.get("compile_requests", 0) - stats.get("requests_not_compile", 0)
    return Statistics(hits=hits, misses=misses, other=max(0, asked - hits - misses))


def ccache_statistics(log: Path) -> Statistics:
    """Read what ccache has noted of each compilation (CCACHE_STATSLOG); no log notes none."""
    text = log.read_text(errors="replace") if log.is_file() else ""
    each = [set(part.splitlines()[1:]) for part in f"\n{text}".split("\n# ")[1:]]
    compiled = [noted for noted in each if not noted & _NO_COMPILATION]
    hits = sum(bool(noted & _HITS) for noted in compiled)
    misses = sum("cache_miss" in noted for noted in compiled)
    return Statistics(hits=hits, misses=misses, other=len(compiled) - hits - misses)


def _reach(cache: Cache) -> None:
    """Say at once that nobody listens; sccache itself would try for half a minute."""
    if cache.address is None:
        return
    try:
        socket.create_connection(cache.address, _REACH_S).close()
    except OSError as error:
        raise _unusable(cache, error.strerror or str(error)) from error


def _await(server: Child, listening: Path, cache: Cache, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not listening.exists():
        ended = server.poll() is not None
        if ended or time.monotonic() > deadline:
            text = " ".join(log.read_text(errors="replace").split())[-_SAID_CHARACTERS:]
            for secret in cache.secrets:
                text = text.replace(secret, "***")
            raise _unusable(
                cache, text or ("its server ended at once" if ended else f"no answer in {_START_S:.0f} s")
            )
        time.sleep(0.02)


def _unusable(cache: Cache, cause: str) -> HostError:
    return HostError(
        f"the remote cache cannot be used: {SETTING} is {cache.described.split()[-1]}",
        cause=cause,
        remedy=f"start that server, or unset {SETTING} to build with the local cache",
    )


def _told(cache: Cache, variables: Mapping[str, str]) -> dict[str, object]:
    asked = run(
        [str(cache.program), "--show-stats", "--stats-format", "json"],
        env={"PATH": cache.server["PATH"], **variables},
        timeout=60,
    )
    try:
        told = json.loads(asked.stdout)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _settle(cache: Cache, variables: Mapping[str, str]) -> None:
    """Wait until what was compiled is kept: the server writes behind the compiler's back.

    One that may only be read keeps nothing, so waiting ends when nothing happens any more.
    """
    last, since = -1, time.monotonic()
    while time.monotonic() - since < _SETTLE_S:
        stats = _told(cache, variables).get("stats")
        if not isinstance(stats, dict):
            return
        written = stats.get("cache_writes", 0) + stats.get("cache_write_errors", 0)
        due = sum(stats.get("cache_misses", {}).get("counts", {}).values()) - stats.get("compile_fails", 0)
        if written >= due:
            return
        if written != last:
            last, since = written, time.monotonic()
        time.sleep(0.1)
