"""Reading what a Linux program states to the dynamic loader from its ELF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from dgr_build.errors import CheckError
from dgr_build.lanes.program_facts import REMEDY, ProgramFacts

if TYPE_CHECKING:
    from pathlib import Path

_LOADER_PATHS = ("DT_RPATH", "DT_RUNPATH")
_DF_TEXTREL = 0x4


def elf_facts(program: Path) -> ProgramFacts:
    """Read what an executable states to the dynamic loader.

    Raises:
        CheckError: it is no ELF file.
    """
    try:
        with program.open("rb") as file:
            elf = ELFFile(file)
            section = elf.get_section_by_name(".dynamic")
            tags = list(section.iter_tags()) if isinstance(section, DynamicSection) else []
            return ProgramFacts(
                system="linux",
                machine=str(elf.header["e_machine"]),
                needed=tuple(_text(tag, "needed") for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
                loader_paths=tuple(
                    path
                    for tag in tags
                    if tag.entry.d_tag in _LOADER_PATHS
                    for path in _text(tag, tag.entry.d_tag[3:].lower()).split(":")
                ),
                text_relocations=any(
                    tag.entry.d_tag == "DT_TEXTREL"
                    or (tag.entry.d_tag == "DT_FLAGS" and tag.entry.d_val & _DF_TEXTREL)
                    for tag in tags
                ),
                versions=_versions(elf),
            )
    except (ELFError, OSError) as error:
        raise CheckError(f"{program} cannot be inspected", cause=str(error), remedy=REMEDY) from error


def _versions(elf: ELFFile) -> dict[str, tuple[str, ...]]:
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return {}
    return {
        str(needed.name): tuple(str(version.name) for version in versions)
        for needed, versions in section.iter_versions()
    }


def _text(tag: object, name: str) -> str:
    return str(getattr(tag, name))  # the library adds these attributes by the tag's kind
