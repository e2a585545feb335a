"""Compilers, build programs and C++ packages, as far as a lane takes them from this machine."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from dgr_build.errors import DgrError, HostError
from dgr_build.lanes.compatibility import check_host_compiler, known, toolkit_version
from dgr_build.lanes.finding import Finding
from dgr_build.lanes.requirements import Place
from dgr_build.lanes.toolchain import own_program, version_numbers
from dgr_build.process import run

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Environment
    from dgr_build.lanes.host import Host

_COMPILER = "C++17 compiler"
_ASK = ("-dumpfullversion", "-dumpversion")
_NUMBER = r"(\d+(?:\.\d+)*)"


def examine_tools(environment: Environment, host: Host, lane_name: str) -> tuple[Finding, ...]:
    """Look for everything that an environment takes from this machine: compiler, CMake, ninja, C++ packages.

    Args:
        environment: of kind host or wheels.
        host: the machine.
        lane_name: for the commands that the remedies name.
    """
    # As the build does: the environment's own folders, whatever the caller's PATH says.
    place = Place(folders=environment.path, root=host.root)
    return (
        *_compilers(environment, place, host),
        *(_own(name) for name in ("cmake", "ninja")),
        *_packages(environment, place, lane_name),
    )


def _compilers(environment: Environment, place: Place, host: Host) -> tuple[Finding, ...]:
    """Return what is found of the compiler, and of what nvcc says to it."""
    bounds = {"g++": environment.gcc, "clang++": environment.clang}
    minima = {name: minimum for name, minimum in bounds.items() if minimum is not None}
    if not minima:
        return ()
    wanted = " or ".join(f"{name} {minimum} or newer" for name, minimum in minima.items())
    best = Finding(
        name=_COMPILER,
        kind="build",
        wanted=wanted,
        met=False,
        remedy=_get_compiler(next(iter(minima)), host),
        note=f"(searched {', '.join(environment.path)})",
    )
    for name, minimum in minima.items():
        inside = place.find(name)
        if inside is None:
            continue
        version = place.ask(inside, _ASK, _NUMBER)
        met = bool(version) and version_numbers(version) >= version_numbers(minimum)
        found = Finding(
            name=_COMPILER,
            kind="build",
            wanted=wanted,
            met=met,
            remedy=best.remedy,
            path=str(place.shown(inside)),
            version=version,
        )
        if met:
            return (found, *_for_cuda(environment, name, version, place))
        best = best if best.path else found
    return (best,)


def _for_cuda(environment: Environment, name: str, version: str, place: Place) -> tuple[Finding, ...]:
    toolkit = toolkit_version(environment.wheels)
    if toolkit is None:
        return ()
    minimum = environment.gcc if name == "g++" else environment.clang
    lowest = version_numbers(minimum or "0")[0]
    highest = next((max(one.gcc, one.clang) for one in known().cuda if one.version == toolkit), lowest)
    others = (place.find(f"{name}-{major}") for major in range(highest, lowest - 1, -1))
    fitting = [
        str(place.shown(other))
        for other in others
        if other and check_host_compiler(toolkit, name, other.name.rpartition("-")[2]).met
    ]
    return (check_host_compiler(toolkit, name, version, fitting),)


def _get_compiler(name: str, host: Host) -> str:
    if host.system == "Darwin":
        return "xcode-select --install"
    return "apt-get install g++" if name == "g++" else "apt-get install clang"


def _own(name: str) -> Finding:
    """Return what is found of a program that the launcher installs beside the toolchain."""
    found = Finding(
        name=name,
        kind="build",
        wanted="the one that ./dgr-build installs",
        met=False,
        remedy="start the toolchain by ./dgr-build, which installs it",
    )
    try:
        path = own_program(name)
    except HostError:
        return found
    version = _installed_version(name)
    return Finding(
        name=name,
        kind="build",
        wanted=found.wanted,
        met=bool(version),
        remedy=found.remedy,
        path=str(path),
        version=version,
    )


def _installed_version(distribution: str) -> str:
    """Return the version of a distribution in this environment, "" when it is not there."""
    # Asking the programs takes longer than the rest of the doctor: cmake's starts a Python first.
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _packages(environment: Environment, place: Place, lane_name: str) -> tuple[Finding, ...]:
    """Return what is found of the C++ packages; a lane installs them where it may: none stands in its way."""
    program = place.find("pkg-config")
    return tuple(_package(name, program, place, lane_name) for name in environment.pkg_config)


def _package(name: str, program: Path | None, place: Place, lane_name: str) -> Finding:
    version = _package_version(name, place.shown(program)) if program is not None else ""
    return Finding(
        name=f"C++ package {name}",
        kind="build",
        wanted="with its static archives",
        met=True,
        brought=not version,
        remedy=f"dgr-build lane {lane_name} --only packages",
        version=version,
    )


def _package_version(name: str, program: Path) -> str:
    """Return the version that pkg-config states of a package, "" when it knows none."""
    # Not reading what gRPC requires saves half a second; only pkgconf can be told so.
    for option in (("--maximum-traverse-depth=1",), ()):
        try:
            done = run([program, *option, "--modversion", name], timeout=60)
        except DgrError:
            return ""
        if done.returncode == 0:
            return done.stdout.strip()
    return ""
