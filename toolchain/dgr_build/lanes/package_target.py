"""Which systems a built program runs on, told as a wheel's platform tag.

The manylinux tags are promises about glibc and the compiler's libraries (PEP 600). `_ROWS` holds what each of
them grants, in the steps that auditwheel checks by, so that its verdict and ours are the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.errors import CheckError
from dgr_build.lanes.inspect import program_facts
from dgr_build.lanes.toolchain import version_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

# As the formats name them, ELF and Mach-O, and as a wheel's tag does.
_MACHINES = {
    "linux": {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"},
    "macos": {"ARM64": "arm64", "x86_64": "x86_64"},
}

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

_FIRST_NUMBERED_BY_MAJOR = 11  # since macOS 11 the minor number of a tag is 0


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
    minimum: tuple[int, ...] = ()

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
        CheckError: it is no program of Linux or macOS, or for a processor without a name here.
    """
    facts = program_facts(program)
    machines = _MACHINES[facts.system]
    if facts.machine not in machines:
        raise CheckError(
            f"{program.name} is for a processor that no package is made for",
            cause=f"its file names it {facts.machine}; there are {', '.join(machines)}",
            remedy="build the lane for one of these processors",
        )
    return Target(
        system=facts.system,
        machine=machines[facts.machine],
        needed=facts.needed,
        loader_paths=facts.loader_paths,
        versions=facts.versions,
        minimum=version_numbers(facts.macos) if facts.system == "macos" else (),
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
        major, minor, *patch = target.minimum
        if major >= _FIRST_NUMBERED_BY_MAJOR:
            # 14.2 has no tag: the next that is surely new enough
            major, minor = (major + 1, 0) if minor or any(patch) else (major, 0)
        elif any(patch):
            minor += 1
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
