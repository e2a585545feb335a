"""A lane rendered into everything that decides what is built, and the digest of that."""

from __future__ import annotations

import datetime as dt
import os
import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from dgr_build.documents.base import digest
from dgr_build.lanes.device_code import device_arguments, prefix_maps
from dgr_build.lanes.native_tree import tree_id
from dgr_build.lanes.variables import stated_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dgr_build.documents.matrix import CMakeValue, Environment, Lane, Matrix
    from dgr_build.documents.pin import Pin
    from dgr_build.lanes.toolchain import Toolchain

BuildProgram = Literal["worker", "reference"]
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What is built, by id.

    Args:
        commit: upstream's, in full.
        base_tree: the tree of that commit.
        patched_tree: the tree after the whole patch stack.
        upstream_build: upstream's build number.
        version: upstream's version.
        epoch: when the commit was made, in seconds since 1970.
    """

    commit: str
    base_tree: str
    patched_tree: str
    upstream_build: int
    version: str
    epoch: int

    @staticmethod
    def of(pin: Pin, patched_tree: str) -> SourceFacts:
        """Return the facts of a pin with a patch stack on it; its day begins at midnight UTC."""
        midnight = dt.datetime.combine(pin.committed, dt.time(), dt.UTC)
        return SourceFacts(
            commit=pin.commit,
            base_tree=pin.tree,
            patched_tree=patched_tree,
            upstream_build=pin.build,
            version=pin.version,
            epoch=int(midnight.timestamp()),
        )


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the inputs and the result of one build lie on this machine.

    Args:
        project: the CMake project.
        source: the llama.cpp tree it builds.
        build: the build folder.
    """

    project: Path
    source: Path
    build: Path


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides what a build comes to, free of any path of this machine.

    Folders appear as `${project}`, `${source}`, `${build}`, `${toolkit}`, and the first two also as they are
    reached from the third (`${project-from-build}`), programs as `${c}`, `${cxx}`,
    `${device}`, `${ninja}`: two clones on equal machines have equal plans.

    Args:
        architectures: what device code is made for.
        languages: those that it is compiled from, as CMake names them.
        overrides: what was set otherwise than the matrix has it.
        values: the CMake values that the cache must show after configuring.
        configure: the arguments of cmake, the lane digest excepted.
        variables: the stated environment variables.
        passed: the names of those that the caller may hand on.
        tools: what every program states, by role.
        environment: the environment's kind, the digest of its description, and the C library.
        native_tree: the id of the C++ sources; the worker's include Conan's recipes and lock.
        packages: recipes_tree and lock_sha256 of the C++ packages.
        archives: sha256 of the archives linked in, by file name.
    """

    lane: str
    program: BuildProgram
    backend: str
    isa: str
    architectures: tuple[str, ...]
    languages: tuple[str, ...]
    source: SourceFacts
    native_tree: str
    generator: str
    overrides: dict[str, str]
    values: dict[str, str]
    configure: tuple[str, ...]
    variables: dict[str, str]
    passed: tuple[str, ...]
    tools: dict[str, str]
    environment: dict[str, str]
    packages: dict[str, str]
    archives: dict[str, str]

    def to_json(self) -> dict[str, object]:
        """Return the plan as data."""
        return {"schema": _SCHEMA, **asdict(self), "configure": list(self.configure)}

    @property
    def digest(self) -> str:
        """The lane digest: sha256 of the canonical JSON of the plan."""
        return digest(self.to_json())

    @property
    def family(self) -> str:
        """The digest of what a build folder must have been made with to be built on."""
        return digest({"tools": self.tools, "generator": self.generator, "environment": self.environment})

    def arguments(self, places: Places, toolchain: Toolchain, *, launcher: Path | None) -> tuple[str, ...]:
        """Return the arguments of cmake on this machine.

        Args:
            places: what the folders of the plan stand for.
            toolchain: what its programs stand for.
            launcher: the compiler cache, None to compile without.
        """
        names = {
            "${project}": str(places.project),
            "${source}": str(places.source),
            "${project-from-build}": os.path.relpath(places.project, places.build),
            "${source-from-build}": os.path.relpath(places.source, places.build),
            "${build}": str(places.build),
            "${c}": str(toolchain.c.path),
            "${cxx}": str(toolchain.cxx.path),
            "${ninja}": str(toolchain.ninja.path),
            "${device}": str(toolchain.device.path) if toolchain.device is not None else "",
            "${toolkit}": str(toolchain.made.root or ""),
        }
        made = [_replaced(argument, names) for argument in self.configure]
        made += [
            f"-DCMAKE_{language}_COMPILER_LAUNCHER:STRING={launcher or ''}" for language in self.languages
        ]
        if self.program == "worker":
            made.append(f"-DDGR_LANE_DIGEST:STRING={self.digest}")
        return tuple(made)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a lane is rendered with.

    Args:
        source: what is built.
        toolchain: what builds it.
        native: the folder of the C++ sources.
        archives: what is linked in, each file name with its sha256.
        overrides: what the matrix has otherwise; the matrix given has them already.
    """

    source: SourceFacts
    toolchain: Toolchain
    native: Path
    archives: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


