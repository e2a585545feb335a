"""The programs that build a lane: found in its environment, with the versions they state."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import HostError
from dgr_build.lanes.environment.made import Made
from dgr_build.lanes.remembered import remembered, state_of
from dgr_build.process import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.documents.matrix import DeviceCompiler, Environment
    from dgr_build.workspace import Workspace

_RELEASE = re.compile(r"\brelease \d+\.\d+, V")
_PACKAGES = {"ld": "binutils", "ninja": "ninja-build"}


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
    """Everything that has a hand in what a build comes to.

    Args:
        made: the environment that the programs belong to.
        device: the compiler of device code, None for a lane without.
        target: the machine that the compiler makes code for.
        libc: the C library that is linked with, by name and version.
        path: the folders that the build's own PATH has.
    """

    made: Made
    cmake: Program
    ninja: Program
    c: Program
    cxx: Program
    linker: Program
    device: Program | None = None
    target: str
    libc: str
    path: tuple[str, ...]

    def versions(self) -> dict[str, str]:
        """Return what every program states, by role."""
        roles = {
            "cmake": self.cmake,
            "ninja": self.ninja,
            "c": self.c,
            "cxx": self.cxx,
            "linker": self.linker,
            **({"device": self.device} if self.device is not None else {}),
        }
        return {role: program.version for role, program in roles.items()} | {"target": self.target}


def find_toolchain(
    environment: Environment,
    made: Made | None = None,
    device: DeviceCompiler | None = None,
    *,
    ws: Workspace | None = None,
) -> Toolchain:
    """Find the programs of an environment.

    Args:
        environment: says where to look, and which versions will do.
        made: the environment as it is here; this machine by default.
        device: the compiler of device code that is wanted too.
        ws: where answers of programs are remembered while their files stay the same; None to ask them.

    Raises:
        HostError: no compiler, or only older ones than the environment admits; no linker.
    """
    made = made or Made(name="host", kind="host", digest="")
    path = (*([str(made.root / "bin")] if made.kind == "wheels" and made.root else []), *environment.path)

    def ask() -> dict[str, str]:
        return _asked(environment, made, path, device)

    if ws is None:
        known = ask()
    else:
        facts = (environment.model_dump(mode="json"), made.digest, device and device.program)
        name = f"programs-{made.name}-{device.language if device is not None else 'none'}"
        known = remembered(ws, name, state_of(_files(path, made, device), *facts), ask)
    programs = {
        role: Program(path=Path(known[role]), version=known[f"{role}.version"])
        for role in ("cmake", "ninja", "c", "cxx", "linker", "device")
        if role in known
    }
    return Toolchain(
        made=made,
        cmake=programs["cmake"],
        ninja=programs["ninja"],
        c=programs["c"],
        cxx=programs["cxx"],
        linker=programs["linker"],
        device=programs.get("device"),
        target=known["target"],
        libc=known["libc"],
        path=path,
    )


def _asked(
    environment: Environment, made: Made, path: Sequence[str], device: DeviceCompiler | None
) -> dict[str, str]:
    """Return the programs by role, what each states, what the compiler aims at, and the C library."""
    cxx, c = _compilers(environment, made, path)
    found = {"c": c, "cxx": cxx, "linker": _require("ld", path, made)}
    for name in ("cmake", "ninja"):
        found[name] = _require(name, path, made) if made.kind == "sysroot" else own_program(name)
    if device is not None:
        found["device"] = _require(device.program, path, made)
    target = run(made.command([cxx, "-dumpmachine"], network=True)).stdout.strip()
    return (
        {role: str(program) for role, program in found.items()}
        | {f"{role}.version": _version_line(program, made) for role, program in found.items()}
        | {"target": target, "libc": _libc(made, path)}
    )


def _files(path: Sequence[str], made: Made, device: DeviceCompiler | None) -> list[Path]:
    """Return the files that change whenever what the programs state does."""
    names = ["g++", "gcc", "clang++", "clang", "ld", "cmake", "ninja", "getconf"]
    names += [device.program] if device is not None else []
    found = (find_program(name, path, made) for name in names)
    own = [] if made.kind == "sysroot" else [own_program("cmake"), own_program("ninja")]
    return [made.outside(program) for program in found if program is not None] + own


def find_program(name: str, path: Sequence[str], made: Made | None = None) -> Path | None:
    """Return the first program of this name in the given folders; the caller's PATH plays no part.

    Args:
        name: of the program, or its full path.
        path: the folders, as the environment knows them.
        made: the environment; this machine by default.
    """
    if made is None or made.kind != "sysroot":
        found = shutil.which(name, path=":".join(path))
        return Path(found) if found else None
    places = [Path(name)] if name.startswith("/") else [Path(folder, name) for folder in path]
    # Links of a root that start at its own / lead nowhere from outside: that they are there must do.
    return next((place for place in places if made.lies(place)), None)


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


def _compilers(environment: Environment, made: Made, path: Sequence[str]) -> tuple[Path, Path]:
    """Return the C++ compiler of the environment and the C compiler beside it."""
    tried = []
    for cxx_name, c_name, minimum in (
        ("g++", "gcc", environment.gcc),
        ("clang++", "clang", environment.clang),
    ):
        if minimum is None:
            continue
        cxx = find_program(cxx_name, path, made)
        if cxx is None:
            tried.append(f"no {cxx_name}")
            continue
        version = _version_of(cxx, made)
        if version is None or version_numbers(version) < version_numbers(minimum):
            tried.append(f"{cxx} is {version or 'of no known version'}, {minimum} or newer is needed")
            continue
        c = find_program(str(cxx.with_name(c_name)), path, made)
        if c is not None:
            return cxx, c
        tried.append(f"{cxx} has no {c_name} beside it")
    raise HostError(
        f"environment {made.name} has no C++17 compiler that will do",
        cause="; ".join(tried) + f" (searched {', '.join(path)})",
        remedy="apt-get install g++",
    )


def _require(name: str, path: Sequence[str], made: Made) -> Path:
    found = find_program(name, path, made)
    if found is None:
        here = "this machine" if made.kind == "host" else f"environment {made.name}"
        raise HostError(
            f"{here} has no {name}",
            cause=f"it is not in {', '.join(path)}",
            remedy=f"apt-get install {_PACKAGES.get(name, name)}"
            if made.kind == "host"
            else f"add its package to environment.{made.name} in lanes/matrix.toml and lock again",
        )
    return found


def _version_line(path: Path, made: Made) -> str:
    done = run(made.command([path, "--version"], network=True), timeout=60)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    # nvcc names its release last, everybody else first.
    return next((line for line in lines if _RELEASE.search(line)), lines[0] if lines else "")


def _version_of(compiler: Path, made: Made) -> str | None:
    asked = made.command([compiler, "-dumpfullversion", "-dumpversion"], network=True)
    found = re.search(r"(\d+(?:\.\d+)*)", run(asked, timeout=60).stdout)
    return found.group(1) if found else None


def _libc(made: Made, path: Sequence[str]) -> str:
    """Return the C library of an environment, such as `glibc 2.36`."""
    if sys.platform != "linux":
        return " ".join(platform.libc_ver()).strip()
    getconf = find_program("getconf", path, made)
    if getconf is None:
        return ""
    asked = run(made.command([getconf, "GNU_LIBC_VERSION"], network=True), timeout=60)
    return asked.stdout.strip() if asked.returncode == 0 else ""
