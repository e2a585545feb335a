"""The programs that build a lane: found in the environment's folders, with the versions they state."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import HostError
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.documents.matrix import Environment


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program of this machine.

    Args:
        path: where it lies.
        version: the line in which it says what it is.
    """

    path: Path
    version: str


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """Everything that has a hand in what a build comes to, and the compiler cache, which has none.

    Args:
        target: the machine that the compiler makes code for.
        ccache: the cache's launcher, None where it is not installed.
        path: the folders that the build's own PATH has.
    """

    cmake: Program
    ninja: Program
    c: Program
    cxx: Program
    linker: Program
    target: str
    ccache: Path | None
    path: tuple[str, ...]

    def versions(self) -> dict[str, str]:
        """Return what every program states, by role."""
        roles = {
            "cmake": self.cmake,
            "ninja": self.ninja,
            "c": self.c,
            "cxx": self.cxx,
            "linker": self.linker,
        }
        return {role: program.version for role, program in roles.items()} | {"target": self.target}


def find_toolchain(environment: Environment) -> Toolchain:
    """Find the programs of an environment of this machine.

    Raises:
        HostError: no compiler, or only older ones than the environment admits; no linker.
    """
    cxx, c = _compilers(environment)
    linker = find_program("ld", environment.path)
    if linker is None:
        raise HostError(
            "this machine has no linker",
            cause=f"no ld in {', '.join(environment.path)}",
            remedy="apt-get install binutils",
        )
    ccache = find_program("ccache", environment.path)
    return Toolchain(
        cmake=_described(own_program("cmake")),
        ninja=_described(own_program("ninja")),
        c=_described(c),
        cxx=_described(cxx),
        linker=_described(linker),
        target=run([cxx, "-dumpmachine"]).stdout.strip(),
        ccache=ccache,
        path=environment.path,
    )


def find_program(name: str, path: Sequence[str]) -> Path | None:
    """Return the first program of this name in the given folders; the caller's PATH plays no part."""
    found = shutil.which(name, path=":".join(path))
    return Path(found) if found else None


def own_program(name: str) -> Path:
    """Return a program that was installed beside this toolchain's own Python.

    Raises:
        HostError: it is not there.
    """
    path = Path(sys.executable).with_name(name)
    if not path.is_file():
        raise HostError(
            f"{name} is missing beside {sys.executable}",
            cause="the virtual environment is not the one that the launcher makes",
            remedy="run ./dgr-build, or pip install the project's requirements.lock into this environment",
        )
    return path


def version_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a dotted version, so that versions compare."""
    return tuple(int(part) for part in text.split("."))


def stated_version(program: Path, arguments: Sequence[str], pattern: str) -> str | None:
    """Ask a program for its version; None when what it prints has none."""
    done = run([program, *arguments], timeout=60)
    found = re.search(pattern, done.stdout + done.stderr)
    return found.group(1) if found else None


def _compilers(environment: Environment) -> tuple[Path, Path]:
    """Return the C++ compiler of the environment and the C compiler beside it."""
    tried = []
    for cxx_name, c_name, minimum in (
        ("g++", "gcc", environment.gcc),
        ("clang++", "clang", environment.clang),
    ):
        if minimum is None:
            continue
        cxx = find_program(cxx_name, environment.path)
        if cxx is None:
            tried.append(f"no {cxx_name}")
            continue
        version = stated_version(cxx, ["-dumpfullversion", "-dumpversion"], r"(\d+(?:\.\d+)*)")
        if version is None or version_numbers(version) < version_numbers(minimum):
            tried.append(f"{cxx} is {version or 'of no known version'}, {minimum} or newer is needed")
            continue
        c = cxx.with_name(c_name)
        if c.is_file():
            return cxx, c
        tried.append(f"{cxx} has no {c_name} beside it")
    raise HostError(
        "this machine has no C++17 compiler that will do",
        cause="; ".join(tried) + f" (searched {', '.join(environment.path)})",
        remedy="apt-get install g++",
    )


def _described(path: Path) -> Program:
    done = run([path, "--version"], timeout=60)
    lines = done.stdout.splitlines()
    return Program(path=path, version=lines[0].strip() if lines else "")
