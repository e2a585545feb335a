"""What this machine is: system, processor, memory, disk. Tests make up machines of other kinds."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

from dgr_build.lanes.jobs import available_memory

_CPUINFO = Path("/proc/cpuinfo")
_FLAG_LINES = ("flags", "Features")  # x86 and arm64


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine.

    Args:
        system: as `uname -s` says it.
        machine: as `uname -m` says it.
        cpu_flags: what its processor can do, as Linux names it; None where that cannot be told.
        path: the folders of the caller's PATH.
        root: where its absolute paths start.
        uid: who asks, as a number; 0 is root.
        user: who asks, by name.
        disk: bytes free where lanes are built, None where nobody looked.
        memory: bytes that can be used now, None likewise.
    """

    system: str
    machine: str
    cpu_flags: frozenset[str] | None
    path: tuple[str, ...] = ()
    root: Path = Path("/")
    uid: int = 0
    user: str = "root"
    disk: int | None = None
    memory: int | None = None


def this_machine(build_folder: Path | None = None) -> Host:
    """Return the machine that this runs on.

    Args:
        build_folder: where lanes are built, there or not there yet; None leaves disk and memory unasked.
    """
    return Host(
        system=platform.system(),
        machine=platform.machine(),
        cpu_flags=read_cpu_flags(_CPUINFO) if _CPUINFO.exists() else None,
        path=tuple(os.environ.get("PATH", os.defpath).split(os.pathsep)),
        uid=os.geteuid(),
        user=_user(os.geteuid()),
        disk=None if build_folder is None else _free(build_folder),
        memory=None if build_folder is None else available_memory(),
    )


def read_cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """Return what a processor can do, as Linux lists it.

    Raises:
        OSError: the list cannot be read.
    """
    lines = (line.partition(":") for line in cpuinfo.read_text().splitlines())
    return frozenset(word for key, _, words in lines if key.strip() in _FLAG_LINES for word in words.split())


def same_machine(one: str, other: str) -> bool:
    """Tell whether two names mean one family of processors: macOS and Linux differ over arm64."""
    return _family(one) == _family(other)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)  # a container may run as somebody that it does not know


def _family(machine: str) -> str:
    return {"arm64": "aarch64", "AMD64": "x86_64", "amd64": "x86_64"}.get(machine, machine)


def _free(folder: Path) -> int:
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free
