"""Upstream's own benchmarks and its RPC server, built from the base tree: what workers are measured against.

The lane's values are used but for those below: common and tools are on, since the programs need them, and the
RPC backend is on, which no lane has. It decides nothing of what the CPU backend computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.lanes.upstream_build import Wanted, build_upstream

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix
    from dgr_build.workspace import Workspace

OVERRIDES = {"LLAMA_BUILD_COMMON": "ON", "LLAMA_BUILD_TOOLS": "ON", "GGML_RPC": "ON"}
_PROGRAMS = ("llama-bench", "llama-batched-bench", "ggml-rpc-server")


@dataclass(frozen=True, kw_only=True)
class UpstreamTools:
    """Upstream's programs.

    Args:
        bench: llama-bench.
        batched_bench: llama-batched-bench.
        rpc_server: ggml-rpc-server.
    """

    bench: Path
    batched_bench: Path
    rpc_server: Path


def build_tools(ws: Workspace, matrix: Matrix, *, epoch: int, jobs: int | None = None) -> UpstreamTools:
    """Build upstream's programs from the published base tree, and return where they lie.

    Args:
        ws: the workspace; the build goes to its folder `upstream-tools`.
        matrix: where the CPU lane's values come from.
        epoch: the time that stands for now in what is built, in seconds since 1970.
        jobs: compilers at once, None to let cores and memory decide.

    Raises:
        BuildError: it does not configure or compile.
    """
    build = ws.build("upstream-tools")
    wanted = Wanted(source=ws.base_source, programs=_PROGRAMS, overrides=OVERRIDES, jobs=jobs)
    with ws.lock(build.name):
        build_upstream(ws, matrix, wanted, build, epoch)
    bench, batched_bench, rpc_server = (build / "bin" / name for name in _PROGRAMS)
    return UpstreamTools(bench=bench, batched_bench=batched_bench, rpc_server=rpc_server)
