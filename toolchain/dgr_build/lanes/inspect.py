"""Looking at a built program: what it needs of a system, what it leaks, and what it says it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from dgr_build.errors import CheckError
from dgr_build.lanes.archives import sha256_file
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from dgr_build.lanes.plan import Plan

_LOADER_PATHS = ("DT_RPATH", "DT_RUNPATH")
_DF_TEXTREL = 0x4
_OWN_FOLDER = "$ORIGIN"


@dataclass(frozen=True, kw_only=True)
class ElfFacts:
    """What an executable states to the dynamic loader.

    Args:
        machine: its processor family, as ELF names it.
        needed: the shared libraries it asks for.
        loader_paths: folders it tells the loader to search.
        text_relocations: its code must be written to while it is loaded.
    """

    machine: str
    needed: tuple[str, ...]
    loader_paths: tuple[str, ...]
    text_relocations: bool


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """A worker that passed inspection.

    Args:
        sha256: of the file.
        size: in bytes.
        needed: the shared libraries it asks for.
        version: what it says about itself.
    """

    sha256: str
    size: int
    needed: tuple[str, ...]
    version: dict[str, Any]


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
            )
    except (ELFError, OSError) as error:
        raise CheckError(
            f"{program} cannot be inspected", cause=str(error), remedy="build it again: dgr-build lane cpu"
        ) from error


def _text(tag: object, name: str) -> str:
    return str(getattr(tag, name))  # the library adds these attributes by the tag's kind


def check_elf(program: Path, facts: ElfFacts, allowed: Collection[str], private: Sequence[Path]) -> None:
    """Check that a program needs no more of a system than the lane admits, and tells no path of the build.

    Args:
        program: the executable.
        facts: see `elf_facts`.
        allowed: the shared libraries that it may need.
        private: folders of this machine that must not be found inside.

    Raises:
        CheckError: it does; everything found is named.
    """
    found = [f"it needs {name}" for name in facts.needed if name not in allowed]
    found += [f"it tells the loader to search {path}" for path in facts.loader_paths if path != _OWN_FOLDER]
    if facts.text_relocations:
        found.append("its code has relocations")
    content = program.read_bytes()
    found += [f"it contains the path {folder}" for folder in private if str(folder).encode() in content]
    if found:
        raise CheckError(
            f"{program.name} is not fit to leave this machine",
            cause="; ".join(found),
            remedy="allowed libraries are stated in lanes/matrix.toml; everything else is linked statically",
        )


def ask_version(program: Path, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Ask a program what it is.

    Raises:
        CheckError: it does not start, or what it prints is not a JSON object.
    """
    done = run([program, "--version", "--json"], env=variables, timeout=60)
    try:
        said = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        said = None
    if not isinstance(said, dict):
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise CheckError(
            f"{program.name} cannot say what it is",
            cause=f"{done.command}: {how}\n{(done.stderr or done.stdout).strip()}",
            remedy="build it again: dgr-build lane cpu",
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
            remedy="remove the build folder and run dgr-build lane cpu again",
        )


def inspect_worker(
    program: Path,
    plan: Plan,
    *,
    allowed: Collection[str],
    must_contain: Sequence[str],
    private: Sequence[Path],
) -> Inspected:
    """Inspect a built worker in full: the file, and what it says.

    Raises:
        CheckError: something is not as the lane states it.
    """
    facts = elf_facts(program)
    check_elf(program, facts, allowed, private)
    said = ask_version(program)
    check_version(said, plan, must_contain)
    return Inspected(
        sha256=sha256_file(program), size=program.stat().st_size, needed=facts.needed, version=said
    )
