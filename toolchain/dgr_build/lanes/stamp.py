"""The stamp of a build folder: what it was made from, and which checks its result has passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from dgr_build.documents.base import Document, Sha256, save_json

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "dgr-lane.json"


class Stamp(Document):
    """What a build folder holds.

    Attributes:
        project: the CMake project it was configured for, as CMake remembers it.
        family: see `Plan.family`.
        digest: the lane digest.
        arguments: the arguments that cmake last ran with to its end; none where it did not come that far.
        program_sha256: of the program, "" until it is built.
        uncached: the program came from a build that used no compiler cache.
        seconds: what configuring and compiling took so far, in all runs that went into the folder.
        network_cut: everything in the folder was compiled without a network.
        passed: checks of this very program that passed: name to what they were run with and said.
        plan: the whole plan.
    """

    project: str
    family: Sha256
    digest: Sha256
    arguments: tuple[str, ...] = ()
    program_sha256: str = ""
    uncached: bool = False
    seconds: float = 0.0
    network_cut: bool = True
    passed: dict[str, str] = Field(default_factory=dict)
    plan: dict[str, Any]


def read_stamp(build: Path) -> Stamp | None:
    """Return the stamp of a build folder; None where there is none that this version understands."""
    try:
        return Stamp.model_validate_json((build / _NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def write_stamp(build: Path, stamp: Stamp) -> None:
    """Write the stamp of a build folder, by rename."""
    save_json(build / _NAME, stamp)


def passed(build: Path, check: str, key: str) -> str | None:
    """Return what a check said when this very program passed it with equal inputs; None where it must run.

    Args:
        build: the program's build folder.
        check: the name of the check.
        key: the digest of everything else that the check was run with.
    """
    stamp = read_stamp(build)
    before, _, said = (stamp.passed.get(check, "") if stamp is not None else "").partition(" ")
    return said if before == key else None


def remember(build: Path, check: str, key: str, said: str) -> None:
    """Note that the program of a build folder passed a check; see `passed`."""
    stamp = read_stamp(build)
    if stamp is not None:
        noted = {**stamp.passed, check: f"{key} {said}"}
        write_stamp(build, stamp.model_copy(update={"passed": noted}))
