"""A few object files of a lane that is too big to be built twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import CheckError
from dgr_build.lanes import ninja
from dgr_build.lanes.build import configure
from dgr_build.lanes.cache_session import Session
from dgr_build.lanes.compiler_cache import choose
from dgr_build.lanes.jobs import cores
from dgr_build.lanes.variables import build_variables
from dgr_build.workspace import remove

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dgr_build.lanes.build import Job, Options

_DEVICE = ("ggml-cuda", "ggml-hip")
_INSTANCES, _ATTENTION = "template-instances", "fattn-vec"


def build_objects(job: Job, options: Options, count: int) -> dict[str, Path]:
    """Configure a lane in an emptied folder and compile a few of its objects, without a compiler cache.

    Args:
        job: the lane.
        options: how to build; no cache is used whatever they say.
        count: how many objects.

    Returns:
        the objects, by what they are compiled from.

    Raises:
        BuildError: configuring or compiling failed.
        CheckError: the lane has no objects.
    """
    build, plan = job.places.build, job.plan
    remove(build)
    build.mkdir(parents=True)
    cache = choose(job.ws, job.toolchain.path, setting=None, uncached=True, made=job.toolchain.made)
    session = Session(cache, cache.variables)
    variables = build_variables(plan.variables, job.matrix.defaults, cache.variables)
    variables |= options.surroundings
    logs = job.ws.logs("lane")
    arguments = plan.arguments(job.places, job.toolchain, launcher=cache.launcher)
    command = job.inside([job.toolchain.cmake.path, *arguments], cache, session)
    configure(command, variables, logs / f"{build.name}-objects-cmake.log")
    commands = json.loads((build / "compile_commands.json").read_bytes())
    named = {str(job.places.source): "source", str(job.places.project): "project", str(build): "build"}
    chosen = choose_objects(commands, named, count)
    jobs = options.jobs or cores()
    ninja.build(
        job.inside(
            [job.toolchain.ninja.path, "-C", build, "-j", str(jobs), *chosen.values()], cache, session
        ),
        f"compiling {len(chosen)} objects of lane {plan.lane} ({jobs} at once)",
        logs / f"{build.name}-objects.log",
        variables=variables,
        jobs=jobs,
    )
    return {name: build / output for name, output in chosen.items()}


def choose_objects(commands: list[dict[str, str]], named: Mapping[str, str], count: int) -> dict[str, str]:
    """Return objects of a build, spread over what it compiles; the same ones wherever the sources lie.

    Of a lane with device code they hold that, one of them an instance of a template of flash attention.

    Args:
        commands: CMake's compile_commands.json.
        named: folders of this machine, and what stands for them.
        count: how many; fewer where there are not as many.

    Returns:
        their paths as ninja knows them, by what they are compiled from.

    Raises:
        CheckError: the build compiles nothing.
    """
    outputs: dict[str, str] = {}
    for entry in commands:
        if "output" in entry:  # CMake wrote it in full, ninja knows it from its own folder on
            inside = os.path.relpath(Path(entry["directory"], entry["output"]), entry["directory"])
            outputs.setdefault(_named(entry["file"], named), inside)
    device = {name for name in outputs if any(f"/{folder}.dir/" in outputs[name] for folder in _DEVICE)}
    names = sorted(device or outputs)
    if not names:
        raise CheckError(
            "the build compiles nothing", remedy="look at what CMake said in the log of the lane"
        )
    instances = [name for name in names if Path(name).parent.name == _INSTANCES]
    attention = [name for name in instances if _ATTENTION in name][:1] or instances[:1]
    plain = [name for name in names if name not in instances] or names
    wanted = min(max(count - len(attention), 0), len(plain))
    spread = [plain[len(plain) * place // wanted] for place in range(wanted)]
    return {name: outputs[name] for name in (*attention, *spread) or names[:1]}


def _named(file: str, named: Mapping[str, str]) -> str:
    for folder, name in named.items():
        if Path(file).is_relative_to(folder):
            return str(Path(name) / Path(file).relative_to(folder))
    return Path(file).name
