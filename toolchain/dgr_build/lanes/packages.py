"""The C++ packages of this machine: named, checked and installed through the recipes beside the sources."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.documents.base import digest
from dgr_build.errors import BuildError, HostError
from dgr_build.lanes.native_tree import tree_id
from dgr_build.lanes.toolchain import own_program
from dgr_build.process import run, run_lines
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.workspace import Workspace

_REMOTE = "dgr-system"
_APT_LISTS = Path("/var/lib/apt/lists")
_MODE = "tools.system.package_manager:mode"
_SUDO = "tools.system.package_manager:sudo"
_SHOWN_LINES = 20
_FOUND = "found.json"
_OWN = ("conanfile.py", "conan.lock")
# Files that change whenever a package manager installs or removes something.
DATABASES = (Path("/var/lib/dpkg/status"), Path("/var/lib/rpm/rpmdb.sqlite"), Path("/var/lib/pacman/local"))
_INSTALL = {
    "apt-get": "apt-get install -y --no-install-recommends",
    "dnf": "dnf install -y",
    "pacman": "pacman -S --noconfirm",
    "brew": "brew install",
}


@dataclass(frozen=True, kw_only=True)
class Packages:
    """What the worker needs of the system's package manager.

    Args:
        manager: the package manager, "" where Conan knows none for this system.
        wanted: all packages.
        missing: those that are not installed.
    """

    manager: str
    wanted: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def command(self) -> str:
        """The one line that installs what is missing, as a person without rights would type it."""
        prefix = "" if self.manager == "brew" else "sudo "
        return f"{prefix}{_INSTALL.get(self.manager, self.manager)} {' '.join(self.missing)}"


def ensure_packages(ws: Workspace) -> Packages:
    """Make sure that the C++ packages are there: install what is missing where we may, name it where not.

    Returns:
        what was found at first; `missing` was installed by the time this returns.

    Raises:
        BuildError: the lock does not fit the recipes.
        HostError: something is missing and may not be installed, or could not be.
    """
    state = package_state(ws)
    known = _recalled(ws, state)
    if known is not None:
        return known
    with ws.lock("packages"):
        packages = check_packages(ws)
        if not packages.missing:
            _remember(ws, state, packages)
            return packages
        names = " ".join(packages.missing)
        sudo = _sudo()
        if sudo is None:
            raise HostError(
                f"C++ packages are missing: {names}",
                cause="installing them needs root, or sudo that asks no password",
                remedy=packages.command,
            )
        console.say(f"installing with {packages.manager}{' through sudo' if sudo else ''}: {names}")
        _install(ws, packages, sudo)
        left = check_packages(ws).missing
        if left:
            raise HostError(
                f"C++ packages are still missing: {' '.join(left)}",
                cause=f"{packages.manager} ended well without installing them",
                remedy=packages.command,
            )
        return packages


def package_state(ws: Workspace, databases: Sequence[Path] = DATABASES) -> str:
    """Return the digest of what Conan's answer depends on: the recipes, and what the system has installed.

    Args:
        ws: the workspace, for the recipes.
        databases: files that change whenever a package manager installs or removes something.

    Returns:
        "" where no such file is known, so that nothing can be remembered.
    """
    seen = [
        (str(file), status.st_ino, status.st_size, status.st_mtime_ns)
        for file, status in ((file, file.stat()) for file in databases if file.exists())
    ]
    if not seen:
        return ""
    own = [(name, digest((ws.native / name).read_text())) for name in _OWN if (ws.native / name).is_file()]
    recipes = ws.native / "conan"
    return digest([seen, own, tree_id(recipes) if recipes.is_dir() else ""])


def _recalled(ws: Workspace, state: str) -> Packages | None:
    """Return what was found in this very state, when nothing was missing then."""
    try:
        known = json.loads((ws.conan / _FOUND).read_bytes())
        if not state or known["state"] != state:
            return None
        return Packages(manager=known["manager"], wanted=tuple(known["wanted"]), missing=())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(ws: Workspace, state: str, packages: Packages) -> None:
    found = {"state": state, "manager": packages.manager, "wanted": packages.wanted}
    write_atomic(ws.conan / _FOUND, json.dumps(found).encode())


def check_packages(ws: Workspace) -> Packages:
    """Ask Conan which packages of the system are wanted and which are missing; nothing is installed.

    Raises:
        BuildError: the lock does not fit the recipes, or Conan failed.
    """
    _prepare_home(ws)
    found = ws.conan / "found.lock"
    command = [*_conan_install(ws), "-c:a", f"{_MODE}=report-installed", "--lockfile-out", found]
    done = run([*command, "--format=json"], env=_variables(ws))
    if done.returncode != 0:
        raise _conan_failed(done.stderr)
    locked = ws.native / "conan.lock"
    if not locked.is_file() or _revisions(locked) != _revisions(found):
        fresh = ws.conan / "fresh.lock"
        write_atomic(fresh, _normal(found))
        raise BuildError(
            f"{locked} does not fit the recipes in {ws.native / 'conan'}",
            cause="a recipe changed after the lock was written",
            remedy=f"read the change, then: cp {fresh} {locked}",
        )
    return _collect(json.loads(done.stdout))


def _install(ws: Workspace, packages: Packages, sudo: tuple[str, ...]) -> None:
    update_first = packages.manager == "apt-get" and not any(_APT_LISTS.glob("*_Packages*"))
    if update_first:
        _update(sudo)
    done = _conan_installs(ws, sudo)
    if done is not None and packages.manager == "apt-get" and not update_first:
        _update(sudo)  # the lists may name packages that the mirror no longer has
        done = _conan_installs(ws, sudo)
    if done is not None:
        raise HostError(
            f"{packages.manager} could not install {' '.join(packages.missing)}",
            cause=done,
            remedy=packages.command,
        )


def _conan_installs(ws: Workspace, sudo: tuple[str, ...]) -> str | None:
    """Install through Conan; return the end of its output where that failed."""
    command = [*_conan_install(ws), "-c:a", f"{_MODE}=install", "-c:a", f"{_SUDO}={bool(sudo)}"]
    with console.progress("installing packages") as task:
        done = run_lines(command, lambda _: task.advance(1), env=_variables(ws))
    return None if done.returncode == 0 else "\n".join(done.stdout.splitlines()[-_SHOWN_LINES:])


def _update(sudo: tuple[str, ...]) -> None:
    with console.progress("apt-get update") as task:
        done = run_lines([*sudo, "apt-get", "update"], lambda _: task.advance(1))
    if done.returncode != 0:
        console.warn(f"apt-get update failed: {done.stdout.splitlines()[-1] if done.stdout else ''}")


def _sudo() -> tuple[str, ...] | None:
    """Return what to put before a command that needs root; None where we cannot become root unasked."""
    if os.geteuid() == 0:
        return ()
    try:
        return ("sudo", "-n") if run(["sudo", "-n", "true"], timeout=30).returncode == 0 else None
    except HostError:
        return None


def _prepare_home(ws: Workspace) -> None:
    """Give Conan a home of its own that knows our recipes and no other remote."""
    remote = {
        "name": _REMOTE,
        "url": str(ws.native / "conan"),
        "verify_ssl": True,
        "remote_type": "local-recipes-index",
    }
    file = ws.conan / "remotes.json"
    content = json.dumps({"remotes": [remote]}).encode()
    if not file.is_file() or file.read_bytes() != content:
        write_atomic(file, content)


def _conan_install(ws: Workspace) -> list[str | Path]:
    command: list[str | Path] = [
        own_program("conan"),
        "install",
        ws.native,
        "--output-folder",
        ws.conan / "out",
    ]
    # --update: the recipes as they lie there now, not as a former run has seen them.
    command += ["--profile:all", ws.native / "conan" / "profile", "--build=missing", "--update"]
    return [*command, "--remote", _REMOTE, "--lockfile="]


def _variables(ws: Workspace) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONAN_")}
    return {**kept, "CONAN_HOME": str(ws.conan), "DEBIAN_FRONTEND": "noninteractive"}


def _collect(told: Any) -> Packages:
    wanted: dict[str, None] = {}
    missing: dict[str, None] = {}
    manager = ""
    for node in told["graph"]["nodes"].values():
        for name, asked in (node.get("system_requires") or {}).items():
            manager = name
            wanted |= dict.fromkeys(asked.get("install", ()))
            missing |= dict.fromkeys(asked.get("missing", ()))
    return Packages(manager=manager, wanted=tuple(wanted), missing=tuple(missing))


def _revisions(lock: Path) -> object:
    return json.loads(_normal(lock))


def _normal(lock: Path) -> bytes:
    """Return a lock without the times at which its recipes were seen, in a fixed order."""
    data = json.loads(lock.read_bytes())
    plain = {
        name: sorted(re.sub(r"%.*", "", entry) for entry in value) if isinstance(value, list) else value
        for name, value in data.items()
    }
    return (json.dumps(plain, indent=4) + "\n").encode()


def _conan_failed(output: str) -> BuildError:
    return BuildError(
        "Conan could not read the recipes of the C++ packages",
        cause="\n".join(output.splitlines()[-_SHOWN_LINES:]),
        remedy="check native/conanfile.py and native/conan",
    )
