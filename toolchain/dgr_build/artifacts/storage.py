"""Where model files may lie: anywhere but under /home, and by default in a private folder of their own."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dgr_build import workspace
from dgr_build.errors import ArtifactError

_HOME = PurePosixPath("/home")
_MOUNTINFO = Path("/proc/self/mountinfo")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of mountinfo: folder `root` of file system `device` is visible at `point`."""

    device: str
    root: PurePosixPath
    point: PurePosixPath


def models_root() -> Path:
    """Return the folder for model files, made private on first use.

    Raises:
        ArtifactError: it lies under /home, is a link or no folder, belongs to somebody else, or others may
            write into it.
    """
    root = workspace.models_root().absolute()
    check_model_path(root)
    remedy = "set DGR_MODELS to a folder of your own outside /home"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = root.lstat()
    except OSError as error:
        raise ArtifactError(
            f"cannot use {root} for model files", cause=error.strerror or str(error), remedy=remedy
        ) from error
    problem = ""
    if not stat.S_ISDIR(facts.st_mode):
        problem = "it is a link" if stat.S_ISLNK(facts.st_mode) else "it is not a folder"
    elif facts.st_uid != os.geteuid():
        problem = f"it belongs to user {facts.st_uid}, and you are user {os.geteuid()}"
    elif facts.st_mode & _OTHERS_WRITE:
        problem = "others may write into it"
        remedy = f"chmod go-w {root}, after a look at what lies in it"
    if problem:
        raise ArtifactError(f"cannot use {root} for model files", cause=problem, remedy=remedy)
    return root


def check_model_path(path: Path) -> Path:
    """Return the real path of a model file, existing or yet to be made.

    Links, `..` and bind mounts are followed first.

    Raises:
        ArtifactError: it lies under /home.
    """
    try:
        real = path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        raise ArtifactError(f"cannot follow {path}", cause=str(error), remedy="give a plain path") from error
    origin = _under_home(PurePosixPath(real), read_mounts())
    if origin is None:
        return real
    raise ArtifactError(
        f"model files may not lie under /home: {path}",
        cause=f"it leads to {origin}",
        remedy=f"choose a path elsewhere, such as {workspace.default_models_root()}, or set DGR_MODELS",
    )


def read_mounts(table: Path = _MOUNTINFO) -> tuple[Mount, ...]:
    """Return the mounts that this process sees, oldest first; none where there is no such table."""
    try:
        lines = table.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ()
    fields = (line.split(" ") for line in lines)
    return tuple(
        Mount(
            device=field[2],
            root=PurePosixPath(_unescape(field[3])),
            point=PurePosixPath(_unescape(field[4])),
        )
        for field in fields
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _under_home(place: PurePosixPath, mounts: tuple[Mount, ...]) -> PurePosixPath | None:
    # The path below /home at which `place` belongs, or None.
    if _inside(place, _HOME) or _inside(place, PurePosixPath(Path(_HOME).resolve())):
        return place
    holders = [mount for mount in mounts if _inside(place, mount.point)]
    if not holders:
        return None
    # Of several mounts on one point the last covers the others; max() alone would keep the first.
    holder = max(reversed(holders), key=lambda mount: len(mount.point.parts))
    inner = holder.root / place.relative_to(holder.point)
    # The same folder may be visible at several points. The oldest says where it belongs: a folder of /home
    # bound elsewhere is still of /home, one from elsewhere bound into /home is not.
    views = [mount for mount in mounts if mount.device == holder.device and _inside(inner, mount.root)]
    oldest = views[0].point / inner.relative_to(views[0].root)
    if _inside(oldest, _HOME):
        return oldest
    # In a container the file system's own root is out of sight: its path inside says the same.
    whole_in_sight = any(view.root == PurePosixPath("/") for view in views)
    return inner if not whole_in_sight and _inside(inner, _HOME) else None


def _inside(path: PurePosixPath, folder: PurePosixPath) -> bool:
    return path == folder or folder in path.parents
