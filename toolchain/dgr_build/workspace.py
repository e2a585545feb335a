"""Where everything lies: folders, locks, and publishing by rename. Nothing else chooses a path."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from dgr_build import console
from dgr_build.errors import HostError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIN = Path("manifests") / "llama.cpp.toml"


def project_root() -> Path:
    """Return the checkout of this project: DGR_PROJECT, or the nearest folder above this file or the
    current folder that holds manifests/llama.cpp.toml.

    Raises:
        UsageError: there is none.
    """  # noqa: D205 - one sentence
    stated = os.environ.get("DGR_PROJECT")
    starts = [Path(stated)] if stated else [Path(__file__).resolve(), Path.cwd()]
    for start in starts:
        for folder in (start, *start.parents):
            if (folder / _PIN).is_file():
                return folder
    raise UsageError(
        f"no project folder with {_PIN} above {starts[-1]}",
        remedy="change into a clone of the project, or set DGR_PROJECT to one",
    )


def user_cache() -> Path:
    """Return the folder shared by all clones of one user: downloads and the compiler cache."""
    base = os.environ.get("DGR_CACHE") or os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    return root if os.environ.get("DGR_CACHE") else root / "dgr-build"


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The folders of one clone: tracked inputs under `project`, everything made under `root`."""

    project: Path
    root: Path
    cache: Path

    @staticmethod
    def open() -> Workspace:
        """Return the workspace of this clone (`.dgr/`, moved by DGR_WORKSPACE)."""
        project = project_root()
        moved = os.environ.get("DGR_WORKSPACE")
        root = Path(moved).absolute() if moved else project / ".dgr"
        return Workspace(project=project, root=root, cache=user_cache())

    # tracked inputs
    @property
    def pin_file(self) -> Path:
        """The pin and its providers."""
        return self.project / _PIN

    @property
    def series_file(self) -> Path:
        """The patch series; the patches lie beside it."""
        return self.project / "patches" / "series.toml"

    @property
    def matrix_file(self) -> Path:
        """The lane matrix."""
        return self.project / "lanes" / "matrix.toml"

    @property
    def native(self) -> Path:
        """The C++ sources of the shard worker."""
        return self.project / "native"

    @property
    def recipes(self) -> Path:
        """The recipes that ship with the project."""
        return self.project / "recipes"

    # made here
    @property
    def store(self) -> Path:
        """The bare git object store."""
        return self.root / "store"

    @property
    def source(self) -> Path:
        """The published, read-only checkout of the patched tree."""
        return self.root / "src" / "current"

    @property
    def base_source(self) -> Path:
        """A read-only checkout of the unpatched tree, for the reference program."""
        return self.root / "src" / "base"

    def build(self, lane: str) -> Path:
        """Return the incremental build folder of a lane."""
        return self.root / "build" / lane

    def logs(self, name: str) -> Path:
        """Return the folder for the logs of one kind of run."""
        return self.root / "logs" / name

    @property
    def evidence(self) -> Path:
        """Routine evidence records."""
        return self.root / "evidence"

    @property
    def published_evidence(self) -> Path:
        """Records that were published on purpose; tracked."""
        return self.project / "evidence"

    @property
    def downloads(self) -> Path:
        """Downloads, shared between clones."""
        return self.cache / "downloads"

    @property
    def ccache(self) -> Path:
        """The compiler cache, shared between clones."""
        return self.cache / "ccache"

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold the lock of one key (a lane, the store, the source); wait for another holder and say so."""
        with lock_file(self.root / "locks" / f"{key}.lock", key):
            yield


@contextmanager
def lock_file(path: Path, key: str) -> Iterator[None]:
    """Hold an inter-process lock on `path`; a second process waits and says for whom.

    The holder writes its process id beside the lock so that the one who waits can name it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = path.with_suffix(".holder")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with suppress(OSError):
            console.say(f"waiting for {key}, held by {holder.read_text().strip()}")
        lock.acquire()
    try:
        holder.write_text(f"process {os.getpid()}\n")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


@contextmanager
def staging(parent: Path, name: str) -> Iterator[Path]:
    """Yield a private empty folder beside the final place, removed afterwards whatever happens.

    Names start with `.staging-`; `sweep` removes those that a killed process left. The folder carries an
    advisory lock so that a sweep never takes one that is in use.
    """
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".staging-{name}-", dir=parent))
    lock = FileLock(str(folder) + ".lock")
    lock.acquire()
    try:
        yield folder
    finally:
        remove(folder)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def sweep(parent: Path) -> None:
    """Remove staging folders under `parent` that no living process holds."""
    for folder in parent.glob(".staging-*"):
        if not folder.is_dir():
            continue
        lock = FileLock(str(folder) + ".lock")
        with suppress(Timeout):
            lock.acquire(timeout=0)
            remove(folder)
            lock.release()
            Path(lock.lock_file).unlink(missing_ok=True)


def publish(staged: Path, final: Path) -> None:
    """Move a finished file or folder into its place by rename; what was there before is replaced.

    Both must lie on one file system. A folder cannot be replaced by one rename, so the old one steps aside
    first and is removed after; a crash between leaves the new one staged and the old one aside, and the next
    run publishes again.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    if staged.is_file():
        staged.replace(final)
        return
    if not final.exists():
        staged.rename(final)
        return
    with staging(final.parent, "old") as aside:
        final.rename(aside / final.name)
        staged.rename(final)


def write_atomic(final: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that readers see the old or the new content, never a part."""
    final.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".staging-{final.name}-", dir=final.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(final)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove(path: Path) -> None:
    """Remove a file or folder, read-only folders included; nothing there is fine."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    path.chmod(path.stat().st_mode | stat.S_IRWXU)
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = Path(folder, name)
            if not inner.is_symlink():
                inner.chmod(inner.stat().st_mode | stat.S_IRWXU)
    shutil.rmtree(path)


def require_space(folder: Path, need: int, what: str) -> None:
    """Check that the file system of `folder` has `need` bytes free.

    Raises:
        HostError: it has not; the message says how much is missing and where.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise HostError(
            f"not enough space for {what} in {folder}",
            cause=f"{need / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free",
            remedy="free some space, or set DGR_WORKSPACE and DGR_CACHE to another file system",
        )


def models_root() -> Path:
    """Return where model files live: DGR_MODELS, or /var/tmp/dgr-models-UID."""
    stated = os.environ.get("DGR_MODELS")
    return Path(stated) if stated else Path(f"/var/tmp/dgr-models-{os.getuid()}")  # noqa: S108 - owner checked
