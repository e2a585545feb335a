"""The client that measures workers: built when a benchmark needs it, in the build folder of its lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build.errors import HostError
from dgr_build.lanes import ninja
from dgr_build.lanes.compiler_cache import choose
from dgr_build.lanes.isolation import without_network
from dgr_build.lanes.jobs import available_memory, cores, job_count
from dgr_build.lanes.stamp import read_stamp
from dgr_build.lanes.toolchain import find_toolchain
from dgr_build.lanes.variables import build_variables

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix
    from dgr_build.workspace import Workspace

PROGRAM = "dgr-route-bench"
_LANE = "cpu"


def build_client(ws: Workspace, matrix: Matrix, *, jobs: int | None = None) -> Path:
    """Build the client with what the CPU lane's worker was built with, and return where it lies.

    Args:
        ws: the workspace; the lane is built in it.
        matrix: where the lane comes from.
        jobs: compilers at once, None to let cores and memory decide.

    Raises:
        HostError: the lane was not built.
        BuildError: it does not compile.
    """
    build = ws.build(_LANE)
    stamp = read_stamp(build)
    if stamp is None or not stamp.arguments:
        raise HostError(
            f"lane {_LANE} is not built here",
            cause=f"{PROGRAM} is built in its folder, {build}",
            remedy=f"dgr-build lane {_LANE}",
        )
    toolchain = find_toolchain(matrix.environment[matrix.find(_LANE).environment])
    cache = choose(ws, toolchain.path, setting=None, uncached=False)
    wanted = jobs or job_count(cores(), available_memory())
    with ws.lock("lanes"):
        ninja.build(
            [*without_network(), toolchain.ninja.path, "-C", build, "-j", str(wanted), PROGRAM],
            f"compiling {PROGRAM}",
            ws.logs("lane") / f"{PROGRAM}-build.log",
            variables=build_variables(stamp.plan["variables"], matrix.defaults, cache.variables),
            jobs=wanted,
        )
    return build / "bin" / PROGRAM
