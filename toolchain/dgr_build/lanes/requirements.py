"""Looking for what a lane requires, on the machine itself or inside an environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import DgrError
from dgr_build.lanes.finding import Finding
from dgr_build.lanes.toolchain import version_numbers
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.documents.matrix import Requirement

_TIMEOUT_S = 60


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where to look.

    Args:
        folders: where programs lie, in this order, as seen from inside.
        root: where the paths of the inside start.
        enter: what to put before a command to run it inside; () where it runs from outside as well.
    """

    folders: tuple[str, ...]
    root: Path = Path("/")
    enter: tuple[str, ...] = ()

    def outside(self, inside: str | Path) -> Path:
        """Return where a file of the inside lies on the machine."""
        return self.root / str(inside).lstrip("/")

    def shown(self, inside: str | Path) -> Path:
        """Return the path by which a file is started and shown."""
        return Path(inside) if self.enter else self.outside(inside)

    def find(self, name: str) -> Path | None:
        """Return the first program of this name, as seen from inside."""
        for folder in self.folders:
            inside = Path(folder) / name
            outside = self.outside(inside)
            # From outside, an absolute link inside a root points astray: only its being there can be told.
            there = os.path.lexists(outside) if self.enter else _executable(outside)
            if there:
                return inside
        return None

    def ask(self, inside: Path, arguments: Sequence[str], pattern: str) -> str:
        """Return the version that a program states; "" when it states none or cannot be started."""
        if not pattern:
            return ""
        try:
            done = run([*self.enter, self.shown(inside), *arguments], timeout=_TIMEOUT_S)
        except DgrError:
            return ""
        found = re.search(pattern, done.stdout + done.stderr)
        return found.group(1) if found else ""


def look(requirement: Requirement, place: Place, remedy: str = "") -> Finding:
    """Look for something that is required.

    Args:
        requirement: what.
        place: where.
        remedy: how to get it there; what the requirement says by default.
    """
    path, version = _locate(requirement, place)
    minimum = requirement.minimum
    new_enough = minimum is None or (bool(version) and version_numbers(version) >= version_numbers(minimum))
    called = " or ".join(requirement.any_program or requirement.any_file)
    return Finding(
        name=requirement.name,
        kind="run" if requirement.for_running else "build",
        wanted=f"{called} {minimum} or newer" if minimum else called,
        met=path is not None and new_enough,
        remedy=remedy or requirement.remedy,
        path=str(place.shown(path)) if path else "",
        version=version,
        note="" if path is None or version or minimum is None else "(of no known version)",
    )


def _locate(requirement: Requirement, place: Place) -> tuple[Path | None, str]:
    """Return where it lies, as seen from inside, and the version it states."""
    for name in requirement.any_program:
        found = place.find(name)
        if found:
            return found, place.ask(found, requirement.arguments, requirement.pattern)
    base = Path("/")
    if requirement.beside_program:
        program = place.find(requirement.beside_program)
        if program is None:
            return None, ""
        base = program.parent
    for name in requirement.any_file:
        inside = Path(os.path.normpath(base / name))
        if os.path.exists(place.outside(inside)):  # noqa: PTH110 - likewise
            return inside, _read(place.outside(inside), requirement.pattern)
    return None, ""


def _executable(file: Path) -> bool:
    # A folder of the caller's PATH that may not be looked into holds nothing for us.
    return os.path.isfile(file) and os.access(file, os.X_OK)  # noqa: PTH113 - pathlib raises there


def _read(file: Path, pattern: str) -> str:
    if not pattern:
        return ""
    found = re.search(pattern, file.read_text(errors="replace"))
    return found.group(1) if found else ""
