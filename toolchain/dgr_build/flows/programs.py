"""The programs of built lanes: where they lie, and how they are started on this machine."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from dgr_build.errors import HostError
from dgr_build.lanes.build import PROGRAMS
from dgr_build.lanes.compatibility import known
from dgr_build.lanes.environment.manage import enter
from dgr_build.lanes.inspect import ask_version
from dgr_build.process import run
from dgr_build.route.program import Program

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Lane, Matrix
    from dgr_build.lanes.environment.made import Made
    from dgr_build.workspace import Workspace

_START_S = 120.0
_DEVICE_START_S = 900.0  # a driver may have to compile every kernel first


def worker_of(ws: Workspace, matrix: Matrix, lane_name: str) -> Program:
    """Return the worker of a lane, with its environment and its device.

    Of several profiles that were built, the one that was built last is taken.

    Raises:
        HostError: it was not built, or its environment is gone.
        UsageError: there is no such lane.
    """
    lane = matrix.find(lane_name)
    name = PROGRAMS["worker"]
    folders = [ws.build(lane_name), *(ws.build(f"{lane_name}-{profile}") for profile in lane.profiles)]
    there = [path for folder in folders if (path := folder / "bin" / name).is_file()]
    if not there:
        raise _not_built(lane_name, folders[0] / "bin" / name)
    newest = max(there, key=lambda path: path.stat().st_mtime)
    return program_of(ws, lane, newest, enter(ws, matrix, lane.environment))


def program_of(ws: Workspace, lane: Lane, path: Path, made: Made) -> Program:
    """Return a worker of a lane, with its environment and its device.

    Args:
        ws: the workspace.
        lane: what it was built as.
        path: the executable.
        made: the environment that it was built in.
    """
    variables, written = made.to_run(ws.device_cache)
    return Program(
        path=path,
        device=lane.run_device,
        variables={**variables, **lane.run_variables},
        enter=partial(made.command, network=True, always=written),
        start_s=_START_S if lane.run_device == "CPU" else _DEVICE_START_S,
    )


def reference_of(ws: Workspace, lane_name: str) -> Path:
    """Return the reference program of a lane.

    Raises:
        HostError: it was not built.
    """
    path = ws.build(f"{lane_name}-reference") / "bin" / PROGRAMS["reference"]
    if not path.is_file():
        raise _not_built(lane_name, path)
    return path


def lane_digest_of(program: Program) -> str:
    """Return the lane digest that a worker reports; one that cannot start here says why now.

    Raises:
        CheckError: it does not start.
    """
    command = program.enter([program.path], read=(program.path.parent,))
    return str(ask_version(program.path, command, program.variables).get("lane_digest"))


def software_device(program: Program, backend: str, *, expected: bool) -> str:
    """Return the software device that a worker computes on here, "" for hardware.

    Args:
        program: the worker.
        backend: its lane's.
        expected: what the machine looks like, which counts where the worker does not list its device.
    """
    device = known().device.get(backend)
    if device is None or program.device == "CPU":
        return ""
    command = program.enter([program.path, "--list-devices"], read=(program.path.parent,))
    done = run(command, env={**os.environ, **program.variables}, timeout=program.start_s)
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    listed = next((line for line in lines if line.startswith(f"{program.device}: ")), None)
    if listed is None:
        return "a software device" if expected else ""
    named = any(name.casefold() in listed.casefold() for name in device.software_names)
    return f"the software device {listed}" if named else ""


def _not_built(lane_name: str, path: Path) -> HostError:
    return HostError(
        f"lane {lane_name} has no {path.name} yet",
        cause=f"{path} is missing",
        remedy=f"dgr-build lane {lane_name}",
    )
