"""Looking at this machine: what a lane needs of it, what is there, and whether it can run what is built."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import HostError
from dgr_build.lanes.compatibility import check_cuda_architectures, check_hip, known, toolkit_version
from dgr_build.lanes.environment_needs import NOT_MADE, Reach, look_for_required
from dgr_build.lanes.finding import Finding
from dgr_build.lanes.host import Host, read_cpu_flags, same_machine, this_machine
from dgr_build.lanes.host_tools import examine_tools
from dgr_build.lanes.requirements import Place, look
from dgr_build.lanes.subordinate_ids import examine_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dgr_build.documents.compatibility import Compatibility
    from dgr_build.documents.matrix import InstructionSet, Lane, Matrix

_CPUINFO = Path("/proc/cpuinfo")


def examine(
    matrix: Matrix, lane_name: str, *, host: Host | None = None, reach: Reach = NOT_MADE
) -> tuple[Finding, ...]:
    """Look for everything that a lane needs of this machine.

    Args:
        matrix: all lanes.
        lane_name: one of them.
        host: the machine; by default this one, without a look at disk and memory.
        reach: how far the lane's environment is made, where that is not the machine itself.

    Raises:
        UsageError: there is no such lane.
    """
    lane = matrix.find(lane_name)
    environment = matrix.environment[lane.environment]
    host = host or this_machine()
    found = [_system(lane, host), *_family(matrix, lane_name, host)]
    able = all(finding.met for finding in found)
    if able and environment.kind != "sysroot":
        found += examine_tools(environment, host, lane_name)
    caller = Place(folders=host.path, root=host.root)
    # What exists anywhere will do here; compilers come from the environment's own folders only.
    here = Place(folders=tuple(dict.fromkeys([*environment.path, *host.path])), root=host.root)
    if able:
        # What makes and enters a root is started by the caller's PATH; in the root nothing of it counts.
        made_by = caller if environment.kind == "sysroot" else here
        found += [look(needed, made_by) for needed in known().environment.get(environment.kind, ())]
        if environment.kind == "sysroot" and not reach.made:
            found += examine_ids(host, caller)
    found += look_for_required(matrix, lane_name, here, reach, {finding.name for finding in found})
    if able:
        found += _fitting(lane, matrix, found, reach)
    found += [*_device(lane, matrix, host), *_processor(matrix.isa[lane.isa], host)]
    return (*found, *(_room(known(), lane.backend, host, reach) if able else ()))


def require_cpu(isa_name: str, isa: InstructionSet, cpuinfo: Path = _CPUINFO) -> None:
    """Refuse to run programs of an instruction set that this machine's processor has not.

    Raises:
        HostError: it would die of an illegal instruction.
    """
    lacking = missing_cpu_flags(isa, cpuinfo)
    if lacking:
        raise HostError(
            f"this processor cannot run what instruction set {isa_name} is built for",
            cause=f"it lacks {', '.join(lacking)}",
            remedy="building works here (dgr-build lane cpu --only build); run the result on another machine",
        )


def missing_cpu_flags(isa: InstructionSet, cpuinfo: Path = _CPUINFO) -> tuple[str, ...]:
    """Return what this machine's processor lacks of an instruction set.

    Raises:
        HostError: what the processor can do cannot be told.
    """
    here = platform.machine()
    if not same_machine(here, isa.machine):
        return (f"the whole family {isa.machine} (it is {here})",)
    if not isa.cpu_flags:
        return ()
    try:
        flags = read_cpu_flags(cpuinfo)
    except OSError as error:
        raise HostError(
            "cannot tell what this processor can do", cause=str(error), remedy="mount /proc"
        ) from error
    return tuple(flag for flag in isa.cpu_flags if flag not in flags)


def can_build(findings: Iterable[Finding]) -> bool:
    """Tell whether nothing that building needs is missing."""
    return all(finding.met for finding in findings if finding.kind == "build")


def can_run(findings: Iterable[Finding]) -> bool:
    """Tell whether nothing that running needs is missing."""
    return all(finding.met for finding in findings if finding.kind == "run")


def refuse(lane_name: str, findings: Sequence[Finding]) -> HostError:
    """Return why a lane cannot be built: what is missing first, each with its remedy, then the rest."""
    missing = sorted((finding for finding in findings if not finding.met), key=lambda one: one.for_running)
    lacks = ", ".join(finding.name for finding in missing if not finding.for_running)
    lines = [f"{finding.line}\n         {finding.remedy}" for finding in missing]
    lines += [finding.line for finding in findings if finding.met]
    return HostError(
        f"lane {lane_name} cannot be built here; this machine lacks {lacks}",
        cause="what it needs, what is missing first:\n       " + "\n       ".join(lines),
        remedy="; ".join(dict.fromkeys(finding.remedy for finding in missing if not finding.for_running)),
    )


def _system(lane: Lane, host: Host) -> Finding:
    wanted = " or ".join(lane.systems)
    return Finding(
        name="operating system",
        kind="build",
        wanted=wanted,
        met=host.system in lane.systems,
        remedy=f"use a machine with {wanted}",
        note=host.system,
    )


def _family(matrix: Matrix, lane_name: str, host: Host) -> tuple[Finding, ...]:
    """Return whether the compilers here make code for the lane's machine."""
    lane = matrix.lane[lane_name]
    machine = matrix.isa[lane.isa].machine
    met = same_machine(machine, host.machine)
    fitting = [
        name
        for name, other in matrix.lane.items()
        if same_machine(matrix.isa[other.isa].machine, host.machine) and host.system in other.systems
    ]
    instead = f", or build a lane for this one: dgr-build lane {fitting[0]}" if fitting else ""
    return (
        Finding(
            name="machine",
            kind="build",
            wanted=machine,
            met=met,
            remedy=f"use a machine of the family {machine}{instead}",
            note=host.machine,
        ),
    )


