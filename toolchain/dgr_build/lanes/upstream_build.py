"""Building programs of upstream's own tree with the values of the CPU lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dgr_build.lanes import ninja
from dgr_build.lanes.build import configure
from dgr_build.lanes.compiler_cache import choose
from dgr_build.lanes.isolation import without_network
from dgr_build.lanes.jobs import available_memory, cores, job_count
from dgr_build.lanes.plan import stated_values
from dgr_build.lanes.toolchain import find_toolchain
from dgr_build.lanes.variables import build_variables, stated_variables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to build of upstream's tree.

    Args:
        source: a checkout of the base or the patched tree.
        programs: CMake targets, which are the names of programs too.
        overrides: CMake values otherwise than the lane has them.
        jobs: compilers at once, None to let cores and memory decide.
    """

    source: Path
    programs: tuple[str, ...]
    overrides: Mapping[str, str] = field(default_factory=dict)
    jobs: int | None = None


def build_upstream(ws: Workspace, matrix: Matrix, wanted: Wanted, build: Path, epoch: int) -> None:
    """Build programs of upstream's tree into the folder `bin` of a build folder; the caller holds its lock.

    Args:
        ws: the workspace, for logs and the compiler cache.
        matrix: where the CPU lane's values come from.
        wanted: what to build.
        build: the build folder.
        epoch: the time that stands for now in what is built, in seconds since 1970.

    Raises:
        BuildError: it does not configure or compile.
    """
    toolchain = find_toolchain(matrix.environment[matrix.find("cpu").environment])
    cache = choose(ws, toolchain.path, setting=None, uncached=False)
    stated = stated_variables(matrix.defaults, toolchain.path, epoch)
    variables = build_variables(stated, matrix.defaults, cache.variables)
    values = {k: v for k, v in stated_values(matrix, "cpu").items() if not k.startswith("DGR_")}
    values |= wanted.overrides
    cut = without_network()
    command: list[str | Path] = [
        *cut, toolchain.cmake.path, "-S", wanted.source, "-B", build, "-G", "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={toolchain.ninja.path}",
        f"-DCMAKE_C_COMPILER={toolchain.c.path}", f"-DCMAKE_CXX_COMPILER={toolchain.cxx.path}",
        *(f"-D{key}={value}" for key, value in sorted(values.items())),
    ]  # fmt: skip
    if cache.launcher is not None:
        command += [f"-DCMAKE_{lang}_COMPILER_LAUNCHER={cache.launcher}" for lang in ("C", "CXX")]
    configure(command, variables, ws.logs("lane") / f"{build.name}-cmake.log")
    jobs = wanted.jobs or job_count(cores(), available_memory())
    ninja.build(
        [*cut, toolchain.ninja.path, "-C", build, "-j", str(jobs), *wanted.programs],
        f"compiling upstream's {', '.join(wanted.programs)} in {build.name}",
        ws.logs("lane") / f"{build.name}-build.log",
        variables=variables,
        jobs=jobs,
    )
