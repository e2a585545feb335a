"""The files of a model: one, or the parts of a split one, which are known by their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dgr_build.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

_PART = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


def part_paths(path: Path) -> tuple[Path, ...]:
    """Return all files of the model that `path` belongs to, in order.

    Args:
        path: a whole GGUF, or any part of a split one.

    Raises:
        ArtifactError: a file is missing.
    """
    named = _PART.match(path.name)
    paths = [path]
    if named:
        count = int(named["count"])
        paths = [
            path.with_name(f"{named['stem']}-{number:05d}-of-{count:05d}.gguf")
            for number in range(1, count + 1)
        ]
    missing = [part for part in paths if not part.is_file()]
    if missing or not paths:
        raise ArtifactError(
            f"no model file {missing[0] if missing else path}",
            cause=f"{len(missing)} of {len(paths)} files are missing",
            remedy="check the path; `dgr-build model tiny --help` shows how to make a tiny model",
        )
    return tuple(paths)


def part_names(stem: str, count: int) -> tuple[str, ...]:
    """Return the file names of a model: `STEM.gguf`, or llama.cpp's names for the parts of a split one."""
    if count == 1:
        return (f"{stem}.gguf",)
    return tuple(f"{stem}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1))
