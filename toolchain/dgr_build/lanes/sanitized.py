"""Builds with sanitizers: the presets of native/CMakePresets.json, compiled by clang, beside the lanes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import HostError
from dgr_build.lanes import ninja
from dgr_build.lanes.build import configure
from dgr_build.lanes.cache_session import serving
from dgr_build.lanes.compiler_cache import choose
from dgr_build.lanes.jobs import available_memory, cores, job_count
from dgr_build.lanes.toolchain import find_program, own_program, version_numbers
from dgr_build.lanes.variables import build_variables
from dgr_build.process import run
from dgr_build.workspace import require_space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dgr_build.documents.matrix import Environment
    from dgr_build.workspace import Workspace

PRESETS = {"address": "asan", "thread": "tsan"}
_ENVIRONMENT = "host-clang"
_LANE = "cpu"  # whose upstream libraries are linked in
_NEWEST = 30  # clang, by the number behind its name
_NEED_BYTES = 600_000_000
_PACKAGES = "apt-get install clang-14 libclang-rt-14-dev"


@dataclass(frozen=True, kw_only=True)
class Clang:
    """A clang of this machine with its runtime libraries.

    Args:
        c: its C compiler.
        cxx: its C++ compiler.
        version: the line in which it says what it is.
    """

    c: Path
    cxx: Path
    version: str


def find_clang(environment: Environment) -> Clang:
    """Find clang with the libraries of its sanitizers; some systems install it under a versioned name only.

    Raises:
        HostError: there is none, only an older one, or its runtime libraries are missing.
    """
    tried = []
    for suffix in ("", *(f"-{number}" for number in range(_NEWEST, 0, -1))):
        cxx = find_program(f"clang++{suffix}", environment.path)
        c = find_program(f"clang{suffix}", environment.path)
        if cxx is None or c is None:
            continue
        version = run([cxx, "--version"], timeout=60).stdout.partition("\n")[0]
        number = re.search(r"\d+(?:\.\d+)*", version)
        if number is None or version_numbers(number.group()) < version_numbers(environment.clang or "0"):
            tried.append(f"{cxx} is {version or 'of no known version'}")
            continue
        resources = Path(run([cxx, "-print-resource-dir"], timeout=60).stdout.strip())
        if any(resources.glob("lib/**/libclang_rt.fuzzer*.a")):
            return Clang(c=c, cxx=cxx, version=version)
        tried.append(f"{cxx} has no libclang_rt.fuzzer in {resources}")
    raise HostError(
        f"no clang {environment.clang} or newer with its runtime libraries",
        cause="; ".join(tried) or f"searched {', '.join(environment.path)}",
        remedy=_PACKAGES,
    )


def build_sanitized(
    ws: Workspace, sanitizer: str, targets: Sequence[str], *, engine: bool = False, jobs: int | None = None
) -> Path:
    """Build targets of a preset and return the build folder; what is there already is not built again.

    Args:
        ws: the workspace.
        sanitizer: one of `PRESETS`.
        targets: of the CMake project; none builds everything.
        engine: with the real engine, on upstream's libraries as the lane `cpu` has built them: those are not
            instrumented.
        jobs: compilers at once, None to let cores and memory decide.

    Raises:
        BuildError: configuring or compiling failed.
        HostError: clang, or the lane that is linked in, is missing, or there is not enough space.
    """
    matrix = load_matrix(ws.matrix_file)
    environment = matrix.environment[_ENVIRONMENT]
    clang = find_clang(environment)
    build = ws.build(PRESETS[sanitizer])
    require_space(build, _NEED_BYTES, "the build")
    jobs = jobs or job_count(cores(), available_memory())
    cache = choose(ws, environment.path, setting=None, uncached=False)
    with ws.lock(f"build-{build.name}"), serving(ws, cache) as session:
        stated = {**matrix.defaults.set_environment, "PATH": ":".join(environment.path)}
        variables = build_variables(stated, matrix.defaults, session.variables)
        arguments: list[str | Path] = ["--preset", build.name, "-S", ws.native, "-B", build]
        arguments += [f"-DCMAKE_MAKE_PROGRAM:FILEPATH={own_program('ninja')}"]
        arguments += [f"-DCMAKE_C_COMPILER:FILEPATH={clang.c}", f"-DCMAKE_CXX_COMPILER:FILEPATH={clang.cxx}"]
        arguments += [f"-DCMAKE_CXX_COMPILER_LAUNCHER:STRING={cache.launcher or ''}"]
        arguments += [f"-DDGR_STATIC_PACKAGES:STRING={';'.join(environment.pkg_config)}"]
        arguments += [f"-DDGR_STATIC_LIBRARIES:STRING={';'.join(environment.libraries)}"]
        arguments += _upstream(ws) if engine else ["-DDGR_ENGINE:BOOL=OFF"]
        logs = ws.logs("sanitized")
        configure([own_program("cmake"), *arguments], variables, logs / f"{build.name}-cmake.log")
        ninja.build(
            [own_program("ninja"), "-C", build, "-j", str(jobs), *targets],
            f"compiling with the sanitizer for {sanitizer} ({jobs} at once)",
            logs / f"{build.name}-build.log",
            variables=variables,
            jobs=jobs,
        )
    return build


def sanitizer_variables(ws: Workspace) -> Mapping[str, str]:
    """Return what a program with sanitizers needs in its environment: everything found ends it."""
    address = ("detect_leaks=1", "detect_stack_use_after_return=1", "strict_string_checks=1")
    return {
        "ASAN_OPTIONS": ":".join((*address, "malloc_context_size=8")),
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": f"halt_on_error=1:second_deadlock_stack=1:suppressions={ws.native / 'tsan.supp'}",
    }


def _upstream(ws: Workspace) -> list[str]:
    built = ws.build(_LANE) / "llama"
    if not (built / "src" / "libllama.a").is_file():
        raise HostError(
            "the engine's target needs upstream's libraries",
            cause=f"{built} holds none",
            remedy=f"dgr-build lane {_LANE} --only build",
        )
    return [
        "-DDGR_ENGINE:BOOL=ON",
        f"-DDGR_LLAMA_SOURCE:PATH={ws.source}",
        f"-DDGR_LLAMA_BUILD:PATH={built}",
    ]
