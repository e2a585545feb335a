"""Looking at a built program: what it needs of a system, what it leaks, and what it says it is."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from dgr_build.errors import CheckError
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.toolchain import version_numbers
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from dgr_build.lanes.environment.made import Made
    from dgr_build.lanes.plan import Plan

_LOADER_PATHS = ("DT_RPATH", "DT_RUNPATH")
_DF_TEXTREL = 0x4
_AGAIN = "build its lane again: dgr-build lane NAME --no-ccache"
_GLIBC = re.compile(r"^GLIBC_(\d+(?:\.\d+)+)$")


@dataclass(frozen=True, kw_only=True)
class ElfFacts:
    """What an executable states to the dynamic loader.

    Args:
        machine: its processor family, as ELF names it.
        needed: the shared libraries it asks for.
        loader_paths: folders it tells the loader to search.
        text_relocations: its code must be written to while it is loaded.
        versions: of each library, the symbol versions that it must have.
    """

    machine: str
    needed: tuple[str, ...]
    loader_paths: tuple[str, ...]
    text_relocations: bool
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def glibc(self) -> str:
        """The oldest glibc that will do, "0" where that plays no part."""
        stated = (version for versions in self.versions.values() for version in versions)
        numbers = [found[1] for version in stated if (found := _GLIBC.match(version))]
        return max(numbers, key=version_numbers, default="0")


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """A worker that passed inspection.

    Args:
        sha256: of the file.
        size: in bytes.
        needed: the shared libraries it asks for.
        glibc: the lowest version of the C library that it runs on.
        version: what it says about itself.
    """

    sha256: str
    size: int
    needed: tuple[str, ...]
    glibc: str
    version: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a program may state to the dynamic loader.

    Args:
        libraries: the shared libraries that it may need.
        run_path: exactly where it may tell the loader to look.
        glibc: the highest version of the C library that it may need.
        private: folders of this machine that must not be found inside.
    """

    libraries: Collection[str]
    run_path: tuple[str, ...]
    glibc: str
    private: Sequence[Path]


def elf_facts(program: Path) -> ElfFacts:
    """Read what an executable states to the dynamic loader.

    Raises:
        CheckError: it is no ELF file.
    """
    try:
        with program.open("rb") as file:
            elf = ELFFile(file)
            section = elf.get_section_by_name(".dynamic")
            tags = list(section.iter_tags()) if isinstance(section, DynamicSection) else []
            return ElfFacts(
                machine=str(elf.header["e_machine"]),
                needed=tuple(_text(tag, "needed") for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
                loader_paths=tuple(
                    _text(tag, tag.entry.d_tag[3:].lower())
                    for tag in tags
                    if tag.entry.d_tag in _LOADER_PATHS
                ),
                text_relocations=any(
                    tag.entry.d_tag == "DT_TEXTREL"
                    or (tag.entry.d_tag == "DT_FLAGS" and tag.entry.d_val & _DF_TEXTREL)
                    for tag in tags
                ),
                versions=_versions(elf),
            )
    except (ELFError, OSError) as error:
        raise CheckError(f"{program} cannot be inspected", cause=str(error), remedy=_AGAIN) from error


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


def check_elf(program: Path, facts: ElfFacts, limits: Limits) -> None:
    """Check that a program needs no more of a system than the lane admits, and tells no path of the build.

    Args:
        program: the executable.
        facts: see `elf_facts`.
        limits: what it may state.

    Raises:
        CheckError: it does; everything found is named.
    """
    found = [f"it needs {name}" for name in facts.needed if name not in limits.libraries]
    searched = [path for entry in facts.loader_paths for path in entry.split(":")]
    if tuple(searched) != limits.run_path:
        paths = ":".join(searched) or "no folder"
        found.append(f"it tells the loader to search {paths}, not {':'.join(limits.run_path)} as stated")
    if version_numbers(facts.glibc) > version_numbers(limits.glibc):
        found.append(f"it needs glibc {facts.glibc}, the lane promises {limits.glibc}")
    if facts.text_relocations:
        found.append("its code has relocations")
    content = program.read_bytes()
    found += [
        f"it contains the path {folder}" for folder in limits.private if str(folder).encode() in content
    ]
    if found:
        raise CheckError(
            f"{program.name} is not fit to leave this machine",
            cause="; ".join(found),
            remedy="allowed libraries are stated in lanes/matrix.toml; everything else is linked statically",
        )


def ask_version(
    program: Path, command: Sequence[str] | None = None, variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Ask a program what it is.

    Args:
        program: a worker.
        command: what starts it where it belongs; itself by default.
        variables: what its environment has beyond the caller's.

    Raises:
        CheckError: it does not start, or what it prints is not a JSON object.
    """
    asked = [*(command or [str(program)]), "--version", "--json"]
    done = run(asked, env={**os.environ, **(variables or {})}, timeout=60)
    try:
        said = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        said = None
    if not isinstance(said, dict):
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise CheckError(
            f"{program.name} cannot say what it is",
            cause=f"{done.command}: {how}\n{(done.stderr or done.stdout).strip()}",
            remedy=_AGAIN,
        )
    return said


def check_version(said: Mapping[str, Any], plan: Plan, must_contain: Sequence[str]) -> None:
    """Hold what a worker says about itself against the plan it was built from.

    Args:
        said: see `ask_version`.
        plan: what it was built from.
        must_contain: backends that must be registered in it.

    Raises:
        CheckError: it says something else, or a backend is missing from it.
    """
    inside = said.get("backends")
    backends = [str(name) for name in inside] if isinstance(inside, list) else []
    missing = [name for name in must_contain if name not in backends]
    if missing:
        raise CheckError(
            f"the worker of lane {plan.lane} lacks the backend {', '.join(missing)}",
            cause=f"it registers {', '.join(backends) or 'none'}",
            remedy="the configure log says why upstream's CMake left it out",
        )
    expected: dict[str, object] = {
        "lane": plan.lane,
        "lane_digest": plan.digest,
        "commit": plan.source.commit,
        "base_tree": plan.source.base_tree,
        "patched_tree": plan.source.patched_tree,
        "upstream_build": plan.source.upstream_build,
        "version": plan.source.version,
        "isa": plan.isa,
    }
    wrong = [
        f"{name} is {said.get(name)!r}, the plan has {value!r}"
        for name, value in expected.items()
        if str(said.get(name)) != str(value)
    ]
    if wrong:
        raise CheckError(
            "the worker is not what was to be built",
            cause="; ".join(wrong),
            remedy=f"remove the build folder and run dgr-build lane {plan.lane} again",
        )


def inspect_worker(
    program: Path, plan: Plan, limits: Limits, *, made: Made, must_contain: Sequence[str]
) -> Inspected:
    """Inspect a built worker in full: the file, and what it says in its environment.

    Raises:
        CheckError: something is not as the lane states it.
    """
    facts = elf_facts(program)
    check_elf(program, facts, limits)
    said = ask_version(program, made.command([program], read=(program.parent,), network=True), made.variables)
    check_version(said, plan, must_contain)
    return Inspected(
        sha256=sha256_file(program),
        size=program.stat().st_size,
        needed=facts.needed,
        glibc=facts.glibc,
        version=said,
    )
