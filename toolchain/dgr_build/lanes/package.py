"""What wheel and tarball of a worker have in common: what goes in, what is checked first, what they say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from dgr_build.errors import CheckError, UsageError
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.package_target import BASE_LIBRARIES, Target, platform_tag, read_target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAM = "dgr-shard-worker"
_OWN_FOLDERS = ("$ORIGIN", "@loader_path")
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A built worker that is to be packaged.

    Args:
        lane: its name.
        lane_digest: see `Plan.digest`.
        worker: the executable.
        version: of the package (PEP 440); see `package_version`.
        epoch: the time that every file in the package gets, in seconds since 1970.
        needed: the shared libraries that the worker asks for.
        run_path: where its loader looks for them first, as linked.
        requires: requirements of Python packages that bring vendor runtimes.
        provided: the shared libraries that `requires` bring.
        licenses: what is inside the worker, by name, and the file with its license.
        said: what the worker says about itself.
    """

    lane: str
    lane_digest: str
    worker: Path
    version: str
    epoch: int
    needed: tuple[str, ...]
    run_path: tuple[str, ...]
    requires: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    licenses: Mapping[str, Path] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def distribution(self) -> str:
        """The name of the package."""
        return f"dgr-worker-{self.lane}"


def package_version(said: Mapping[str, Any]) -> str:
    """Return the version of a worker's package: its own, upstream's build, and which lane digest it is of.

    Two workers of one lane with other flags have other versions. The letter before the digest keeps a
    leading zero of it.
    """
    return f"{said['worker_version']}+llama{said['upstream_build']}.d{str(said['lane_digest'])[:12]}"


def check_subject(subject: Subject) -> Target:
    """Hold what is to be packaged against the worker's file and its own words; return where it runs.

    Raises:
        CheckError: the worker is no program for a known system, or not what the subject says it is.
        UsageError: version, requirements or licenses make no sense.
    """
    _check_words(subject)
    target = read_target(subject.worker)
    wrong = [
        f"it says {name} {subject.said.get(name)!r}, not {value!r}"
        for name, value in (("lane", subject.lane), ("lane_digest", subject.lane_digest))
        if subject.said.get(name) != value
    ]
    stated = [path for entry in subject.run_path for path in entry.split(":")]
    wrong += [f"it does not look in {path}" for path in stated if path not in target.loader_paths]
    wrong += [f"it looks in {path} too" for path in target.loader_paths if path not in stated]
    wrong += [
        f"it looks in {path}, which is no place beside itself"
        for path in target.loader_paths
        if path.partition("/")[0] not in _OWN_FOLDERS
    ]
    if sorted(target.needed) != sorted(subject.needed):
        wrong.append(f"it needs {', '.join(target.needed)}, not {', '.join(subject.needed)}")
    missing = [name for name in subject.provided if name not in target.needed]
    wrong += [f"it does not need {name}, which its requirements are said to bring" for name in missing]
    if subject.provided and not any("/../" in path for path in target.loader_paths):
        wrong.append(f"it does not look outside its own folder for {', '.join(subject.provided)}")
    if wrong:
        raise CheckError(
            f"{subject.worker.name} of lane {subject.lane} cannot be packaged",
            cause="; ".join(wrong),
            remedy="build it again: dgr-build lane cpu, with the name of this lane",
        )
    return target


def _check_words(subject: Subject) -> None:
    try:
        normal = str(Version(subject.version))
        for text in subject.requires:
            Requirement(text)
    except (InvalidVersion, InvalidRequirement) as error:
        raise UsageError(
            f"the package of lane {subject.lane} has a malformed version or requirement",
            cause=str(error),
            remedy="correct the lane in lanes/matrix.toml",
        ) from error
    if normal != subject.version:
        raise UsageError(
            f"{subject.version} is not the normal form of a version", remedy=f"write {normal} instead"
        )
    odd = [name for name in subject.licenses if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+_-]*", name)]
    if not subject.licenses or odd:
        raise UsageError(
            f"the package of lane {subject.lane} needs the licenses of what is inside",
            cause=f"no file name: {', '.join(odd)}" if odd else "none was given",
            remedy="name each of them by what it belongs to",
        )


def manifest(subject: Subject, target: Target, files: Mapping[str, Path]) -> bytes:
    """Return what a package says about itself, as readable JSON.

    Args:
        subject: what is packaged.
        target: see `check_subject`.
        files: everything else in the package, by its path there.
    """
    data = {
        "schema": _SCHEMA,
        "name": subject.distribution,
        "version": subject.version,
        "lane": subject.lane,
        "lane_digest": subject.lane_digest,
        "worker": dict(subject.said),
        "source_date_epoch": subject.epoch,
        "needs": _needs(subject, target),
        "files": {name: {"sha256": sha256_file(path)} for name, path in sorted(files.items())},
    }
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode()


def _needs(subject: Subject, target: Target) -> dict[str, Any]:
    return {
        "system": target.system,
        "machine": target.machine,
        "isa": subject.said.get("isa"),
        "platform_tag": platform_tag(target, subject.provided),
        "glibc": target.glibc or None,
        "macos": ".".join(map(str, target.minimum)) or None,
        "loader_paths": list(target.loader_paths),
        "libraries": [
            {"name": name, "from": _bringer(subject, target, name), "newest_symbols": target.newest(name)}
            for name in sorted(target.needed)
        ],
        "python_packages": [
            {"name": wanted.name, "minimum": _minimum(wanted), "requirement": str(wanted)}
            for wanted in map(Requirement, subject.requires)
        ],
    }


def _bringer(subject: Subject, target: Target, library: str) -> str:
    if library in subject.provided:
        return "python packages"
    system = library in BASE_LIBRARIES or (
        target.system == "macos" and library.startswith(("/usr/lib/", "/System/"))
    )
    return "system" if system else "vendor runtime"


def _minimum(wanted: Requirement) -> str | None:
    bounds = [s.version for s in wanted.specifier if s.operator in {"==", ">=", "~=", "==="}]
    return max(bounds, key=Version) if bounds else None


def readme(subject: Subject, target: Target, start: str) -> str:
    """Return the text for whoever unpacks a package: what it is, what it needs, how to start it.

    Args:
        subject: what is packaged.
        target: see `check_subject`.
        start: how to start it from this kind of package.
    """
    said, needs = subject.said, _needs(subject, target)
    floor = f"glibc {needs['glibc']}" if needs["glibc"] else f"macOS {needs['macos']}"
    lines = [
        f"{PROGRAM} {subject.version}, lane {subject.lane}",
        "",
        f"A worker that serves a range of layers; llama.cpp build {said.get('upstream_build')} is inside.",
        "",
        "It needs",
        f"- {target.system} on {target.machine}, {floor} or newer",
    ]
    if said.get("isa"):
        lines.append(f"- a processor with the instructions of {said['isa']}")
    for library in needs["libraries"]:
        least = ", ".join(f"{k} {v}" for k, v in library["newest_symbols"].items() if k != "GLIBC")
        if least or library["from"] != "system":
            lines.append(f"- {library['name']}" + (f" with {least}" if least else ""))
    lines += [f"- the Python package {wanted}, for the libraries in it" for wanted in subject.requires]
    return "\n".join([*lines, "", start.rstrip(), "", "MANIFEST.json says all of this to programs.", ""])
