"""The lane matrix: every way to build the worker, as data that builds, CI, packages and evidence all read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from dgr_build.documents.base import Document, load_toml
from dgr_build.documents.ci import Ci
from dgr_build.errors import UsageError

CMakeValue = bool | str
LaneName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
Option = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
Version = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)*$")]
Filled = Annotated[str, StringConstraints(min_length=1)]

_RESERVED = ("list",)  # a command of its own beside the lanes
_MACHINE_FLAGS = ("-march=native", "-mcpu=native", "-mtune=native")


class Requirement(Document):
    """Something a lane needs of the host, with how to look for it.

    Attributes:
        name: what a person calls it.
        any_program: programs that satisfy it, the preferred one first.
        arguments: what makes such a program tell its version.
        any_file: files that satisfy it; relative ones are taken from the folder of `beside_program`.
        beside_program: the program whose folder relative files start from.
        pattern: finds the version, its first group, in the program's output or the file.
        minimum: the lowest version that will do.
        for_running: needed to run the worker, not to build it.
        remedy: how to get it.
    """

    name: Filled
    any_program: tuple[Filled, ...] = ()
    arguments: tuple[str, ...] = ()
    any_file: tuple[Filled, ...] = ()
    beside_program: str = ""
    pattern: str = ""
    minimum: Version | None = None
    for_running: bool = False
    remedy: Filled

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, value: str) -> str:
        try:
            groups = re.compile(value).groups
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if value and groups != 1:
            raise ValueError("needs exactly one group, the version")
        return value

    @model_validator(mode="after")
    def _one_way_to_look(self) -> Self:
        if bool(self.any_program) == bool(self.any_file):
            raise ValueError("exactly one of any_program and any_file")
        if self.minimum is not None and not self.pattern:
            raise ValueError("minimum: without a pattern no version can be found")
        return self


class InstructionSet(Document):
    """An instruction set, with every option that upstream has for the machine.

    Attributes:
        machine: as `uname -m` says it.
        cpu_flags: what a processor must have to run it, as Linux names them.
        compiler_flags: exactly what the kernels are compiled with.
        cmake: upstream's options, on and off.
    """

    machine: Filled
    cpu_flags: tuple[Filled, ...]
    compiler_flags: tuple[Filled, ...]
    cmake: dict[Option, CMakeValue]

    @field_validator("compiler_flags")
    @classmethod
    def _not_this_machine(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for flag in value:
            if flag in _MACHINE_FLAGS:
                raise ValueError(f"{flag} means another thing on every machine")
        return value


class Environment(Document):
    """Where compilers and packages come from.

    Attributes:
        kind: this machine, a Debian root, or a toolkit of wheels.
        summary: one line for a person.
        path: the folders searched for programs, in this order; the caller's PATH plays no part.
        gcc: the lowest g++ that will do, None when it may not be used.
        clang: the lowest clang++ that will do, None when it may not be used.
        pkg_config: packages whose static archives are linked in.
        libraries: further libraries linked in statically that pkg-config does not know.
        suite: the Debian suite of a root.
        packages: the Debian packages of a root.
        apt_options: what apt needs to be told inside.
        wheels: the exact wheels of a toolkit.
    """

    kind: Literal["host", "sysroot", "wheels"]
    summary: Filled
    path: tuple[Filled, ...] = ()
    gcc: Version | None = None
    clang: Version | None = None
    pkg_config: tuple[Filled, ...] = ()
    libraries: tuple[Filled, ...] = ()
    suite: str = ""
    packages: tuple[Filled, ...] = ()
    apt_options: tuple[Filled, ...] = ()
    wheels: tuple[Filled, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {"host": "path", "sysroot": "suite", "wheels": "wheels"}[self.kind]
        if not getattr(self, needed):
            raise ValueError(f"{needed}: an environment of kind {self.kind} must state it")
        return self


class Lane(Document):
    """One way to build the worker.

    Attributes:
        backend: what it computes with.
        status: `works`, or `planned`: described, not built yet.
        systems: hosts it can be built on, as `uname -s` says it.
        environment: the name of one.
        isa: the name of the instruction set of its CPU code.
        architectures: what device code is made for.
        must_contain: backends that the worker must report, by upstream's names.
        exercised: how the result can be tried.
        exercise: on what, for a person.
        extra_libraries: shared libraries it may need beyond the default ones.
        cmake: values of this lane alone.
        requires: what it needs of the host.
    """

    backend: Literal["cpu", "cuda", "rocm", "vulkan", "metal"]
    status: Literal["works", "planned"]
    systems: Annotated[tuple[Literal["Linux", "Darwin"], ...], Field(min_length=1)]
    environment: str
    isa: str
    architectures: Annotated[tuple[Filled, ...], Field(min_length=1)]
    must_contain: Annotated[tuple[Filled, ...], Field(min_length=1)]
    exercised: Literal["hardware", "software-device", "none"]
    exercise: Filled
    extra_libraries: tuple[Filled, ...] = ()
    cmake: dict[Option, CMakeValue] = Field(default_factory=dict)
    requires: Annotated[tuple[Requirement, ...], Field(min_length=1)]


class Defaults(Document):
    """What holds for every lane.

    Attributes:
        build_type: CMake's.
        generator: CMake's.
        pass_environment: variables of the caller that reach the build.
        set_environment: variables that the build always has.
        needed_libraries: shared libraries that a worker may need.
        inert_options: upstream options that are on by default and decide nothing here.
        cmake: values of every lane.
    """

    build_type: Literal["Release"]
    generator: Literal["Ninja"]
    pass_environment: tuple[Filled, ...]
    set_environment: dict[str, str]
    needed_libraries: tuple[Filled, ...]
    inert_options: frozenset[Option]
    cmake: dict[Option, CMakeValue]


class Matrix(Document):
    """All lanes with what they refer to."""

    schema_version: Literal[1] = Field(alias="schema")
    defaults: Defaults
    isa: dict[str, InstructionSet]
    environment: dict[str, Environment]
    lane: Annotated[dict[LaneName, Lane], Field(min_length=1)]
    ci: Ci | None = None

    @model_validator(mode="after")
    def _references_hold(self) -> Self:
        for name, lane in self.lane.items():
            if name in _RESERVED:
                raise ValueError(f"lane.{name}: `{name}` is a command, not a lane name")
            for kind in ("environment", "isa"):
                wanted, known = getattr(lane, kind), getattr(self, kind)
                if wanted not in known:
                    raise ValueError(f"lane.{name}.{kind}: no {kind} {wanted!r}, there is {', '.join(known)}")
            twice = set(lane.cmake) & set(self.isa[lane.isa].cmake)
            if twice:
                raise ValueError(
                    f"lane.{name}.cmake: isa.{lane.isa} states {', '.join(sorted(twice))} already"
                )
        twice = {o for isa in self.isa.values() for o in isa.cmake} & set(self.defaults.cmake)
        if twice:
            raise ValueError(f"defaults.cmake: {', '.join(sorted(twice))} belongs to the instruction sets")
        return self

    def find(self, name: str) -> Lane:
        """Return a lane.

        Raises:
            UsageError: there is none of this name.
        """
        if name not in self.lane:
            raise UsageError(
                f"no lane is called {name!r}",
                cause=f"there are {', '.join(self.lane)}",
                remedy="dgr-build lane list shows what each of them is",
            )
        return self.lane[name]

    def cmake_values(self, name: str) -> dict[str, CMakeValue]:
        """Return every CMake value of a lane: the defaults, its instruction set's, its own; by name."""
        lane = self.find(name)
        merged = {**self.defaults.cmake, **self.isa[lane.isa].cmake, **lane.cmake}
        merged["CMAKE_BUILD_TYPE"] = self.defaults.build_type
        return dict(sorted(merged.items()))


def load_matrix(path: Path) -> Matrix:
    """Read the matrix.

    Raises:
        UsageError: it cannot be read, or a field is wrong; each wrong field is named.
    """
    return load_toml(path, Matrix)
