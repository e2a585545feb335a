"""Where benchmarks run: a workspace and cache of their own, and the programs they start."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build import workspace
from dgr_build.documents.pin import SdistProvider, load_pin
from dgr_build.errors import CheckError, HostError, UsageError
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dgr_build.workspace import Workspace

_OWN = (sys.executable, "-P", "-m", "dgr_build")
_SHOWN_LINES = 20
_NEED_BYTES = 3_000_000_000
_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
    "LC_ALL": "C.UTF-8",
}


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where benchmarks run.

    Args:
        ws: the person's workspace; nothing in it is changed.
        place: a private folder that is gone afterwards.
        jobs: compilers at once.
        own: the words that start this toolchain.
    """

    ws: Workspace
    place: Path
    jobs: int
    own: tuple[str, ...] = _OWN

    @property
    def private(self) -> Path:
        """The private workspace."""
        return self.place / "workspace"

    def variables(self, **more: str) -> dict[str, str]:
        """Return the environment of a private run of the toolchain."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DGR_")}
        return kept | {
            "DGR_PROJECT": str(self.ws.project),
            "DGR_WORKSPACE": str(self.private),
            "DGR_CACHE": str(self.place / "cache"),
            "PYTHONUTF8": "1",
            "NO_COLOR": "1",
            **more,
        }

    def toolchain(self, *arguments: str | Path, **more: str) -> str:
        """Run the toolchain in the private workspace and return what it printed.

        Raises:
            CheckError: it failed.
        """
        return started([*self.own, *arguments], env=self.variables(**more), cwd=self.ws.project)

    def archive(self) -> Path:
        """Return the source distribution in the private cache, taken from the person's.

        Raises:
            HostError: the person's cache does not hold it.
            UsageError: the pin names none.
        """
        pin = load_pin(self.ws.pin_file)
        provider = next((one for one in pin.providers if isinstance(one, SdistProvider)), None)
        if provider is None:
            raise UsageError(
                f"{self.ws.pin_file} names no source distribution",
                remedy="dgr-build bench toolchain --only noop measures what needs none",
            )
        name = f"{provider.package}-{provider.version}.tar.gz"
        there, here = self.ws.downloads / name, self.place / "cache" / "downloads" / name
        if not there.is_file():
            raise HostError(
                f"{name} is not in the cache",
                cause="the benchmark measures what is done with it, not the network",
                remedy="dgr-build source resolve --provider sdist",
            )
        if not here.is_file():
            here.parent.mkdir(parents=True, exist_ok=True)
            try:
                here.hardlink_to(there)
            except OSError:  # another file system
                shutil.copyfile(there, here)
        return here

    def resolved(self) -> Path:
        """Return the object store of the private workspace, filled.

        Raises:
            HostError, UsageError: see `archive`.
        """
        self.archive()
        store = self.private / "store"
        if not store.is_dir():
            self.toolchain("source", "resolve", "--provider", "sdist", "--offline")
        return store


@contextmanager
def ground(ws: Workspace, jobs: int) -> Iterator[Ground]:
    """Yield a place for benchmarks, removed afterwards whatever happens.

    Raises:
        HostError: there is not enough space.
    """
    parent = ws.root / "bench"
    workspace.require_space(parent, _NEED_BYTES, "the benchmarks")
    workspace.sweep(parent, "bench")
    with workspace.staging(parent, "bench") as place:
        yield Ground(ws=ws, place=place, jobs=jobs)


def started(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a program to its end and return what it printed.

    Raises:
        CheckError: it failed; the end of what it said is in the cause.
        HostError: it is not there.
    """
    done = run(argv, env=env, cwd=cwd)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).splitlines()[-_SHOWN_LINES:]
        raise CheckError(
            "a command that was to be measured failed",
            cause="\n".join([done.command, *said]),
            remedy="run it by itself, mend what it says, then measure again",
        )
    return done.stdout


def git(folder: Path, *arguments: str | Path) -> str:
    """Run git in a folder with nobody's settings.

    Raises:
        CheckError: it failed.
        HostError: it is not installed.
    """
    path = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)}
    return started(["git", *arguments], env=path | _GIT, cwd=folder)


def patched_clone(folder: Path, store: Path, commit: str) -> Path:
    """Make a git work tree of the pinned commit from an object store, and return it."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=bench")
    for name, value in (("gc.auto", "0"), ("maintenance.auto", "false"), ("core.autocrlf", "false")):
        git(folder, "config", name, value)
    git(folder, "fetch", "--quiet", "--depth=1", store, f"refs/pins/{commit}")
    git(folder, "reset", "--quiet", "--hard", commit)
    return folder
