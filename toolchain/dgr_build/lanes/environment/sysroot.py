"""A Debian root: resolved, downloaded and made by mmdebstrap, from a lock without any mirror."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from dgr_build import console
from dgr_build.documents.environment_lock import EnvironmentLock, LockedFile, order
from dgr_build.errors import CheckError, HostError, ProofError
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.diagnose import explain
from dgr_build.process import run, run_lines
from dgr_build.source.download import quarantine
from dgr_build.workspace import lock_file, remove, require_space, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dgr_build.documents.matrix import Environment

_CHOSEN = re.compile(r"^Inst (\S+) \((\S+) .*\[(\S+)\]\)")
_FETCHED = re.compile(r"^Get:(\d+) ")
_STEP = re.compile(r"^(?:Unpacking|Setting up) ")
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_KEPT = "/usr/share/doc/*/copyright"  # what is linked in is packed with its license
_KEPT_VARIABLES = {"path", "tmpdir", "http_proxy", "https_proxy", "no_proxy"}
GROWTH = 6  # a package's files against its archive, with the tar that they come in between, at most
_STEPS_A_PACKAGE = 2
# apt's own folder of archives, so that what it has fetched stays when it is stopped.
_KEEP = 'cd "$1/var/cache/apt" && rm -rf archives && ln -s "$DGR_DEBS" archives'


def resolve(definition: Environment, definition_digest: str, cache: Path, log: Path) -> EnvironmentLock:
    """Choose the packages of a definition as the suite has them now, download them, and lock what came.

    Raises:
        HostError: mmdebstrap is missing, or the mirror lacks a package; the first error is in the cause.
    """
    wanted = ["?essential", *definition.packages]
    said = _mmdebstrap(
        ["--simulate", *_only_archives(definition, wanted), definition.suite],
        f"choosing the packages of {definition.suite}",
        log,
    )
    chosen = [found.groups() for line in said.splitlines() if (found := _CHOSEN.match(line))]
    _download(definition, [f"{package}={version}" for package, version, _ in chosen], cache, log)
    files = []
    for package, version, architecture in chosen:
        name = f"{package}_{version.replace(':', '%3a')}_{architecture}.deb"
        path = cache / name
        files.append(
            LockedFile(
                package=package,
                version=version,
                file=name,
                size=path.stat().st_size,
                sha256=sha256_file(path),
            )
        )
    return EnvironmentLock(definition=definition_digest, files=tuple(sorted(files, key=order)))


def fetch(definition: Environment, lock: EnvironmentLock, cache: Path, log: Path) -> None:
    """Bring the locked packages into the cache; those that are there and whole stay.

    Raises:
        HostError: the mirror no longer has one of them, or cannot be reached.
        ProofError: a package is not what the lock pins.
    """
    cache.mkdir(parents=True, exist_ok=True)
    broken = [file for file in lock.files if not _whole(cache / file.file, file)]
    for file in broken:
        (cache / file.file).unlink(missing_ok=True)
    if not broken:
        return
    require_space(cache, sum(file.size for file in broken), "the packages")
    _download(definition, [f"{file.package}={file.version}" for file in lock.files], cache, log)
    for file in broken:
        path = cache / file.file
        if not _whole(path, file):
            aside = quarantine(path)
            raise ProofError(
                f"{file.file} is not what the lock pins",
                cause=f"its SHA-256 differs from {file.sha256}; it was moved to {aside}",
                remedy="the mirror serves another file of that name: do not use it before you know why",
            )


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the making of a root takes place.

    Args:
        cache: where the packages lie.
        root: the root's place; exists, empty.
        scratch: a private folder for what is only needed on the way.
        log: mmdebstrap's words.
    """

    cache: Path
    root: Path
    scratch: Path
    log: Path


def make(definition: Environment, lock: EnvironmentLock, places: Places) -> None:
    """Make a root of exactly the locked packages; nothing is downloaded.

    Args:
        definition: names the packages that pull in the others.
        lock: everything that goes in.
        places: where.

    Raises:
        HostError: mmdebstrap is missing or failed, or there is not enough space.
        CheckError: the root holds other packages than the lock.
    """
    require_space(places.root, GROWTH * lock.size, "the root")
    archive = places.scratch / "root.tar"
    repository = places.scratch / "repository"
    _publish_repository(lock, places.cache, repository)
    source = f"deb [trusted=yes] copy://{quote(str(repository))} ./"
    words = ["--variant=essential", "--format=tar", "--skip=download/empty"]
    words += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    words.append(f"--dpkgopt=path-include={_KEPT}")
    words += [f"--include={','.join(definition.packages)}", "", str(archive), source]
    count = _Count(line=_STEP, total=_STEPS_A_PACKAGE * len(lock.files))
    _mmdebstrap(words, f"making the {definition.suite} root", places.log, count=count)
    with console.progress("unpacking the root"):
        done = run(["tar", "--extract", "--file", archive, "--directory", places.root, "--exclude=./dev/*"])
    if done.returncode != 0:
        raise HostError(
            "the root could not be unpacked",
            cause=done.stderr.strip()[-2000:],
            remedy="free some space and run the same command again",
        )
    archive.unlink()
    remove(repository)
    (places.root / "etc" / "apt" / "sources.list").unlink(missing_ok=True)  # names the folder just removed
    _require_same(lock, places.root)


