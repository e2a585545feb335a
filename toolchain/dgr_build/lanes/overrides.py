"""Overrides: what a person wants otherwise than a lane states it, each with where it was asked for."""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dgr_build.documents.base import load_toml
from dgr_build.documents.matrix import HostOverrides, Matrix
from dgr_build.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from dgr_build.documents.matrix import CMakeValue, Lane

_WORDS = ("isa", "architectures", "environment")
_COMMAND_LINE = "--set"
_SWITCH = {"ON": True, "OFF": False}
_ARCHITECTURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:+_-]*")


@dataclass(frozen=True)
class Override:
    """One value that was asked for.

    Args:
        key: `isa`, `architectures`, `environment`, or a CMake option of the lane.
        value: as a person writes it.
        origin: where it was asked for.
        overridden_by: the origin that outranks this one, "" for a value that counts.
    """

    key: str
    value: str
    origin: str
    overridden_by: str = ""

    @property
    def line(self) -> str:
        """The override for a person."""
        outranked = f", but {self.overridden_by} says otherwise" if self.overridden_by else ""
        return f"{self.key}={self.value} ({self.origin}{outranked})"

    def to_json(self) -> dict[str, str]:
        """Return the override as data."""
        return asdict(self)


def collect(
    matrix: Matrix, lane_name: str, *, host_file: Path, stated: Sequence[str]
) -> tuple[Override, ...]:
    """Return all overrides of a lane by key, the one that counts last.

    The command line outranks the file of this machine, which outranks the table in the matrix.

    Args:
        matrix: the lanes with their table of overrides.
        lane_name: the name of one of them.
        host_file: the file of this machine; it may be absent.
        stated: KEY=VALUE from the command line.

    Raises:
        UsageError: there is no such lane, the file is wrong, or what is stated is not KEY=VALUE or states
            two values for a key.
    """
    matrix.find(lane_name)
    tables = (
        ("lanes/matrix.toml", matrix.override),
        (f"{host_file.parent.name}/{host_file.name}", _host_table(matrix, host_file)),
    )
    found = [
        Override(key, _text(value), f"{origin} [override.{lane_name}]")
        for origin, table in tables
        for key, value in table.get(lane_name, {}).items()
    ]
    found += [Override(key, value, _COMMAND_LINE) for key, value in _parsed(stated).items()]
    last = {override.key: override.origin for override in found}
    ranked = (
        override
        if last[override.key] == override.origin
        else replace(override, overridden_by=last[override.key])
        for override in found
    )
    return tuple(sorted(ranked, key=lambda override: override.key))  # stable: the ranks stay


def effective(overrides: Iterable[Override]) -> dict[str, str]:
    """Return the values that count, by key: what a plan says about itself and its digest is taken of."""
    return {override.key: override.value for override in overrides if not override.overridden_by}


def apply(matrix: Matrix, lane_name: str, overrides: Sequence[Override]) -> Matrix:
    """Return the matrix with one lane as the overrides want it; all other lanes stay as they are.

    Raises:
        UsageError: a key is unknown or may not be changed, or a value does not fit it; overrides that are
            outranked are checked as well.
    """
    lane = matrix.find(lane_name)
    words: dict[str, object] = {}
    options: dict[str, CMakeValue] = {}
    for override in overrides:
        if override.key in _WORDS:
            value = _WORD_CHECKS[override.key](matrix, lane_name, override)
            words |= {} if override.overridden_by else {override.key: value}
        else:
            option = _option_value(matrix, lane_name, override)
            options |= {} if override.overridden_by else {override.key: option}
    if not words and not options:
        return matrix
    changed = lane.model_copy(update={**words, "cmake": {**lane.cmake, **options}})
    return matrix.model_copy(update={"lane": {**matrix.lane, lane_name: changed}})


def settable(matrix: Matrix, lane_name: str) -> dict[str, CMakeValue]:
    """Return the CMake options that may be overridden in a lane, with what they are without."""
    lane = matrix.find(lane_name)
    return {
        name: value
        for name, value in matrix.cmake_values(lane_name).items()
        if not _why_fixed(matrix, lane, name)
    }


def _host_table(matrix: Matrix, host_file: Path) -> Mapping[str, Mapping[str, CMakeValue]]:
    if not host_file.exists():
        return {}
    table = load_toml(host_file, HostOverrides).override
    for lane_name in table:
        if lane_name not in matrix.lane:
            raise UsageError(
                f"{host_file} overrides lane {lane_name!r}, which there is not",
                cause=f"there are {', '.join(matrix.lane)}",
                remedy=f"edit {host_file}; dgr-build lane list shows what each lane is",
            )
    return table


