"""How many compilers may run at once: as many as there are cores, and as memory has room for."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_BYTES_A_JOB = 1_500_000_000
_CGROUP = Path("/sys/fs/cgroup")


def available_memory(cgroup: Path = _CGROUP) -> int:
    """Return the bytes that can be used now: free on the machine, and left in this control group."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return min(free, max(int(limit) - used, 0)) if limit.isdecimal() else free


def job_count(cores: int, memory: int) -> int:
    """Return the number of compilers to run at once.

    Args:
        cores: those that this process may use.
        memory: bytes that can be used now.
    """
    return max(1, min(cores, memory // _BYTES_A_JOB))


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
