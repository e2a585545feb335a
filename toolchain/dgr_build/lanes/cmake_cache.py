"""What configuring really came to: the CMake cache and the compile commands, held against the plan."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from dgr_build.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

_ENTRY = re.compile(r"^([^#/][^:=]*):([A-Z]+)=(.*)$")
_TRUE = {"ON", "YES", "TRUE", "Y", "1"}
_FALSE = {"OFF", "NO", "FALSE", "N", "0", ""}
_UPSTREAM = ("GGML_", "LLAMA_")
_MACHINE_FLAG = re.compile(r"^-m(?!emory|saved)[a-z0-9]")  # -mavx2, -march=..., -mcpu=...
_WHATEVER = ("-m64",)
_PROCESSOR_CODE = (".c", ".cc", ".cpp", ".m", ".mm", ".S")  # device code has an architecture of its own


def read_cache(build: Path) -> dict[str, tuple[str, str]]:
    """Return the entries of a build folder's CMake cache: name to type and value.

    Raises:
        BuildError: there is none.
    """
    file = build / "CMakeCache.txt"
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise BuildError(
            f"{build} is not configured", cause=str(error), remedy="dgr-build lane cpu configures it"
        ) from error
    entries = (match.groups() for match in map(_ENTRY.match, lines) if match)
    return {name: (kind, value) for name, kind, value in entries}


def assert_cache(
    cache: Mapping[str, tuple[str, str]], asked: Mapping[str, str], inert: Collection[str]
) -> None:
    """Check that the cache holds what was asked for, and that nothing else of upstream's is on.

    Args:
        cache: see `read_cache`.
        asked: the values of the plan.
        inert: options that may be on without having been asked for.

    Raises:
        BuildError: a value differs, or an option is on that nobody asked for; each is named.
    """
    wrong = []
    for name, value in asked.items():
        held = cache[name][1] if name in cache else None
        if held is None or not _same(held, value):
            wrong.append(
                f"{name} is {held if held is not None else 'not there'}, asked for {value or 'nothing'}"
            )
    for name, (kind, value) in sorted(cache.items()):
        on = kind == "BOOL" and value.upper() in _TRUE and name.startswith(_UPSTREAM)
        if on and name not in asked and name not in inert:
            wrong.append(f"{name} is on and nobody asked for it")
    if wrong:
        raise BuildError(
            "CMake did not take the lane's values",
            cause="; ".join(wrong),
            remedy="state the option in lanes/matrix.toml; if it is there, upstream's CMake overrides it",
        )


def assert_compile_flags(build: Path, expected: Collection[str]) -> None:
    """Check the machine flags of every compile command: none but the expected ones, all of them somewhere.

    Args:
        build: the configured folder, with compile_commands.json.
        expected: the flags of the lane's instruction set.

    Raises:
        BuildError: a file is compiled for another machine than the lane states.
    """
    commands = json.loads((build / "compile_commands.json").read_bytes())
    seen: set[str] = set()
    for entry in commands:
        if not entry["file"].endswith(_PROCESSOR_CODE):
            continue
        flags = _machine_flags(shlex.split(entry["command"]))
        foreign = flags - set(expected)
        if foreign:
            raise BuildError(
                f"{entry['file']} would be compiled for another machine than the lane states",
                cause=f"{' '.join(sorted(foreign))} among its flags, the lane has {' '.join(expected)}",
                remedy="find what adds the flag; the instruction set is stated in lanes/matrix.toml",
            )
        seen |= flags
    missing = set(expected) - seen
    if missing:
        raise BuildError(
            "no file is compiled with the lane's instruction set",
            cause=f"{' '.join(sorted(missing))} in no compile command of {build}",
            remedy="check the instruction set in lanes/matrix.toml against upstream's CMake",
        )


def linked_archives(build: Path, target: str) -> tuple[str, ...]:
    """Return the archives that a program is linked with by their full paths, as build.ninja names them."""
    lines = (build / "build.ninja").read_text().splitlines()
    words: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("build "):
            inside = re.match(rf"^build (\S*/)?{re.escape(target)}(\s|:)", line) is not None
        elif inside and line.startswith("  LINK_LIBRARIES = "):
            words += shlex.split(line.partition("=")[2].replace("$ ", "\\ "))
    return tuple(dict.fromkeys(word for word in words if word.endswith(".a") and word.startswith("/")))


def assert_archives(build: Path, target: str, known: Collection[str]) -> None:
    """Check that every archive linked in from outside is one whose hash is in the plan.

    Raises:
        BuildError: one is not; the digest would then not say what is inside.
    """
    inside = str(build)
    outside = [name for name in linked_archives(build, target) if not name.startswith(inside)]
    unknown = [name for name in outside if name.rpartition("/")[2] not in known]
    if unknown:
        raise BuildError(
            f"{target} links archives that the plan does not know",
            cause=", ".join(unknown),
            remedy="name their package under pkg_config of the lane's environment in lanes/matrix.toml",
        )


def _same(held: str, asked: str) -> bool:
    if asked in {"ON", "OFF"}:
        return held.upper() in (_TRUE if asked == "ON" else _FALSE)
    return held == asked


def _machine_flags(words: Sequence[str]) -> set[str]:
    return {word for word in words if _MACHINE_FLAG.match(word) and word not in _WHATEVER}