def _fitting(lane: Lane, matrix: Matrix, found: Sequence[Finding], reach: Reach) -> tuple[Finding, ...]:
    """Judge the lane's architectures by the version of what compiles for them."""
    if lane.backend == "cuda":
        version = toolkit_version(matrix.environment[lane.environment].wheels)
        return (check_cuda_architectures(version, lane.architectures),) if version else ()
    if lane.backend == "rocm" and (reach.made or matrix.environment[lane.environment].kind == "host"):
        hip = next((one.version for one in found if one.path.endswith("hipcc") and one.version), "")
        return (check_hip(hip, lane.architectures),) if hip else ()
    return ()


def _device(lane: Lane, matrix: Matrix, host: Host) -> tuple[Finding, ...]:
    device = known().device.get(lane.backend)
    if device is None:
        return ()
    there = next((file for file in device.files if (host.root / file.lstrip("/")).exists()), "")
    serves = bool(device.software) and device.software in matrix.environment[lane.environment].packages
    software = f"the software device of environment {lane.environment} ({device.software})"
    return (
        Finding(
            name=device.name,
            kind="run",
            wanted=" or ".join(device.files) + (f", or {software}" if serves else ""),
            met=bool(there) or serves,
            remedy=device.remedy,
            path=there,
            note="" if there or not serves else software,
            stand_in=serves and not there,
        ),
    )


def _processor(isa: InstructionSet, host: Host) -> tuple[Finding, ...]:
    wanted = f"{isa.machine} with {', '.join(isa.cpu_flags)}" if isa.cpu_flags else isa.machine
    if not same_machine(isa.machine, host.machine):
        met, note = False, host.machine
    elif isa.cpu_flags and host.cpu_flags is None:
        met, note = False, f"{host.machine}, and nothing tells what it can do"
    else:
        lacking = [flag for flag in isa.cpu_flags if flag not in (host.cpu_flags or ())]
        met, note = not lacking, f"{host.machine} without {', '.join(lacking)}" if lacking else host.machine
    remedy = f"run what is built on a machine that has it: {wanted}"
    return (Finding(name="processor", kind="run", wanted=wanted, met=met, remedy=remedy, note=note),)


def _room(table: Compatibility, backend: str, host: Host, reach: Reach) -> tuple[Finding, ...]:
    """Judge free disk and memory by what a lane takes, as far as somebody looked."""
    needed = table.resources.get(backend)
    if needed is None:
        return ()
    disk = needed.disk_mb * 1_000_000 + (0 if reach.made else reach.size)
    rooms = (
        (
            "disk",
            host.disk,
            disk,
            "free some space, or set DGR_WORKSPACE and DGR_CACHE to another file system",
        ),
        ("memory", host.memory, needed.memory_mb * 1_000_000, "end other programs, or use a larger machine"),
    )
    return tuple(
        Finding(
            name=f"free {name}",
            kind="build",
            wanted=f"{least / 1e9:.1f} GB",
            met=free >= least,
            remedy=remedy,
            note=f"{free / 1e9:.1f} GB",
        )
        for name, free, least, remedy in rooms
        if free is not None
    )
