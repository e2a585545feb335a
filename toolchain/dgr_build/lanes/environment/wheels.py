"""A toolkit of wheels: pinned packages of the usual index, verified and unpacked into one folder."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.documents.environment_lock import EnvironmentLock, LockedFile, order
from dgr_build.errors import HostError, ProofError, UsageError
from dgr_build.source import download
from dgr_build.source.wanted import Wanted
from dgr_build.workspace import lock_file, publish, require_space

if TYPE_CHECKING:
    from unearth import Link

    from dgr_build.documents.matrix import Environment
    from dgr_build.source.index import Index

_UNKNOWN_SIZE = 1 << 30  # of a wheel that no lock knows yet; a download may not grow past twice of it
_TOPS = "nvidia/cu[0-9]*"  # where the wheels of one release of CUDA put everything, since 13
_REMEDY = "choose other versions of the wheels in lanes/matrix.toml, and lock again: dgr-build env lock"


def resolve(
    definition: Environment,
    definition_digest: str,
    cache: Path,
    *,
    machine: str,
    before: EnvironmentLock | None = None,
) -> EnvironmentLock:
    """Find and download the wheels of a definition, and lock what came.

    A file in the cache is taken only where its index, or the lock before, states its SHA-256.

    Args:
        definition: names the wheels.
        definition_digest: see `state.definition_digest`.
        cache: where they come to lie.
        machine: the processor family that they must be for, as the names of wheels say it.
        before: the lock until now.

    Raises:
        ProofError: an index sends something else than it states.
        SourceUnavailableError: no index has one of them, or it does not come.
        UsageError: the definition names no exact version.
    """
    from dgr_build.source import index  # noqa: PLC0415 - loads an HTTP client, which only a download needs

    files = []
    locked = {file.file: file.sha256 for file in before.files} if before is not None else {}
    with index.opened() as packages:
        for named in definition.wheels:
            package, pinned, version = named.partition("==")
            if not pinned:
                raise UsageError(
                    f"the wheel {named} has no exact version",
                    remedy="write NAME==VERSION in lanes/matrix.toml",
                )
            wanted = Wanted(package=package, version=version, kind="wheel", platform=machine)
            link = packages.find(wanted)
            path = cache / link.filename
            with lock_file(cache / f".{path.name}.lock", f"the download of {path.name}"):
                stated = _stated(link)
                if not _has(path, stated or locked.get(path.name)):
                    part = path.with_name(path.name + ".part")
                    if stated is None:
                        part.unlink(missing_ok=True)  # nothing would tell what it is the beginning of
                    download.fetch(
                        packages.client, link.url_without_fragment, part, size=_UNKNOWN_SIZE, title=path.name
                    )
                    _require(part, link.filename, stated)
                    publish(part, path)
            files.append(
                LockedFile(
                    package=package,
                    version=version,
                    file=path.name,
                    size=path.stat().st_size,
                    sha256=download.sha256_of(path),
                )
            )
    return EnvironmentLock(definition=definition_digest, files=tuple(sorted(files, key=order)))


def fetch(lock: EnvironmentLock, cache: Path) -> None:
    """Bring the locked wheels into the cache; those that are there and whole stay.

    Raises:
        ProofError: an index sends something else under a locked name.
        SourceUnavailableError: no index has one of them, or it does not come.
    """
    missing = [file for file in lock.files if not _whole(cache / file.file, file)]
    if not missing:
        return
    from dgr_build.source import index  # noqa: PLC0415 - see above

    with index.opened() as packages:
        for file in missing:
            _download(packages, file, cache)


def assemble(lock: EnvironmentLock, cache: Path, folder: Path) -> None:
    """Unpack the wheels of a lock into a folder, as the toolkit that they are parts of.

    Raises:
        HostError: there is not enough space.
        ProofError: one is no wheel or holds a path that leaves the folder, or two hold different files of one
            name.
    """
    archives = [cache / file.file for file in lock.files]
    total = 0
    for archive in archives:
        if not zipfile.is_zipfile(archive):
            raise ProofError(f"{archive} is no wheel", cause="it is no zip archive", remedy=_REMEDY)
        with zipfile.ZipFile(archive) as wheel:
            total += sum(entry.file_size for entry in wheel.infolist())
    require_space(folder, total, "the toolkit")
    with console.progress("unpacking the toolkit", total, unit="bytes") as task:
        for archive in archives:
            with zipfile.ZipFile(archive) as wheel:
                for entry in wheel.infolist():
                    _unpack(wheel, entry, folder)
                    task.advance(entry.file_size)
    _complete(toolkit(folder))


def toolkit(folder: Path) -> Path:
    """Return the toolkit's own root in the folder its wheels were unpacked into.

    Raises:
        HostError: the wheels hold none, or parts of several releases.
    """
    found = sorted(path for path in folder.glob(_TOPS) if path.is_dir())
    if len(found) != 1:
        held = " and ".join(str(path.relative_to(folder)) for path in found)
        raise HostError(
            "the wheels make no toolkit",
            cause=f"they hold parts of {held}" if found else f"none of them holds {_TOPS}",
            remedy=_REMEDY,
        )
    return found[0]


def _download(packages: Index, file: LockedFile, cache: Path) -> None:
    final = cache / file.file
    part = final.with_name(final.name + ".part")
    # By its whole name: an index may have the same version for several machines.
    wanted = Wanted(package=file.package, version=file.version, kind="wheel", platform=file.file)
    with lock_file(cache / f".{final.name}.lock", f"the download of {final.name}"):
        if _whole(final, file):
            return
        link = packages.find(wanted)
        for _ in range(2):  # what was kept of an earlier try may be what is wrong
            resumed = download.fetch(
                packages.client, link.url_without_fragment, part, size=file.size, title=final.name
            )
            if _whole(part, file):
                publish(part, final)
                return
            aside = download.quarantine(part)
            if not resumed:
                break
    raise ProofError(
        f"{file.file} is not what the lock pins",
        cause=f"its SHA-256 differs from {file.sha256}; it was moved to {aside}",
        remedy="try another index, or look at what was published and lock again: dgr-build env lock",
    )


def _stated(link: Link) -> str | None:
    """Return the SHA-256 that an index states of a file; many indexes do, some do not."""
    named = link.hash_option or {}
    return next(iter(named.get("sha256", ())), None)


def _has(path: Path, sha256: str | None) -> bool:
    """Tell whether a file is there and known to be the right one."""
    return sha256 is not None and path.is_file() and download.sha256_of(path) == sha256


def _require(part: Path, name: str, stated: str | None) -> None:
    if stated is not None and not _has(part, stated):
        aside = download.quarantine(part)
        raise ProofError(
            f"{name} is not what its index states",
            cause=f"its SHA-256 differs from {stated}; it was moved to {aside}",
            remedy="try again, or another index",
        )


def _whole(path: Path, file: LockedFile) -> bool:
    try:
        return path.stat().st_size == file.size and download.sha256_of(path) == file.sha256
    except FileNotFoundError:
        return False


def _unpack(wheel: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    name = PurePosixPath(entry.filename)
    if entry.is_dir():
        return
    if name.is_absolute() or ".." in name.parts:
        raise ProofError(
            f"{wheel.filename} is no wheel that may be unpacked",
            cause=f"it holds the path {entry.filename}",
            remedy=_REMEDY,
        )
    target = folder / name
    if target.exists():
        if target.read_bytes() == wheel.read(entry):
            return
        raise ProofError(
            f"the wheels do not fit together: {wheel.filename}",
            cause=f"another one holds a different {entry.filename}",
            remedy=_REMEDY,
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with wheel.open(entry) as source, target.open("wb") as file:
        while block := source.read(1 << 20):
            file.write(block)
    executable = (entry.external_attr >> 16) & stat.S_IXUSR or name.parent.name == "bin"
    target.chmod(0o755 if executable else 0o644)


def _complete(root: Path) -> None:
    """Add the links that CMake and the linker look for and that wheels cannot carry."""
    libraries = root / "lib"
    if not libraries.is_dir():
        raise HostError(
            "the wheels make no toolkit",
            cause=f"{libraries} is not among what they hold",
            remedy="dgr-build env show NAME --files lists them; a runtime library must be one of them",
        )
    for library in sorted(libraries.glob("lib*.so.*")):
        plain = library.with_name(library.name.partition(".so.")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)
    if not (root / "lib64").exists():
        (root / "lib64").symlink_to("lib")
