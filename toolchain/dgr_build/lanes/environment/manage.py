"""Environments from definition to folder: locked, created once, found again, removed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.documents.environment_lock import save_lock
from dgr_build.errors import HostError, UsageError
from dgr_build.lanes.environment import sysroot, wheels
from dgr_build.lanes.environment.made import Made
from dgr_build.lanes.environment.state import (
    definition_digest,
    find,
    folder_of,
    machine_of,
    made_folders,
    state,
)
from dgr_build.workspace import publish, remove, staging, sweep

if TYPE_CHECKING:
    from dgr_build.documents.environment_lock import EnvironmentLock
    from dgr_build.documents.matrix import Environment, Matrix
    from dgr_build.lanes.environment.state import State
    from dgr_build.workspace import Workspace

_ENTERING = "bwrap"
_TOOLKIT_GROWTH = 2


def enter(ws: Workspace, matrix: Matrix, name: str) -> Made:
    """Return an environment that is there; nothing is made.

    Raises:
        HostError: it is not there, or its lock does not fit its definition.
        UsageError: its lock is damaged.
    """
    here = state(ws, matrix, name)
    if here.kind == "host":
        return Made(name=name, kind="host", digest=here.definition)
    lock = _fitting(here)
    if not here.made or here.folder is None:
        raise HostError(
            f"environment {name} is not made yet",
            cause=f"{here.folder} is not there",
            remedy=f"dgr-build env create {name}",
        )
    return _made(here, lock, here.folder)


def create(ws: Workspace, matrix: Matrix, name: str) -> Made:
    """Make an environment from its lock unless it is there.

    Raises:
        HostError: a program or space is missing, or its lock does not fit its definition.
        ProofError: a file is not what the lock pins.
        SourceUnavailableError: a file cannot be had.
        UsageError: its lock is damaged.
    """
    here = state(ws, matrix, name)
    if here.kind == "host":
        return Made(name=name, kind="host", digest=here.definition)
    lock = _fitting(here)
    folder = folder_of(ws, name, lock)
    with ws.lock(f"environment-{name}"):
        if not folder.is_dir():
            _make(ws, find(matrix, name), lock, name, folder)
    return _made(here, lock, folder)


def renew_lock(ws: Workspace, matrix: Matrix, name: str) -> tuple[EnvironmentLock | None, EnvironmentLock]:
    """Resolve an environment anew, download its files, and write its lock.

    Returns:
        the lock before, None where there was none that could be read, and the lock now.

    Raises:
        UsageError: an environment of this machine has no lock, or lanes of several machines share one.
        HostError, SourceUnavailableError: something cannot be had.
    """
    definition = find(matrix, name)
    if definition.kind == "host":
        raise UsageError(
            f"environment {name} has no lock",
            cause="it is this machine as it is",
            remedy="dgr-build doctor looks at it",
        )
    before = state(ws, matrix, name).lock
    with ws.lock(f"environment-{name}"):
        stated = definition_digest(definition)
        if definition.kind == "sysroot":
            log = ws.logs("environment") / f"{name}.log"
            lock = sysroot.resolve(definition, stated, ws.debs, log)
        else:
            machine = machine_of(matrix, name)
            lock = wheels.resolve(definition, stated, ws.downloads, machine=machine, before=before)
        save_lock(ws.environment_lock(name), lock)
    return before, lock


def remove_made(ws: Workspace, matrix: Matrix, name: str) -> tuple[Path, ...]:
    """Remove everything that was made of an environment; locks and downloads stay.

    A lane that is being built is waited for.

    Raises:
        UsageError: the matrix has none of this name.
    """
    find(matrix, name)
    with ws.lock("lanes"), ws.lock(f"environment-{name}"):
        folders = made_folders(ws, name)
        for folder in folders:
            with console.progress(f"removing {folder.name}"):
                remove(folder)
    return folders


def _fitting(here: State) -> EnvironmentLock:
    if here.damage is not None:
        raise here.damage
    if here.lock is None or not here.fits:
        raise HostError(
            f"environment {here.name} has no lock that fits it",
            cause="its definition changed after the lock was written" if here.lock else "there is no lock",
            remedy=f"dgr-build env lock {here.name}, then look at what changed and commit it",
        )
    return here.lock


def _make(ws: Workspace, definition: Environment, lock: EnvironmentLock, name: str, folder: Path) -> None:
    sweep(ws.environments)
    console.say(
        f"environment {name}: {len(lock.files)} files, {lock.size / 1e6:.0f} MB to download at most "
        f"(what the cache holds is kept), about {disk_estimate(definition, lock) / 1e6:.0f} MB on disk"
    )
    log = ws.logs("environment") / f"{name}.log"
    log.unlink(missing_ok=True)
    if definition.kind == "sysroot":
        sysroot.fetch(definition, lock, ws.debs, log)
    else:
        wheels.fetch(lock, ws.downloads)
    with staging(ws.environments, name) as staged, staging(ws.environments, f"{name}-scratch") as scratch:
        root = staged / "root"
        root.mkdir()
        if definition.kind == "sysroot":
            places = sysroot.Places(cache=ws.debs, root=root, scratch=scratch, log=log)
            sysroot.make(definition, lock, places)
        else:
            wheels.assemble(lock, ws.downloads, root)
        publish(root, folder)


def disk_estimate(definition: Environment, lock: EnvironmentLock) -> int:
    """Return about how much disk an environment takes while it is made, in bytes."""
    return lock.size * (sysroot.GROWTH if definition.kind == "sysroot" else _TOOLKIT_GROWTH)


def _made(here: State, lock: EnvironmentLock, folder: Path) -> Made:
    if here.kind == "sysroot":
        entering = shutil.which(_ENTERING)
        return Made(
            name=here.name,
            kind="sysroot",
            digest=lock.digest,
            root=folder,
            entering=Path(entering) if entering else None,
        )
    root = wheels.toolkit(folder)
    return Made(
        name=here.name,
        kind="wheels",
        digest=lock.digest,
        root=root,
        variables={"LD_LIBRARY_PATH": str(root / "lib")},
    )