def render(matrix: Matrix, lane_name: str, inputs: Inputs, program: BuildProgram = "worker") -> Plan:
    """Render a lane into a plan.

    Args:
        matrix: the lanes.
        lane_name: the name of one of them.
        inputs: everything else that has a say.
        program: the worker, or the reference that knows nothing of it.

    Raises:
        UsageError: there is no such lane.
    """
    lane = matrix.find(lane_name)
    source, toolchain, native = inputs.source, inputs.toolchain, inputs.native
    made = toolchain.made
    device = device_arguments(lane.device.language if lane.device is not None else "none")
    values = stated_values(matrix, lane_name)
    values |= {"LLAMA_BUILD_NUMBER": str(source.upstream_build), "LLAMA_BUILD_COMMIT": source.commit}
    kinds = {name: _kind(value) for name, value in matrix.cmake_values(lane_name).items()}
    environment = matrix.environment[lane.environment]
    own = _own_values(lane_name, lane, environment, source) if program == "worker" else {}
    definitions = [f"-D{name}:{kinds.get(name, 'STRING')}={value}" for name, value in (values | own).items()]
    return Plan(
        lane=lane_name,
        program=program,
        backend=lane.backend,
        isa=lane.isa,
        architectures=lane.architectures,
        languages=("C", "CXX", *device.languages),
        source=source,
        native_tree=tree_id(native if program == "worker" else native / "reference"),
        generator=matrix.defaults.generator,
        overrides=dict(inputs.overrides),
        values=values | own,
        configure=(*_frame(matrix.defaults.generator), *device.arguments, *definitions),
        variables=stated_variables(matrix.defaults, toolchain.path, source.epoch),
        passed=matrix.defaults.pass_environment,
        tools=toolchain.versions(),
        environment={
            "name": lane.environment,
            "kind": made.kind,
            "digest": made.digest or digest(environment.model_dump(mode="json")),
            "libc": toolchain.libc,
        },
        packages=_packages(native) if program == "worker" else {},
        archives=dict(sorted(inputs.archives.items())) if program == "worker" else {},
    )


def stated_values(matrix: Matrix, lane_name: str) -> dict[str, str]:
    """Return every CMake value that a lane states, as CMake writes it.

    Raises:
        UsageError: there is no such lane.
    """
    return {name: _text(value) for name, value in matrix.cmake_values(lane_name).items()}


def _frame(generator: str) -> tuple[str, ...]:
    """Return what every configure run states: folders, programs, and flags that keep paths out."""
    maps = prefix_maps()
    return (
        "-S", "${project}", "-B", "${build}", "-G", generator,
        "-DCMAKE_MAKE_PROGRAM:FILEPATH=${ninja}",
        "-DCMAKE_C_COMPILER:FILEPATH=${c}",
        "-DCMAKE_CXX_COMPILER:FILEPATH=${cxx}",
        f"-DCMAKE_C_FLAGS:STRING={maps}",
        f"-DCMAKE_CXX_FLAGS:STRING={maps}",
        "-DCMAKE_RUNTIME_OUTPUT_DIRECTORY:PATH=${build}/bin",
        "-DDGR_LLAMA_SOURCE:PATH=${source}",
    )  # fmt: skip


def _own_values(lane_name: str, lane: Lane, environment: Environment, source: SourceFacts) -> dict[str, str]:
    return {
        "DGR_LANE": lane_name,
        "DGR_ISA": lane.isa,
        "DGR_RUN_PATH": ";".join(lane.run_path),
        "DGR_STATIC_PACKAGES": ";".join(environment.pkg_config),
        "DGR_STATIC_LIBRARIES": ";".join(environment.libraries),
        "DGR_PIN_COMMIT": source.commit,
        "DGR_BASE_TREE": source.base_tree,
        "DGR_PATCHED_TREE": source.patched_tree,
        "DGR_UPSTREAM_BUILD": str(source.upstream_build),
        "DGR_UPSTREAM_VERSION": source.version,
    }


def _packages(native: Path) -> dict[str, str]:
    recipes, lock = native / "conan", native / "conan.lock"
    return {
        "recipes_tree": tree_id(recipes) if recipes.is_dir() else "",
        "lock_digest": digest(lock.read_text()) if lock.is_file() else "",
    }


def _text(value: CMakeValue) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return value


def _kind(value: CMakeValue) -> str:
    return "BOOL" if isinstance(value, bool) else "STRING"


def _replaced(argument: str, names: Mapping[str, str]) -> str:
    for name, path in names.items():
        argument = argument.replace(name, path)
    return argument


def as_typed(arguments: Sequence[str]) -> str:
    """Return a command as it could be typed."""
    return shlex.join(arguments)
