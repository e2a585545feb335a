"""Looking at this machine: what a lane needs of it, what is there, and whether it can run what is built."""

from __future__ import annotations

import os
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import DgrError, HostError
from dgr_build.lanes.toolchain import stated_version, version_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.documents.matrix import InstructionSet, Lane, Matrix, Requirement

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a lane needs, and what this machine has of it.

    Args:
        name: what a person calls it.
        wanted: the least that will do.
        found: what is there, "" for nothing.
        met: whether it will do.
        for_running: needed to run the worker, not to build it.
        remedy: how to get it.
    """

    name: str
    wanted: str
    found: str
    met: bool
    for_running: bool
    remedy: str

    @property
    def line(self) -> str:
        """The finding in one line."""
        use = " to run" if self.for_running else ""
        verdict = "" if self.met else ", which will not do"
        return f"{self.name}: needs {self.wanted}{use}; here is {self.found or 'nothing'}{verdict}"


def examine(matrix: Matrix, lane_name: str) -> tuple[Finding, ...]:
    """Look for everything that a lane needs of this machine.

    Raises:
        UsageError: there is no such lane.
    """
    lane = matrix.find(lane_name)
    isa = matrix.isa[lane.isa]
    # What exists anywhere is worth knowing here; a build searches the environment's own folders only.
    caller = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders = list(dict.fromkeys([*matrix.environment[lane.environment].path, *caller]))
    findings = [_system(lane), *(_look(requirement, folders) for requirement in lane.requires)]
    return (*findings, _processor(isa))


def require_cpu(isa_name: str, isa: InstructionSet, cpuinfo: Path = _CPUINFO) -> None:
    """Refuse to run programs of an instruction set that this machine's processor has not.

    Raises:
        HostError: it would die of an illegal instruction.
    """
    lacking = missing_cpu_flags(isa, cpuinfo)
    if lacking:
        raise HostError(
            f"this processor cannot run what lane instruction set {isa_name} is built for",
            cause=f"it lacks {', '.join(lacking)}",
            remedy="building works here (dgr-build lane cpu --only build); run the result on another machine",
        )


def missing_cpu_flags(isa: InstructionSet, cpuinfo: Path = _CPUINFO) -> tuple[str, ...]:
    """Return what this machine's processor lacks of an instruction set."""
    if platform.machine() != isa.machine:
        return (f"the whole family {isa.machine} (it is {platform.machine()})",)
    if not isa.cpu_flags:
        return ()
    try:
        text = cpuinfo.read_text()
    except OSError as error:
        raise HostError(
            "cannot tell what this processor can do", cause=str(error), remedy="mount /proc"
        ) from error
    flags = {word for line in text.splitlines() if line.startswith("flags") for word in line.split()}
    return tuple(flag for flag in isa.cpu_flags if flag not in flags)


def refuse_planned(lane_name: str, findings: Sequence[Finding]) -> HostError:
    """Return why a lane that is only planned cannot be built, with what it needs and what is missing here."""
    missing = [finding for finding in findings if not finding.met]
    needs = "\n       ".join(finding.line for finding in findings)
    lacks = ", ".join(finding.name for finding in missing if not finding.for_running)
    here = f"this machine lacks {lacks}" if lacks else "though this machine has all it needs"
    return HostError(
        f"lane {lane_name} cannot be built by this version yet; {here}",
        cause=f"what it needs:\n       {needs}",
        remedy="; ".join(dict.fromkeys(f"{finding.name}: {finding.remedy}" for finding in missing))
        or f"dgr-build lane {lane_name} --dry-run shows what it will be; dgr-build lane cpu works today",
    )


def _system(lane: Lane) -> Finding:
    here = platform.system()
    return Finding(
        name="operating system",
        wanted=" or ".join(lane.systems),
        found=here,
        met=here in lane.systems,
        for_running=False,
        remedy=f"use a machine with {' or '.join(lane.systems)}",
    )


def _processor(isa: InstructionSet) -> Finding:
    lacking = missing_cpu_flags(isa)
    return Finding(
        name="processor",
        wanted=f"{isa.machine} with {', '.join(isa.cpu_flags)}" if isa.cpu_flags else isa.machine,
        found=f"{platform.machine()} without {', '.join(lacking)}" if lacking else platform.machine(),
        met=not lacking,
        for_running=True,
        remedy="build here, run on a machine that has it",
    )


def _look(requirement: Requirement, folders: Sequence[str]) -> Finding:
    place, version = _place_and_version(requirement, folders)
    minimum = requirement.minimum
    new_enough = minimum is None or (
        version is not None and version_numbers(version) >= version_numbers(minimum)
    )
    called = " or ".join(requirement.any_program or requirement.any_file)
    return Finding(
        name=requirement.name,
        wanted=f"{called} {minimum} or newer" if minimum else called,
        found=f"{place} {version or ''}".strip() if place else "",
        met=place is not None and new_enough,
        for_running=requirement.for_running,
        remedy=requirement.remedy,
    )


def _place_and_version(requirement: Requirement, folders: Sequence[str]) -> tuple[Path | None, str | None]:
    for name in requirement.any_program:
        found = shutil.which(name, path=os.pathsep.join(folders))
        if found:
            return Path(found), _ask(Path(found), requirement)
    base = Path("/")
    if requirement.beside_program:
        found = shutil.which(requirement.beside_program, path=os.pathsep.join(folders))
        if found is None:
            return None, None
        base = Path(found).resolve().parent
    for name in requirement.any_file:
        file = (base / name).resolve()
        if file.exists():
            return file, _read(file, requirement.pattern)
    return None, None


def _ask(program: Path, requirement: Requirement) -> str | None:
    if not requirement.pattern:
        return None
    try:
        return stated_version(program, requirement.arguments, requirement.pattern)
    except DgrError:  # it is there and cannot be started: as good as of no version
        return None


def _read(file: Path, pattern: str) -> str | None:
    if not pattern:
        return None
    found = re.search(pattern, file.read_text(errors="replace"))
    return found.group(1) if found else None
