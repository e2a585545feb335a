"""What there is of an environment here: its definition, its lock, and whether it is made."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build.documents.base import digest
from dgr_build.documents.environment_lock import EnvironmentLock, load_lock
from dgr_build.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Environment, Matrix
    from dgr_build.workspace import Workspace

_SHOWN_DIGITS = 16
_CONTENT = {"kind", "suite", "packages", "apt_options", "wheels"}


@dataclass(frozen=True, kw_only=True)
class State:
    """An environment as it is here.

    Args:
        name: its name in the matrix.
        kind: host, sysroot or wheels.
        definition: digest of its definition.
        lock: the lock, None where it has none that can be read.
        fits: the lock was made for this very definition.
        folder: where it is or would be, None for this machine.
        made: it is there.
        damage: why its lock cannot be read, None where it can or is not there.
    """

    name: str
    kind: str
    definition: str
    lock: EnvironmentLock | None
    fits: bool
    folder: Path | None
    made: bool
    damage: UsageError | None = None

    @property
    def described(self) -> str:
        """The state in a few words."""
        if self.kind == "host":
            return "this machine"
        if self.damage is not None:
            return "its lock is damaged"
        if self.lock is None:
            return "not locked"
        if not self.fits:
            return "its lock does not fit its definition"
        return "made" if self.made else "locked, not made"

    def to_json(self, *, files: bool = False) -> dict[str, Any]:
        """Return it as data, with every file of the lock where asked."""
        lock = self.lock
        data: dict[str, Any] = {
            "environment": self.name,
            "kind": self.kind,
            "state": self.described,
            "digest": lock.digest if lock is not None else None,
            "files": len(lock.files) if lock is not None else None,
            "download_bytes": lock.size if lock is not None else None,
            "folder": str(self.folder) if self.folder is not None and self.made else None,
        }
        if files and lock is not None:
            data["locked"] = [file.model_dump(mode="json") for file in lock.files]
        return data


def state(ws: Workspace, matrix: Matrix, name: str) -> State:
    """Return what there is of an environment.

    Raises:
        UsageError: the matrix has none of this name.
    """
    definition = find(matrix, name)
    stated = definition_digest(definition)
    if definition.kind == "host":
        return State(name=name, kind="host", definition=stated, lock=None, fits=True, folder=None, made=True)
    file = ws.environment_lock(name)
    lock, damage = None, None
    try:
        lock = load_lock(file) if file.is_file() else None
    except UsageError as error:
        damage = error
    folder = folder_of(ws, name, lock) if lock is not None else None
    return State(
        name=name,
        kind=definition.kind,
        definition=stated,
        lock=lock,
        fits=lock is not None and lock.definition == stated,
        folder=folder,
        made=folder is not None and folder.is_dir(),
        damage=damage,
    )


def find(matrix: Matrix, name: str) -> Environment:
    """Return a definition.

    Raises:
        UsageError: the matrix has none of this name.
    """
    if name not in matrix.environment:
        raise UsageError(
            f"no environment is called {name!r}",
            cause=f"there are {', '.join(matrix.environment)}",
            remedy="dgr-build env show lists them",
        )
    return matrix.environment[name]


def machine_of(matrix: Matrix, name: str) -> str:
    """Return the processor family that an environment is for: that of its lanes, this machine's without any.

    Raises:
        UsageError: its lanes are for several.
    """
    lanes = {key: lane.isa for key, lane in matrix.lane.items() if lane.environment == name}
    machines = sorted({matrix.isa[isa].machine for isa in lanes.values()}) or [platform.machine()]
    if len(machines) > 1:
        raise UsageError(
            f"environment {name} cannot be for {' and for '.join(machines)} at once",
            cause=f"its lanes are {', '.join(lanes)}",
            remedy="state an environment for each of these machines in lanes/matrix.toml",
        )
    return machines[0]


def definition_digest(definition: Environment) -> str:
    """Return the digest of what decides the content of an environment."""
    return digest(definition.model_dump(mode="json", include=_CONTENT))


def states(ws: Workspace, matrix: Matrix, name: str | None = None) -> tuple[State, ...]:
    """Return the states of one environment, or of all.

    Raises:
        UsageError: the matrix has none of this name.
    """
    return tuple(state(ws, matrix, one) for one in ([name] if name is not None else matrix.environment))


def changes(before: EnvironmentLock | None, now: EnvironmentLock) -> tuple[str, ...]:
    """Return what a new lock changes, a line for each package."""
    old = {file.package: file.version for file in before.files} if before is not None else {}
    new = {file.package: file.version for file in now.files}
    lines = [f"+ {name} {new[name]}" for name in sorted(new.keys() - old.keys())]
    lines += [f"- {name} {old[name]}" for name in sorted(old.keys() - new.keys())]
    both = sorted(old.keys() & new.keys())
    return (*lines, *(f"~ {name} {old[name]} -> {new[name]}" for name in both if old[name] != new[name]))


def folder_of(ws: Workspace, name: str, lock: EnvironmentLock) -> Path:
    """Return where an environment of a lock lies once it is made."""
    return ws.environments / f"{name}-{lock.digest[:_SHOWN_DIGITS]}"


def made_folders(ws: Workspace, name: str) -> tuple[Path, ...]:
    """Return where an environment lies, of every lock that it was made from."""
    digits = "[0-9a-f]" * _SHOWN_DIGITS  # `sid-new-...` is another environment than `sid`
    return tuple(sorted(ws.environments.glob(f"{name}-{digits}")))
