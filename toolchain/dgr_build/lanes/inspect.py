"""Looking at a built program: what it needs of a system, what it leaks, and what it says it is."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build.errors import CheckError
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.elf import elf_facts
from dgr_build.lanes.macho import is_macho, macho_facts
from dgr_build.lanes.program_facts import REMEDY
from dgr_build.lanes.toolchain import version_numbers
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from dgr_build.lanes.environment.made import Made
    from dgr_build.lanes.plan import Plan
    from dgr_build.lanes.program_facts import ProgramFacts


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """A worker that passed inspection.

    Args:
        sha256: of the file.
        size: in bytes.
        needed: the shared libraries it asks for.
        glibc: the lowest version of the C library that it runs on, "0" where that plays no part.
        macos: the lowest version of macOS that it runs on, likewise.
        version: what it says about itself.
    """

    sha256: str
    size: int
    needed: tuple[str, ...]
    glibc: str
    version: dict[str, Any]
    macos: str = "0"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a program may state to the dynamic loader.

    Args:
        libraries: the shared libraries that it may need.
        run_path: exactly where it may tell the loader to look.
        glibc: the highest version of the C library that it may need.
        macos: the highest version of macOS that it may need, "0" where the lane states none.
        private: folders of this machine that must not be found inside.
    """

    libraries: Collection[str]
    run_path: tuple[str, ...]
    glibc: str
    private: Sequence[Path]
    macos: str = "0"


def program_facts(program: Path) -> ProgramFacts:
    """Read what an executable of Linux or of macOS states to the dynamic loader.

    Raises:
        CheckError: it is neither, or cannot be read.
    """
    return macho_facts(program) if is_macho(program) else elf_facts(program)


def check_facts(program: Path, facts: ProgramFacts, limits: Limits) -> None:
    """Check that a program needs no more of a system than the lane admits, and tells no path of the build.

    Args:
        program: the executable.
        facts: see `program_facts`.
        limits: what it may state.

    Raises:
        CheckError: it does; everything found is named.
    """
    found = [f"it needs {name}" for name in facts.needed if name not in limits.libraries]
    if facts.loader_paths != limits.run_path:
        paths = ":".join(facts.loader_paths) or "no folder"
        found.append(f"it tells the loader to search {paths}, not {':'.join(limits.run_path)} as stated")
    if version_numbers(facts.glibc) > version_numbers(limits.glibc):
        found.append(f"it needs glibc {facts.glibc}, the lane promises {limits.glibc}")
    if version_numbers(facts.macos) > version_numbers(f"{limits.macos}.0.0"):  # 14 is stated, 14.0 is read
        found.append(f"it needs macOS {facts.macos}, the lane promises {limits.macos}")
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
            remedy=REMEDY,
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
    facts = program_facts(program)
    check_facts(program, facts, limits)
    said = ask_version(program, made.command([program], read=(program.parent,), network=True), made.variables)
    check_version(said, plan, must_contain)
    return Inspected(
        sha256=sha256_file(program),
        size=program.stat().st_size,
        needed=facts.needed,
        glibc=facts.glibc,
        macos=facts.macos,
        version=said,
    )
