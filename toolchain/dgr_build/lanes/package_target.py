"""Which systems a built program runs on: read from its ELF or Mach-O header, told as a wheel's platform tag.

The manylinux tags are promises about glibc and the compiler's libraries (PEP 600). `_ROWS` holds what each of
them grants, in the steps that auditwheel checks by, so that its verdict and ours are the same.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.errors import CheckError
from dgr_build.lanes.inspect import elf_facts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}

# Every Linux that a manylinux tag covers has these.
BASE_LIBRARIES = frozenset(
    {
        "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1",
        "libstdc++.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
    }
)  # fmt: skip

_FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
_ROWS = (
    # the newest symbol versions of: glibc, libstdc++ and its ABI, libgcc
    ((2, 17), (3, 4, 19), (1, 3, 7), (4, 8, 0)),
    ((2, 24), (3, 4, 22), (1, 3, 10), (4, 8, 0)),
    ((2, 26), (3, 4, 22), (1, 3, 10), (4, 8, 0)),
    ((2, 27), (3, 4, 24), (1, 3, 11), (7, 0, 0)),
    ((2, 28), (3, 4, 24), (1, 3, 11), (7, 0, 0)),
    ((2, 31), (3, 4, 28), (1, 3, 12), (7, 0, 0)),
    ((2, 34), (3, 4, 29), (1, 3, 13), (7, 0, 0)),
    ((2, 35), (3, 4, 30), (1, 3, 13), (12, 0, 0)),
    ((2, 36), (3, 4, 30), (1, 3, 13), (12, 0, 0)),
    ((2, 37), (3, 4, 30), (1, 3, 13), (12, 0, 0)),
    ((2, 38), (3, 4, 30), (1, 3, 13), (12, 0, 0)),
    ((2, 39), (3, 4, 33), (1, 3, 15), (14, 0, 0)),
    ((2, 40), (3, 4, 33), (1, 3, 15), (14, 0, 0)),
    ((2, 41), (3, 4, 33), (1, 3, 15), (14, 0, 0)),
)
# Versions that are names: what they came with.
_NAMED = {"GLIBC_ABI_DT_RELR": (2, 36), "CXXABI_TM_1": (1, 3, 7), "CXXABI_FLOAT128": (1, 3, 7)}

_MACHO_64 = 0xFEEDFACF
_MACHO_ARM64 = 0x0100000C
_LC_LOAD_DYLIB = 0x0C
_LC_RPATH = 0x8000001C
_LC_BUILD_VERSION = 0x32
_MACOS = 1
_FIRST_NUMBERED_BY_MAJOR = 11  # since macOS 11 a tag's minor number is 0


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a program runs.

    Args:
        system: linux or macos.
        machine: the processor, as a wheel's tag names it.
        needed: the shared libraries that it asks for.
        loader_paths: the folders where the loader looks for them first.
        versions: of each library, the symbol versions that it must have.
        minimum: the oldest macOS, () on Linux.
    """

    system: str
    machine: str
    needed: tuple[str, ...]
    loader_paths: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]
    minimum: tuple[int, int] | tuple[()] = ()

    def newest(self, library: str) -> dict[str, str]:
        """Return the newest version of each family of symbols that is asked of a library."""
        found: dict[str, str] = {}
        numbered = (version for version in self.versions.get(library, ()) if version not in _NAMED)
        for version in sorted(numbered, key=_order):
            family, _, number = version.rpartition("_")
            found[family] = number
        return found

    @property
    def glibc(self) -> str:
        """The oldest glibc that will do, "" elsewhere."""
        asked = [v for name in self.needed for v in self.versions.get(name, ()) if v.startswith("GLIBC_")]
        numbers = [number for number in map(version_number, asked) if number is not None]
        return ".".join(map(str, max(numbers)[:2])) if numbers else ""


def read_target(program: Path) -> Target:
    """Read from a program what it needs of a system.

    Raises:
        CheckError: it is neither an ELF nor a 64-bit Mach-O program, or for a processor without a name here.
    """
    with program.open("rb") as file:
        start = file.read(4)
    if start == struct.pack("<I", _MACHO_64):
        return _macho(program)
    facts = elf_facts(program)
    if facts.machine not in _MACHINES:
        raise CheckError(
            f"{program.name} is for a processor that no package is made for",
            cause=f"ELF names it {facts.machine}; there are {', '.join(_MACHINES)}",
            remedy="build the lane for one of these processors",
        )
    return Target(
        system="linux",
        machine=_MACHINES[facts.machine],
        needed=facts.needed,
        loader_paths=tuple(path for entry in facts.loader_paths for path in entry.split(":")),
        versions=facts.versions,
    )


