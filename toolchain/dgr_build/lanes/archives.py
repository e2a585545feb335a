"""The static archives of the C++ packages that are linked in: named by pkg-config, known by their hashes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import HostError
from dgr_build.lanes.packages import DATABASES
from dgr_build.lanes.remembered import remembered, state_of
from dgr_build.lanes.toolchain import find_program
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dgr_build.documents.matrix import Environment
    from dgr_build.lanes.environment.made import Made
    from dgr_build.lanes.toolchain import Toolchain
    from dgr_build.workspace import Workspace


def static_archives(
    environment: Environment, toolchain: Toolchain, variables: Mapping[str, str]
) -> tuple[Path, ...]:
    """Return the archives of an environment's packages and of all that they pull in, by their paths here.

    Libraries without an archive there (parts of the C library) are left out: they are linked shared.

    Args:
        environment: names the packages, and libraries that pkg-config does not know.
        toolchain: whose compiler looks for them.
        variables: the environment of the build.

    Raises:
        HostError: pkg-config or a package is missing.
    """
    packages = environment.pkg_config
    if not packages:
        return ()
    made = toolchain.made
    pkg_config = find_program("pkg-config", toolchain.path, made)
    if pkg_config is None:
        raise HostError(
            "pkg-config is missing", cause="it names what gRPC needs", remedy="apt-get install pkg-config"
        )
    asked = run(
        made.command([pkg_config, "--static", "--libs-only-l", *packages], network=True), env=variables
    )
    if asked.returncode != 0:
        raise HostError(
            f"pkg-config does not know {' and '.join(packages)}",
            cause=asked.stderr.strip(),
            remedy="dgr-build lane cpu --only packages names the packages to install, or installs them",
        )
    named = (word[2:] for word in asked.stdout.split() if word.startswith("-l"))
    names = dict.fromkeys([*environment.libraries, *named])
    folders = _search_folders(toolchain, variables)
    found = (_find(f"lib{name}.a", folders, made) for name in names)
    return tuple(path for path in found if path is not None)


def known_archives(
    ws: Workspace, environment: Environment, toolchain: Toolchain, variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the archives as `static_archives` finds them, each path with the sha256 of its file.

    Asked again only after the system has installed something, or an archive is another file.

    Raises:
        HostError: pkg-config or a package is missing.
    """
    made = toolchain.made
    systems = [made.outside(database) for database in DATABASES]
    name = f"archives-{made.name}"

    def found() -> dict[str, str]:
        return dict.fromkeys(map(str, static_archives(environment, toolchain, variables)), "")

    def hashed(paths: Sequence[Path]) -> dict[str, str]:
        return {str(path): sha256_file(path) for path in paths}

    facts = (environment.model_dump(mode="json"), toolchain.versions())
    if not any(database.exists() for database in systems):
        return hashed([Path(path) for path in found()])
    known = remembered(ws, name, state_of(systems, *facts), found)
    paths = [Path(path) for path in known]
    if not all(path.is_file() for path in paths):
        paths = [Path(path) for path in found()]
    return remembered(ws, f"{name}-sha256", state_of(paths), lambda: hashed(paths))


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _search_folders(toolchain: Toolchain, variables: Mapping[str, str]) -> tuple[Path, ...]:
    asked = toolchain.made.command([toolchain.cxx.path, "-print-search-dirs"], network=True)
    told = run(asked, env=variables).stdout
    line = next((line for line in told.splitlines() if line.startswith("libraries:")), "")
    folders = line.partition("=")[2].split(":")
    return tuple(Path(os.path.normpath(folder)) for folder in folders if folder)


def _find(name: str, folders: Sequence[Path], made: Made) -> Path | None:
    places = (made.outside(folder) / name for folder in folders)
    return next((place.resolve() for place in places if place.is_file()), None)
