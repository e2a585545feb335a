"""What a record says of the machine: hardware and software, no names."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dgr_build.artifacts.storage import models_root
from dgr_build.documents.evidence import Environment
from dgr_build.lanes.jobs import cores
from dgr_build.workspace import expand_home

if TYPE_CHECKING:
    from dgr_build.workspace import Workspace

_CPU_INFO = Path("/proc/cpuinfo")


def environment(compiler: str, backend: str) -> Environment:
    """Return this machine as a record states it.

    Args:
        compiler: the C++ compiler with its version.
        backend: what computed, such as "CPU (x86-64-v3)".
    """
    return Environment(
        cpu=_cpu(),
        cores=cores(),
        memory_bytes=psutil.virtual_memory().total,
        os=_distribution(),
        kernel=_kernel(),
        compiler=compiler,
        backend=backend,
    )


def private_folders(ws: Workspace) -> dict[str, str]:
    """Return the folders of this machine that must not be told, each with the name told in its place."""
    named = {
        ws.project: ".",
        ws.project.resolve(): ".",
        ws.root: "$DGR_WORKSPACE" if ws.root.parent != ws.project else ".dgr",
        ws.cache: "$DGR_CACHE",
        models_root(): "$DGR_MODELS",
        Path(expand_home("~")): "~",
    }
    return {str(folder): name for folder, name in named.items()}


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine() or "unknown"


def _kernel() -> str:
    """Return the kernel's version; what a builder appends to it may name a machine."""
    version = re.match(r"[0-9.]+", platform.release())
    return version[0].rstrip(".") if version else "unknown"


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system() or "unknown"
