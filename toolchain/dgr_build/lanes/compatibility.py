"""Judging versions: CUDA with host compilers and architectures, HIP with GPU targets, glslc."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from dgr_build.documents.compatibility import Compatibility, CudaToolkit, load_compatibility
from dgr_build.lanes.finding import Finding
from dgr_build.lanes.toolchain import version_numbers
from dgr_build.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

_NVCC_WHEEL = re.compile(r"^nvidia-cuda-nvcc(?:-cu\d+)?==(\d+\.\d+)")
_FAMILY = {"g++": "gcc", "gcc": "gcc", "clang++": "clang", "clang": "clang"}
_PACKAGE = {"gcc": "g++", "clang": "clang"}
_PROGRAM = {"gcc": "g++", "clang": "clang++"}


@cache
def known() -> Compatibility:
    """Return the project's own table.

    Raises:
        UsageError: it cannot be read, or a field is wrong.
    """
    return load_compatibility(Workspace.open().compatibility_file)


def toolkit_version(wheels: Sequence[str]) -> str | None:
    """Return the CUDA toolkit that wheels come to, as major and minor; None when none is CUDA's."""
    found = (_NVCC_WHEEL.match(wheel) for wheel in wheels)
    return next((match.group(1) for match in found if match), None)


def check_cuda_architectures(version: str, architectures: Sequence[str]) -> Finding:
    """Judge whether a toolkit can make code for all architectures.

    Args:
        version: of the toolkit, at least major and minor.
        architectures: as CMake takes them: `90`, `90-real`, `90a-virtual`.

    Returns:
        what was found; where it is not met, the remedy names toolkits that serve the architectures left out.
    """
    name, wanted = "GPU architectures", ", ".join(architectures)
    toolkit = _toolkit(version)
    if toolkit is None:
        return _unknown(name, wanted, f"CUDA {version}")
    lacking = [one for one in architectures if _number(one) not in toolkit.architectures]
    if not lacking:
        return Finding(
            name=name,
            kind="build",
            wanted=wanted,
            met=True,
            remedy="",
            note=f"CUDA {toolkit.version} makes code for all of them",
        )
    return Finding(
        name=name,
        kind="build",
        wanted=wanted,
        met=False,
        remedy="; ".join(_serving(one, toolkit) for one in lacking),
        note=f"CUDA {toolkit.version} makes no code for {', '.join(lacking)}",
    )


def check_host_compiler(version: str, compiler: str, stated: str, here: Sequence[str] = ()) -> Finding:
    """Judge whether nvcc of a toolkit accepts a host compiler.

    Args:
        version: of the toolkit, at least major and minor.
        compiler: g++ or clang++, gcc or clang.
        stated: the compiler's version.
        here: paths of other compilers of the same family that this machine has.

    Returns:
        what was found; where it is not met, the remedy names one that serves and how the lane takes it.
    """
    name = f"host compiler for CUDA {version}"
    family = _FAMILY[compiler]
    toolkit = _toolkit(version)
    if toolkit is None:
        return _unknown(name, compiler, f"CUDA {version}")
    highest = toolkit.gcc if family == "gcc" else toolkit.clang
    met = version_numbers(stated)[0] <= highest
    return Finding(
        name=name,
        kind="build",
        wanted=f"{_PROGRAM[family]} {highest} or older",
        met=met,
        remedy="" if met else _other_compiler(family, highest, here),
        version=f"{compiler} {stated}",
    )


def check_hip(version: str, targets: Sequence[str]) -> Finding:
    """Judge whether a version of HIP serves llama.cpp and all targets (gfx names, features after a colon)."""
    hip = known().hip
    numbers = version_numbers(version)
    since = {target: hip.target_since.get(target.split(":")[0]) for target in targets}
    late = {target: first for target, first in since.items() if first and version_numbers(first) > numbers}
    strange = [target for target, first in since.items() if first is None]
    too_old = numbers < version_numbers(hip.minimum)
    needed = max([*late.values(), *([hip.minimum] if too_old else [])], key=version_numbers, default="")
    return Finding(
        name="HIP and its GPU targets",
        kind="build",
        wanted=f"HIP {hip.minimum} or newer that serves {', '.join(targets)}",
        met=not needed,
        remedy=f"take an environment with HIP {needed} or newer" if needed else "",
        version=f"HIP {version}",
        note=_about_targets(late, strange),
    )


def _toolkit(version: str) -> CudaToolkit | None:
    short = ".".join(version.split(".")[:2])
    return next((toolkit for toolkit in known().cuda if toolkit.version == short), None)


def _number(architecture: str) -> str:
    return architecture.split("-", maxsplit=1)[0]


def _serving(architecture: str, toolkit: CudaToolkit) -> str:
    """Return which toolkit makes code for an architecture: the last before, or the first after this one."""
    mine = version_numbers(toolkit.version)
    serving = [one.version for one in known().cuda if _number(architecture) in one.architectures]
    older = [version for version in serving if version_numbers(version) < mine]
    newer = [version for version in serving if version_numbers(version) > mine]
    if older:
        return f"for {architecture} take CUDA {older[-1]}, the last that makes code for it, or leave it out"
    if newer:
        return f"for {architecture} take CUDA {newer[0]} or newer, or leave it out"
    return f"leave {architecture} out: no known CUDA makes code for it"


def _other_compiler(family: str, highest: int, here: Sequence[str]) -> str:
    """Return how to get a compiler that nvcc accepts, and how a lane is told to take it."""
    package = f"{_PACKAGE[family]}-{highest}"
    path = here[0] if here else f"/usr/bin/{_PROGRAM[family]}-{highest}"
    take = f"dgr-build lane cuda --set cmake.CMAKE_CUDA_HOST_COMPILER={path}"
    return take if here else f"apt-get install {package} && {take}"


def _about_targets(late: dict[str, str], strange: Sequence[str]) -> str:
    words = [f"it serves {target} from {first} on" for target, first in late.items()]
    if strange:
        words.append(f"nothing is known of {', '.join(strange)}")
    return f"({'; '.join(words)})" if words else ""


def _unknown(name: str, wanted: str, what: str) -> Finding:
    versions = [toolkit.version for toolkit in known().cuda]
    return Finding(
        name=name,
        kind="build",
        wanted=wanted,
        met=True,
        remedy="",
        note=f"not judged: {what} is not in lanes/compatibility.toml, which knows {', '.join(versions)}",
    )
