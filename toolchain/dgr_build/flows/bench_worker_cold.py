"""What a worker reads of a file that is not in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from dgr_build.errors import HostError
from dgr_build.flows.bench_worker_programs import wait_until
from dgr_build.process import Child

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_COLD = 0.01  # of a file may be in memory and it still counts as cold


def make_cold(path: Path) -> None:
    """Have the kernel forget what it holds of a file.

    Raises:
        HostError: it keeps it.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    held, size = bytes_in_memory(path), path.stat().st_size
    if held > size * _COLD:
        raise HostError(
            f"{path.name} stays in memory",
            cause=f"{held} of its {size} bytes are there still: a process maps it, or it lies in memory",
            remedy="let no other program use the model, or put DGR_MODELS on a disk",
        )


def bytes_in_memory(path: Path) -> int:
    """Return how many bytes of a file the kernel holds, in whole pages."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, dtype=np.uint8)
        pages = -(-len(view) // mmap.PAGESIZE)
        seen = (ctypes.c_ubyte * pages)()
        failed = libc.mincore(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(view)), seen)
        del view  # or the mapping could not be closed
    if failed:
        raise HostError("this system does not tell what of a file is in memory", remedy="measure on Linux")
    return int((np.frombuffer(bytes(seen), dtype=np.uint8) & 1).sum()) * mmap.PAGESIZE


def bytes_read_to_serve(argv: Sequence[str | Path], folder: Path) -> tuple[int, str, Child]:
    """Start a worker and return what it had read from disk when it served, its address, and the process.

    Args:
        argv: the worker with its arguments, but for where it writes its port.
        folder: for its port and its log.

    Raises:
        RouteError: it does not serve.
    """
    port_file, log = folder / "cold.port", folder / "cold.log"
    port_file.unlink(missing_ok=True)
    with log.open("wb") as out:
        child = Child([*argv, "--port-file", port_file], stdout=out, stderr=out)
    try:
        wait_until(port_file.exists, child, "the worker", log)
        return _read_bytes(child.pid), f"127.0.0.1:{port_file.read_text().strip()}", child
    except BaseException:
        child.stop()
        raise


def _read_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/io", encoding="ascii") as file:  # noqa: PTH123 - no file of ours
        fields = dict(line.split(": ") for line in file.read().splitlines())
    return int(fields["read_bytes"])