def _parsed(stated: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in stated:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not key or not equals:
            raise UsageError(
                f"{_COMMAND_LINE} {text!r} is not KEY=VALUE",
                remedy=f"for example {_COMMAND_LINE} isa=x86-64-v2 or {_COMMAND_LINE} GGML_LTO=ON",
            )
        if values.setdefault(key, value) != value:
            raise UsageError(
                f"{_COMMAND_LINE} states two values for {key}",
                cause=f"{values[key]!r} and {value!r}",
                remedy="state one of them",
            )
    return values


def _text(value: CMakeValue) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return value.strip()


def _isa(matrix: Matrix, lane_name: str, override: Override) -> str:
    wanted = matrix.isa.get(override.value)
    machine = matrix.isa[matrix.find(lane_name).isa].machine
    if wanted is None or wanted.machine != machine:
        cause = "there is none of this name" if wanted is None else f"it is for {wanted.machine}"
        fitting = (name for name, isa in matrix.isa.items() if isa.machine == machine)
        raise _refused(lane_name, override, cause, f"for {machine} there is {', '.join(fitting)}")
    return override.value


def _environment(matrix: Matrix, lane_name: str, override: Override) -> str:
    if override.value not in matrix.environment:
        remedy = f"there is {', '.join(matrix.environment)}"
        raise _refused(lane_name, override, "there is none of this name", remedy)
    return override.value


def _architectures(matrix: Matrix, lane_name: str, override: Override) -> tuple[str, ...]:
    device = matrix.find(lane_name).device
    if device is None or device.architectures_option is None:
        cause = "the lane's device code is made for no architecture in particular"
        raise _refused(lane_name, override, cause, "isa states what its CPU code is made for")
    names = tuple(name.strip() for name in override.value.split(","))
    if not all(_ARCHITECTURE.fullmatch(name) for name in names) or len(set(names)) != len(names):
        cause = "not names with commas between them, each once"
        raise _refused(lane_name, override, cause, f"dgr-build doctor {lane_name} says what the toolkit has")
    return names


_WORD_CHECKS = {"isa": _isa, "architectures": _architectures, "environment": _environment}


def _option_value(matrix: Matrix, lane_name: str, override: Override) -> CMakeValue:
    """Return the value of a CMake option in the type that the lane states it in."""
    lane = matrix.find(lane_name)
    key, value = override.key, override.value
    why_fixed = _why_fixed(matrix, lane, key)
    if why_fixed:
        raise _refused(lane_name, override, why_fixed, f"take {key} out of {override.origin}")
    stated = settable(matrix, lane_name)
    if key not in stated:
        raise _unknown(lane_name, override, (*_WORDS, *stated))
    if isinstance(stated[key], bool):
        if value.upper() not in _SWITCH:
            raise _refused(lane_name, override, f"{key} is a switch", f"{key}=ON or {key}=OFF")
        return _SWITCH[value.upper()]
    if "${" in value or not value.isprintable():
        cause = "a value is plain text on one line, without ${"
        raise _refused(lane_name, override, cause, "write the value out")
    return value


def _why_fixed(matrix: Matrix, lane: Lane, key: str) -> str:
    """Return why an option may not be overridden, "" where it may."""
    if lane.device is not None and key == lane.device.architectures_option:
        return "architectures=A,B states it, so that it is recorded and looked for in the result"
    if any(key in isa.cmake for isa in matrix.isa.values()):
        return "it belongs to an instruction set: isa=NAME states them all"
    fixed = matrix.defaults.fixed_options
    return next((why for pattern, why in fixed.items() if fnmatchcase(key, pattern)), "")


def _refused(lane_name: str, override: Override, cause: str, remedy: str) -> UsageError:
    return UsageError(f"lane {lane_name} does not take {override.line}", cause=cause, remedy=remedy)


def _unknown(lane_name: str, override: Override, known: Sequence[str]) -> UsageError:
    folded = {name.casefold(): name for name in known}
    near = [folded[name] for name in difflib.get_close_matches(override.key.casefold(), folded)]
    cause = f"near it: {', '.join(near)}" if near else "an override changes what the lane states already"
    remedy = f"dgr-build lane {lane_name} --dry-run lists what the lane states"
    return _refused(lane_name, override, f"there is no {override.key}; {cause}", remedy)