def _download(definition: Environment, pinned: Sequence[str], cache: Path, log: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    with lock_file(cache / ".archives.lock", "the Debian packages"):
        _mmdebstrap(
            ["--skip=download/empty,extract,cleanup", f"--setup-hook={_KEEP}",
             *_only_archives(definition, pinned), definition.suite],
            f"downloading the packages of {definition.suite}",
            log,
            variables={"DGR_DEBS": str(cache)},
            count=_Count(line=_FETCHED, total=len(pinned)),
        )  # fmt: skip


def _only_archives(definition: Environment, wanted: Sequence[str]) -> list[str]:
    """Return what makes mmdebstrap stop at archives: nothing is unpacked, so nobody needs to be root."""
    words = ["--mode=chrootless", "--variant=extract", "--format=null", "--verbose"]
    words += [f"--aptopt={option}" for option in definition.apt_options]
    return [*words, *(f"--include={name}" for name in wanted)]


def _publish_repository(lock: EnvironmentLock, cache: Path, repository: Path) -> None:
    """Lay out the locked archives as a repository that apt takes from a folder."""
    repository.mkdir()
    entries = []
    for file in lock.files:
        (repository / file.file).symlink_to(cache / file.file)
        asked = run(["dpkg-deb", "--field", cache / file.file])
        if asked.returncode != 0:
            raise ProofError(
                f"{file.file} is locked, and no Debian package",
                cause=asked.stderr.strip(),
                remedy="lock the environment anew: dgr-build env lock NAME",
            )
        control = asked.stdout.rstrip()
        entries.append(f"{control}\nFilename: ./{file.file}\nSize: {file.size}\nSHA256: {file.sha256}\n")
    write_atomic(repository / "Packages", "\n".join(entries).encode())
    write_atomic(repository / "Release", b"Suite: locked\nCodename: locked\n")


def _require_same(lock: EnvironmentLock, root: Path) -> None:
    status = (root / "var" / "lib" / "dpkg" / "status").read_text(encoding="utf-8")
    installed = {
        (fields["Package"], fields["Version"])
        for block in status.split("\n\n")
        if "Package" in (fields := dict(re.findall(r"^(Package|Version): (.*)$", block, re.MULTILINE)))
    }
    locked = {(file.package, file.version) for file in lock.files}
    if installed != locked:
        more = ", ".join(sorted(f"{name} {version}" for name, version in installed - locked)) or "nothing"
        less = ", ".join(sorted(f"{name} {version}" for name, version in locked - installed)) or "nothing"
        raise CheckError(
            "the root is not what the lock says",
            cause=f"beyond the lock it holds {more}; it lacks {less}",
            remedy="the lock was made for other packages: dgr-build env lock writes it anew",
        )


@dataclass(frozen=True, kw_only=True)
class _Count:
    """How mmdebstrap's lines show how far it is."""

    line: re.Pattern[str]
    total: int


def _mmdebstrap(
    words: Sequence[str],
    title: str,
    log: Path,
    *,
    variables: Mapping[str, str] | None = None,
    count: _Count | None = None,
) -> str:
    program = shutil.which("mmdebstrap")
    if program is None:
        raise HostError(
            "mmdebstrap is missing", cause="it makes Debian roots", remedy="apt-get install mmdebstrap"
        )
    done_so_far = 0
    with console.progress(title, count.total if count is not None else None) as task:

        def on_line(line: str) -> None:
            nonlocal done_so_far
            if count is not None and count.line.match(line):
                done_so_far += 1
                task.update(done=done_so_far, total=count.total)

        command = [program, *(() if "--verbose" in words else ("--verbose",)), *words]
        kept = {name: value for name, value in os.environ.items() if name.lower() in _KEPT_VARIABLES}
        done = run_lines(command, on_line, env={**kept, "LC_ALL": "C.UTF-8", **(variables or {})})
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(f"{done.command}\n{done.stdout}\n")
    if done.returncode != 0:
        cause, remedy = explain(done.stdout, log)
        raise HostError(f"mmdebstrap failed while {title}", cause=cause, remedy=remedy)
    return done.stdout


def _whole(path: Path, file: LockedFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size and sha256_file(path) == file.sha256
