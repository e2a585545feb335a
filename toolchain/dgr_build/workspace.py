"""Where everything lies: folders, locks, and publishing by rename. Nothing else chooses a path."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import stat
import tempfile
import time
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
_STAGED_FILE_AGE_S = 3600  # write_atomic takes milliseconds; a staged file this old has no writer any more
_SOCKET_FOLDER_BYTES = 90  # the kernel takes 107 for folder and name


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
    def compatibility_file(self) -> Path:
        """What works with what: compilers, toolkits, devices."""
        return self.project / "lanes" / "compatibility.toml"

    def environment_lock(self, name: str) -> Path:
        """Return the lock of an environment."""
        return self.project / "lanes" / "locks" / f"{name}.lock"

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

    @property
    def host_overrides(self) -> Path:
        """A person's overrides of lanes on this machine; may be absent, nothing here writes it."""
        return self.root / "overrides.toml"

    @property
    def environments(self) -> Path:
        """Debian roots and toolkits that were made here."""
        return self.root / "environments"

    @property
    def dist(self) -> Path:
        """Packages of built workers: wheels and tarballs."""
        return self.root / "dist"

    @property
    def device_cache(self) -> Path:
        """What drivers compile for a device while a worker starts; nothing is lost with it but time."""
        return self.root / "device-cache"

    @property
    def conan(self) -> Path:
        """Conan's home; nothing of the person's own Conan is read or written."""
        return self.root / "conan"

    def fuzz(self, target: str) -> Path:
        """Return the folder of a fuzz target: its corpus, and the inputs that ended it."""
        return self.root / "fuzz" / target

    def reproduction(self, name: str) -> Path:
        """Return the folder of one of the builds that are held against each other."""
        return self.root / "reproduce" / name

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
    def debs(self) -> Path:
        """Debian packages, kept so that a lock can be made again after a mirror has moved on."""
        return self.downloads / "debs"

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
        console.say(f"waiting for {key}, held by {_holder_name(holder)}")
        lock.acquire()
    try:
        holder.write_text(f"process {os.getpid()}\n")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _holder_name(holder: Path) -> str:
    try:
        return holder.read_text().strip() or "another process"
    except OSError:  # it has the lock but has not written its name yet
        return "another process"


@contextmanager
def staging(parent: Path, name: str) -> Iterator[Path]:
    """Yield a private empty folder beside the final place, removed afterwards whatever happens.

    The folder itself may be published. Names start with `.staging-`; `sweep` removes those that a killed
    process left. Its lock is taken before the folder exists, so that a sweep never sees one without it.
    """
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / f".staging-{name}-{secrets.token_hex(6)}"
    with FileLock(_lock_of(folder)):
        folder.mkdir()
        try:
            yield folder
        finally:
            remove(folder)
            _lock_of(folder).unlink(missing_ok=True)


@contextmanager
def socket_folder(wanted: Path, name: str) -> Iterator[Path]:
    """Yield a private folder for sockets, removed after: under `wanted`, or elsewhere if that is too long.

    Raises:
        HostError: the path of every folder is too long for the kernel.
    """
    with staging(wanted, name) as near:
        if len(os.fsencode(near)) <= _SOCKET_FOLDER_BYTES:
            yield near
            return
        with tempfile.TemporaryDirectory(prefix="dgr-") as far:
            if len(os.fsencode(far)) > _SOCKET_FOLDER_BYTES:
                raise HostError(
                    "there is no place for a socket",
                    cause=f"the path of {far} is too long for one",
                    remedy="set TMPDIR to a folder with a short path",
                )
            yield Path(far)


@contextmanager
def plain_folder() -> Iterator[Path]:
    """Yield a private folder whose path has no spaces or colons, removed after.

    Raises:
        HostError: the folder for temporary files has some.
    """
    with tempfile.TemporaryDirectory(prefix="dgr-") as name:
        if set(name) & set(" :"):
            raise HostError(
                "there is no folder with a plain name",
                cause=f"{name} has a space or a colon",
                remedy="set TMPDIR to a folder without",
            )
        yield Path(name)


def sweep(parent: Path, name: str = "") -> None:
    """Remove what killed processes left under `parent`: staging folders nobody holds, old staged files.

    With a name only what was staged under it goes: `parent` may be a folder that others use too.
    """
    for left in parent.glob(f".staging-{glob.escape(name)}*"):
        if left.is_dir():
            with suppress(Timeout), FileLock(_lock_of(left), timeout=0):
                remove(left)
                _lock_of(left).unlink(missing_ok=True)
        elif not left.with_name(left.name.removesuffix(".lock")).is_dir():
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _STAGED_FILE_AGE_S:
                    left.unlink()


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")


def publish(staged: Path, final: Path) -> None:
    """Move a finished file or folder into its place by rename; what was there before is replaced.

    Both must lie on one file system. A folder cannot be replaced by one rename, so the old one steps aside
    first and is removed after, or comes back when the new one cannot take its place. A crash between leaves
    the new one staged and the old one aside, and the next run publishes again.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    if staged.is_file():
        staged.replace(final)
        return
    if not final.exists():
        _move(staged, final)
        return
    with staging(final.parent, "old") as aside:
        old = aside / "old"
        _move(final, old)
        try:
            _move(staged, final)
        except BaseException:
            _move(old, final)
            raise


def _move(source: Path, target: Path) -> None:
    """Rename, read-only folders included: a folder's new parent is written into the folder itself."""
    mode = stat.S_IMODE(source.lstat().st_mode)
    if source.is_dir() and not mode & stat.S_IWUSR:
        source.chmod(mode | stat.S_IWUSR)
        try:
            source.rename(target)
        except OSError:
            source.chmod(mode)
            raise
        target.chmod(mode)
    else:
        source.rename(target)


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


def expand_home(location: str) -> str:
    """Return a path or URL that a person has set somewhere, with a leading ~ replaced."""
    return os.path.expanduser(location)  # noqa: PTH111 - a URL is no Path


def default_models_root() -> Path:
    """Return where model files live unless DGR_MODELS says otherwise: /var/tmp/dgr-models-UID."""
    return Path(f"/var/tmp/dgr-models-{os.getuid()}")  # noqa: S108 - owner checked


def models_root() -> Path:
    """Return where model files live: DGR_MODELS, or /var/tmp/dgr-models-UID."""
    stated = os.environ.get("DGR_MODELS")
    return Path(stated) if stated else default_models_root()
