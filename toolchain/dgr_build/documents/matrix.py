"""The lane matrix: every way to build the worker, as data that builds, CI, packages and evidence all read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, StringConstraints, field_validator, model_validator

from dgr_build.documents.base import Document, load_toml
from dgr_build.documents.ci import Ci
from dgr_build.errors import UsageError

CMakeValue = bool | str
OverrideValue = StrictBool | str  # an unquoted 1 is neither
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
        loader: the dynamic loader, which a program may name among its libraries; "" where none is.
        cpu_flags: what a processor must have to run it, as Linux names them.
        compiler_flags: exactly what the kernels are compiled with.
        cmake: upstream's options, on and off.
    """

    machine: Filled
    loader: str = ""
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
        kind: this machine, a Debian root, or a toolkit of wheels beside this machine's compilers.
        summary: one line for a person.
        path: the folders searched for programs, in this order; the caller's PATH plays no part.
        gcc: the lowest g++ that will do, None when it may not be used.
        clang: the lowest clang++ that will do, None when it may not be used.
        pkg_config: packages whose static archives are linked in.
        libraries: further libraries linked in statically that pkg-config does not know.
        suite: the Debian suite of a root.
        packages: the Debian packages of a root, without what they pull in.
        apt_options: what apt needs to be told to fetch them.
        wheels: the exact wheels of a toolkit.
    """

    kind: Literal["host", "sysroot", "wheels"]
    summary: Filled
    path: Annotated[tuple[Filled, ...], Field(min_length=1)]
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


class DeviceCompiler(Document):
    """The compiler of a lane's device code.

    Attributes:
        language: CMake's name of the language; none where upstream's build starts the compiler by itself.
        program: its name in the environment, or its full path there.
        architectures_option: the CMake variable that takes the architectures.
    """

    language: Literal["CUDA", "HIP", "none"]
    program: Filled
    architectures_option: Option | None = None


class Closeness(Document):
    """How near a lane's logits must come to those of another lane.

    Attributes:
        against: the lane whose reference gives the other logits.
        nmse: the highest normalised mean square error of all logits, by model family.
        reason: where the figures come from.
    """

    against: LaneName
    nmse: Annotated[dict[str, Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)]
    reason: Filled


class Lane(Document):
    """One way to build the worker.

    Attributes:
        backend: what it computes with.
        systems: hosts it can be built on, as `uname -s` says it.
        environment: the name of one.
        isa: the name of the instruction set of its CPU code.
        architectures: what device code is made for, unless a profile says otherwise.
        profiles: other choices of architectures, by name.
        device: the compiler of its device code, None where there is none.
        must_contain: backends that the worker must report, by upstream's names.
        exercised: how far the project itself has gone with it; evidence/ says the details.
        exercise: how it can be tried, for a person.
        run_device: the device that a run uses, by upstream's name.
        run_variables: what a run sets in the environment.
        closeness: how its logits are judged, None where they must be the same bits as its own reference's.
        extra_libraries: shared libraries it may need beyond the default ones.
        run_path: where the worker tells the loader to look for them.
        wheel_requires: what a wheel of the worker depends on for them.
        wheel_provides: those of them that it brings.
        cmake: values of this lane alone.
        requires: what it needs of the host.
    """

    backend: Literal["cpu", "cuda", "rocm", "vulkan", "metal"]
    systems: Annotated[tuple[Literal["Linux", "Darwin"], ...], Field(min_length=1)]
    environment: str
    isa: str
    architectures: tuple[Filled, ...] = ()
    profiles: dict[LaneName, Annotated[tuple[Filled, ...], Field(min_length=1)]] = Field(default_factory=dict)
    device: DeviceCompiler | None = None
    must_contain: Annotated[tuple[Filled, ...], Field(min_length=1)]
    exercised: Literal["hardware", "software device", "compiled", "nothing"]
    exercise: Filled
    run_device: Filled = "CPU"
    run_variables: dict[str, str] = Field(default_factory=dict)
    closeness: Closeness | None = None
    extra_libraries: tuple[Filled, ...] = ()
    run_path: tuple[Filled, ...] = ("$ORIGIN",)
    wheel_requires: tuple[Filled, ...] = ()
    wheel_provides: tuple[Filled, ...] = ()
    cmake: dict[Option, CMakeValue] = Field(default_factory=dict)
    requires: tuple[Requirement, ...] = ()


class Defaults(Document):
    """What holds for every lane.

    Attributes:
        build_type: CMake's.
        generator: CMake's.
        pass_environment: variables of the caller that reach the build.
        set_environment: variables that the build always has.
        needed_libraries: shared libraries that a worker may need, besides the loader of its instruction set.
        inert_options: upstream options that are on by default and decide nothing here.
        fixed_options: what no override may change, by name or shell pattern, each with the reason.
        cmake: values of every lane.
    """

    build_type: Literal["Release"]
    generator: Literal["Ninja"]
    pass_environment: tuple[Filled, ...]
    set_environment: dict[str, str]
    needed_libraries: tuple[Filled, ...]
    inert_options: frozenset[Option]
    fixed_options: dict[Filled, Filled] = Field(default_factory=dict)
    cmake: dict[Option, CMakeValue]


class HostOverrides(Document):
    """A file of overrides that stays on one machine.

    Attributes:
        override: what is to differ, by lane.
    """

    override: dict[LaneName, dict[str, OverrideValue]] = Field(default_factory=dict)


class Matrix(Document):
    """All lanes with what they refer to.

    Attributes:
        override: what is to differ from a lane's own table, by lane; see lanes/overrides.py.
    """

    schema_version: Literal[1] = Field(alias="schema")
    defaults: Defaults
    isa: dict[str, InstructionSet]
    environment: dict[str, Environment]
    lane: Annotated[dict[LaneName, Lane], Field(min_length=1)]
    override: dict[LaneName, dict[str, OverrideValue]] = Field(default_factory=dict)
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
            if lane.closeness is not None and lane.closeness.against not in self.lane:
                raise ValueError(f"lane.{name}.closeness: no lane {lane.closeness.against!r}")
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

    def with_profile(self, name: str, profile: str | None) -> Matrix:
        """Return the matrix with a lane's architectures as one of its profiles has them.

        Raises:
            UsageError: the lane has no such profile.
        """
        if profile is None:
            return self
        lane = self.find(name)
        if profile not in lane.profiles:
            raise UsageError(
                f"lane {name} has no profile {profile!r}",
                cause=f"it has {', '.join(lane.profiles) or 'none'}",
                remedy=f"dgr-build lane {name} --set architectures=A,B chooses them one by one",
            )
        changed = lane.model_copy(update={"architectures": lane.profiles[profile]})
        return self.model_copy(update={"lane": {**self.lane, name: changed}})

    def cmake_values(self, name: str) -> dict[str, CMakeValue]:
        """Return every CMake value of a lane: the defaults, its instruction set's, its own; by name."""
        lane = self.find(name)
        merged = {**self.defaults.cmake, **self.isa[lane.isa].cmake, **lane.cmake}
        merged["CMAKE_BUILD_TYPE"] = self.defaults.build_type
        if lane.device is not None and lane.device.architectures_option is not None:
            merged[lane.device.architectures_option] = ";".join(lane.architectures)
        return dict(sorted(merged.items()))


def load_matrix(path: Path) -> Matrix:
    """Read the matrix.

    Raises:
        UsageError: it cannot be read, or a field is wrong; each wrong field is named.
    """
    return load_toml(path, Matrix)