def platform_tag(target: Target, provided: Collection[str] = ()) -> str:
    """Return the platform tag of a wheel.

    A program that needs a library which neither every Linux has nor the wheel's own requirements bring gets
    `linux_MACHINE`: a manylinux tag would promise that it starts wherever glibc is new enough. Libraries that
    requirements bring do not count, as with auditwheel's --exclude.

    Args:
        target: see `read_target`.
        provided: libraries that the wheel's requirements bring.
    """
    if target.system == "macos":
        major, minor = target.minimum or (_FIRST_NUMBERED_BY_MAJOR, 0)
        if major >= _FIRST_NUMBERED_BY_MAJOR and minor:
            major, minor = major + 1, 0  # 14.2 has no tag: the next that is surely new enough
        return f"macosx_{major}_{minor}_{target.machine}"
    foreign = [name for name in target.needed if name not in BASE_LIBRARIES and name not in provided]
    floor = None if foreign else _manylinux(target)
    return f"manylinux_{floor[0]}_{floor[1]}_{target.machine}" if floor else f"linux_{target.machine}"


def version_number(version: str) -> tuple[int, ...] | None:
    """Return the number in a symbol version such as GLIBC_2.34; None where it has none that is known."""
    if version in _NAMED:
        return _NAMED[version]
    number = version.rpartition("_")[2]
    return tuple(map(int, number.split("."))) if re.fullmatch(r"\d+(\.\d+)*", number) else None


def _order(version: str) -> tuple[int, ...]:
    return version_number(version) or ()


def _manylinux(target: Target) -> tuple[int, ...] | None:
    """Return the first row that grants everything asked of the base libraries; None where none does."""
    asked: dict[str, tuple[int, ...]] = dict.fromkeys(_FAMILIES, ())
    for library in BASE_LIBRARIES.intersection(target.versions):
        for version in target.versions[library]:
            family, number = version.partition("_")[0], version_number(version)
            if family not in asked or number is None:
                return None  # private to its library, or of a family without promises
            asked[family] = max(asked[family], number)
    wanted = tuple(asked.values())
    for row in _ROWS:
        if all(want <= granted for want, granted in zip(wanted, row, strict=True)):
            return row[0]
    return None


def _macho(program: Path) -> Target:
    data = program.read_bytes()
    needed, paths, minimum = [], [], None
    try:
        (processor,) = struct.unpack_from("<I", data, 4)
        for command, body in _load_commands(data):
            if command == _LC_LOAD_DYLIB:
                needed.append(_text(body))
            elif command == _LC_RPATH:
                paths.append(_text(body))
            elif command == _LC_BUILD_VERSION:
                system, oldest = struct.unpack_from("<II", body, 8)
                minimum = (oldest >> 16, oldest >> 8 & 0xFF) if system == _MACOS else None
    except (struct.error, ValueError) as error:
        raise CheckError(
            f"{program} cannot be inspected", cause=str(error), remedy="build it again: dgr-build lane metal"
        ) from error
    if minimum is None:
        raise CheckError(
            f"{program.name} does not say which macOS it is for",
            cause="it has no build version of macOS",
            remedy="the lane states CMAKE_OSX_DEPLOYMENT_TARGET; build it again: dgr-build lane metal",
        )
    return Target(
        system="macos",
        machine="arm64" if processor == _MACHO_ARM64 else "x86_64",
        needed=tuple(needed),
        loader_paths=tuple(paths),
        versions={},
        minimum=minimum,
    )


def _load_commands(data: bytes) -> Iterator[tuple[int, bytes]]:
    (count,) = struct.unpack_from("<I", data, 16)
    at = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        if size < 8 or at + size > len(data):  # noqa: PLR2004 - kind and size themselves
            raise ValueError(f"a load command of {size} bytes at {at}")
        yield command, data[at : at + size]
        at += size


def _text(body: bytes) -> str:
    (offset,) = struct.unpack_from("<I", body, 8)
    return body[offset:].split(b"\0", 1)[0].decode()
