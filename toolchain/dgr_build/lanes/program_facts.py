"""What a program states to the dynamic loader of its system, whatever format its file has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dgr_build.lanes.toolchain import version_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

REMEDY = "build its lane again: dgr-build lane NAME --no-ccache"
_GLIBC = re.compile(r"^GLIBC_(\d+(?:\.\d+)+)$")


@dataclass(frozen=True, kw_only=True)
class ProgramFacts:
    """What an executable states to the dynamic loader.

    Args:
        system: linux for an ELF file, macos for a Mach-O file.
        machine: its processor family, as the format names it.
        needed: the shared libraries it asks for; on macOS with their folders.
        loader_paths: folders it tells the loader to search, one by one.
        text_relocations: its code must be written to while it is loaded.
        versions: of each library, the symbol versions that it must have; macOS has none.
        macos: the oldest macOS that it starts on, "0" where that plays no part.
    """

    system: Literal["linux", "macos"] = "linux"
    machine: str
    needed: tuple[str, ...]
    loader_paths: tuple[str, ...]
    text_relocations: bool = False
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    macos: str = "0"

    @property
    def glibc(self) -> str:
        """The oldest glibc that will do, "0" where that plays no part."""
        stated = (version for versions in self.versions.values() for version in versions)
        numbers = [found[1] for version in stated if (found := _GLIBC.match(version))]
        return max(numbers, key=version_numbers, default="0")
