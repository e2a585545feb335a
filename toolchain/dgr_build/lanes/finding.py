"""One thing that a lane needs, and what this machine has of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a lane needs, and what this machine has of it.

    Args:
        name: what a person calls it.
        kind: whether building needs it, or only running what was built.
        wanted: the least that will do.
        met: whether what is here will do, or the lane brings it.
        remedy: the command or the thing that gives it.
        path: where it lies, "" for nowhere.
        version: what it states, "" for none.
        note: what is here, where path and version do not say it.
        brought: it is not here yet, and the lane brings it without being asked.
        stand_in: a software device that takes the place of hardware.
    """

    name: str
    kind: Literal["build", "run"]
    wanted: str
    met: bool
    remedy: str
    path: str = ""
    version: str = ""
    note: str = ""
    brought: bool = False
    stand_in: bool = False

    @property
    def for_running(self) -> bool:
        """Whether it is needed to run the worker, not to build it."""
        return self.kind == "run"

    @property
    def found(self) -> str:
        """What is there, "" for nothing."""
        return " ".join(part for part in (self.path, self.version, self.note) if part)

    @property
    def line(self) -> str:
        """The finding in one line."""
        use = " to run" if self.for_running else ""
        there = self.found if self.path or self.version else f"nothing {self.note}".rstrip()
        verdict = "" if self.met or not (self.path or self.version) else ", which will not do"
        return f"{self.name}: needs {self.wanted}{use}; here is {there}{verdict}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as data; what was not found out is null."""
        return {
            "name": self.name,
            "kind": self.kind,
            "wanted": self.wanted,
            "met": self.met,
            "brought_by_lane": self.brought,
            "path": self.path or None,
            "version": self.version or None,
            "note": self.note or None,
            "remedy": None if self.met and not self.brought else self.remedy,
        }
