"""Device code: what its build states to CMake, and whether a worker holds just the architectures asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dgr_build.errors import CheckError
from dgr_build.process import run

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Lane
    from dgr_build.lanes.environment.made import Made

_ELF = re.compile(r"\.sm_(\w+)\.cubin$")
_PTX = re.compile(r"\.sm_(\w+)\.ptx$")
_BUNDLE = re.compile(rb"hipv4-amdgcn-amd-amdhsa--(gfx[0-9a-f]+)")
_FOLDERS = ("source", "project", "build")
# A compiler cache that clones share hands relative paths to the compiler, and these would be told.
_RELATIVE = ("source", "project")


@dataclass(frozen=True, kw_only=True)
class DeviceArguments:
    """What a language of device code adds to a configure run.

    Args:
        languages: as CMake names them.
        arguments: cmake's, with placeholders of `Plan`.
    """

    languages: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def prefix_maps() -> str:
    """Return the flags of gcc and clang that write folders of this machine as names."""
    return " ".join(f'"{flag}"' for flag in _maps())


def _maps() -> tuple[str, ...]:
    return (
        *(f"-ffile-prefix-map=${{{name}}}={name}" for name in _FOLDERS),
        *(f"-ffile-prefix-map=${{{name}-from-build}}={name}" for name in _RELATIVE),
    )


def _nvcc_flags() -> str:
    # nvcc hands what it passes on to a shell, so quotes of our own must reach it. Without -objtemp, the names
    # of its temporary files, process id and all, end up in the object.
    maps = (f"'-Xcompiler=\"{flag}\"'" for flag in _maps())
    return " ".join(["-objtemp", *maps])


def device_arguments(language: Literal["CUDA", "HIP", "none"]) -> DeviceArguments:
    """Return what a language of device code adds to a configure run."""
    if language == "CUDA":
        return DeviceArguments(
            languages=("CUDA",),
            arguments=(
                "-DCMAKE_CUDA_COMPILER:FILEPATH=${device}",
                "-DCMAKE_CUDA_HOST_COMPILER:FILEPATH=${cxx}",
                "-DCMAKE_CUDA_RUNTIME_LIBRARY:STRING=Shared",
                "-DCUDAToolkit_ROOT:PATH=${toolkit}",
                f"-DCMAKE_CUDA_FLAGS:STRING={_nvcc_flags()}",
            ),
        )
    if language == "HIP":
        return DeviceArguments(
            languages=("HIP",),
            arguments=(
                "-DCMAKE_HIP_COMPILER:FILEPATH=${device}",
                # The default makes an id of paths and arguments, for linking device code, which is not done.
                # Without it every object has the same symbol __hip_cuid_, and nothing refers to it.
                "-DCMAKE_EXE_LINKER_FLAGS:STRING=-Wl,--allow-multiple-definition",
                f"-DCMAKE_HIP_FLAGS:STRING=-fuse-cuid=none {prefix_maps()}",
            ),
        )
    return DeviceArguments()


def check_device_code(program: Path, lane: Lane, made: Made) -> tuple[str, ...]:
    """Check that a worker holds device code for exactly the architectures of its lane.

    Returns:
        the architectures that were found; none where the lane's device code is not made per architecture.

    Raises:
        CheckError: some are missing, or there are others; both are named.
    """
    if lane.device is None or lane.device.language == "none":
        return ()
    if lane.device.language == "CUDA":
        found = {f"{name}-real" for name in _listed(program, made, "--list-elf", _ELF)}
        found |= {f"{name}-virtual" for name in _listed(program, made, "--list-ptx", _PTX)}
    else:
        found = {name.decode() for name in _BUNDLE.findall(program.read_bytes())}
    asked = _asked(lane)
    if found != asked:
        raise CheckError(
            f"{program.name} does not hold device code for just the architectures of its lane",
            cause=f"asked for {', '.join(sorted(asked))}; found {', '.join(sorted(found)) or 'none'}",
            remedy="they are stated in lanes/matrix.toml; remove the build folder and build again",
        )
    return tuple(sorted(found))


def _asked(lane: Lane) -> set[str]:
    """Return the architectures of a lane, those without a suffix as both of what CMake makes of them."""
    asked = set()
    for name in lane.architectures:
        plain = lane.device is not None and lane.device.language == "CUDA" and "-" not in name
        asked |= {f"{name}-real", f"{name}-virtual"} if plain else {name}
    return asked


def _listed(program: Path, made: Made, option: str, pattern: re.Pattern[str]) -> set[str]:
    tool = (made.root / "bin" / "cuobjdump") if made.root is not None else "cuobjdump"
    done = run(made.command([tool, option, program], read=(program.parent,), network=True))
    if done.returncode != 0:
        if "does not contain device code" in done.stderr + done.stdout:
            return set()
        raise CheckError(
            f"cuobjdump cannot read {program}",
            cause=done.stderr.strip() or done.stdout.strip(),
            remedy="its version must fit the toolkit's: see the environment's wheels in lanes/matrix.toml",
        )
    return {found[1] for line in done.stdout.splitlines() if (found := pattern.search(line))}
