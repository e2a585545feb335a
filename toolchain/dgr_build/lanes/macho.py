"""Reading what a macOS program states to the dynamic loader from its Mach-O file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from macholib.mach_o import (
    CPU_TYPE_NAMES,
    FAT_MAGIC,
    FAT_MAGIC_64,
    LC_BUILD_VERSION,
    LC_RPATH,
    MH_CIGAM,
    MH_CIGAM_64,
    MH_EXECUTE,
    MH_MAGIC,
    MH_MAGIC_64,
    PLATFORM_MACOS,
)
from macholib.MachO import MachO
from macholib.ptypes import sizeof

from dgr_build.errors import CheckError
from dgr_build.lanes.program_facts import REMEDY, ProgramFacts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STARTS = frozenset({FAT_MAGIC, FAT_MAGIC_64, MH_CIGAM, MH_CIGAM_64, MH_MAGIC, MH_MAGIC_64})


def is_macho(program: Path) -> bool:
    """Tell whether a file can be read and starts as a Mach-O file does, of one processor or of several."""
    try:
        with program.open("rb") as file:
            return int.from_bytes(file.read(4), "big") in _STARTS
    except OSError:
        return False


def macho_facts(program: Path) -> ProgramFacts:
    """Read what an executable states to the dynamic loader.

    Raises:
        CheckError: it is no Mach-O program, or one for several processors, or not for macOS.
    """
    try:
        header = _only_header(program)
        return ProgramFacts(
            system="macos",
            machine=str(CPU_TYPE_NAMES.get(header.header.cputype, header.header.cputype)),
            needed=tuple(str(name) for _, _, name in header.walkRelocatables()),
            loader_paths=tuple(_run_paths(header)),
            macos=_oldest(header),
        )
    except (OSError, ValueError, struct.error) as error:
        raise CheckError(f"{program} cannot be inspected", cause=str(error), remedy=REMEDY) from error


def _only_header(program: Path) -> Any:
    # A newer linker writes load commands that the library does not know yet; ours are known.
    headers = MachO(str(program), allow_unknown_load_commands=True).headers
    if len(headers) != 1:
        raise ValueError(f"it is made for {len(headers)} processors, a lane for one")
    if headers[0].header.filetype != MH_EXECUTE:
        raise ValueError("it is no program")
    return headers[0]


def _run_paths(header: Any) -> Iterator[str]:
    for command, body, rest in header.commands:
        if command.cmd == LC_RPATH:
            start = body.path - sizeof(command) - sizeof(body)  # counted from the start of the command
            yield rest[start:].partition(b"\0")[0].decode()


def _oldest(header: Any) -> str:
    for command, body, _ in header.commands:
        if command.cmd == LC_BUILD_VERSION and body.platform == PLATFORM_MACOS:
            major, minor, patch = body.minos >> 16, body.minos >> 8 & 0xFF, body.minos & 0xFF
            return f"{major}.{minor}.{patch}" if patch else f"{major}.{minor}"
    raise ValueError("it does not say which macOS it is for; a lane states CMAKE_OSX_DEPLOYMENT_TARGET")
