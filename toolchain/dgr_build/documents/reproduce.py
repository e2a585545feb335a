"""What one of two builds that are held against each other is told, and what it answers."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from dgr_build.documents.base import Document


class BuildOrder(Document):
    """A build to make in surroundings that its process was started in.

    Attributes:
        project: the clone whose files are built; copied first.
        root: its workspace, which has the source and the environment.
        cache: the person's cache.
        copy_to: where the copy of the clone lies.
        made_in: the workspace of the copy.
        out: where the outputs go.
        lane: its name.
        profile: the choice of architectures.
        settings: what is otherwise than the matrix has it, as KEY=VALUE.
        umask: for everything that is written.
        jobs: compilers at once.
        variables: of the build's programs, beyond and before those that the lane states.
        shown: a file of this machine that programs of the environment must be able to read.
        objects: how many objects to compile, None for the whole worker and its packages.
    """

    project: Path
    root: Path
    cache: Path
    copy_to: Path
    made_in: Path
    out: Path
    lane: str
    profile: str | None = None
    settings: tuple[str, ...] = ()
    umask: int
    jobs: int
    variables: dict[str, str]
    shown: Path | None = None
    objects: int | None = None


class BuildAnswer(Document):
    """How it went.

    Attributes:
        digest: the lane digest.
        outputs: the files that were made, by what they are.
        seen: what a program of the build saw of its surroundings.
        error: what failed, as `DgrError.to_json` has it; empty when nothing did.
    """

    digest: str = ""
    outputs: dict[str, Path] = Field(default_factory=dict)
    seen: dict[str, str] = Field(default_factory=dict)
    error: dict[str, str | int] = Field(default_factory=dict)
