"""Building a plan: configure, hold the cache against the plan, compile; continuing where a run stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.errors import BuildError
from dgr_build.lanes import ninja
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.cmake_cache import assert_archives, assert_cache, assert_compile_flags, read_cache
from dgr_build.lanes.isolation import without_network
from dgr_build.lanes.jobs import available_memory, cores, job_count
from dgr_build.lanes.stamp import Stamp, read_stamp, write_stamp
from dgr_build.lanes.variables import build_variables
from dgr_build.process import run_lines
from dgr_build.workspace import remove, require_space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix
    from dgr_build.lanes.plan import Places, Plan
    from dgr_build.lanes.toolchain import Toolchain
    from dgr_build.workspace import Workspace

PROGRAMS = {"worker": "dgr-shard-worker", "reference": "dgr-reference"}
_NEED_BYTES = 1_500_000_000
_SHOWN_LINES = 30


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to build; nothing here changes what comes out.

    Args:
        jobs: compilers at once, None to let cores and memory decide.
        use_ccache: whether the compiler cache may answer.
    """

    jobs: int | None = None
    use_ccache: bool = True


@dataclass(frozen=True, kw_only=True)
class Built:
    """A program that was built.

    Args:
        program: the executable.
        digest: the lane digest of its plan.
        steps: what ninja had to do; 0 when everything was there.
        uncached: no compiler cache took part.
        network_cut: everything in its folder was compiled without a network.
        build: its folder.
    """

    program: Path
    digest: str
    steps: int
    uncached: bool
    network_cut: bool
    build: Path


@dataclass(frozen=True, kw_only=True)
class Job:
    """One plan on this machine.

    Args:
        ws: the workspace, for logs and the compiler cache.
        matrix: where the plan comes from.
        plan: what to build.
        places: where.
        toolchain: with what.
    """

    ws: Workspace
    matrix: Matrix
    plan: Plan
    places: Places
    toolchain: Toolchain

    @property
    def program(self) -> Path:
        """Where the program will lie."""
        return self.places.build / "bin" / PROGRAMS[self.plan.program]


def build_plan(job: Job, options: Options) -> Built:
    """Build the program of a plan in its folder; a program that is there already is not built again.

    The caller holds the lock of the folder.

    Raises:
        BuildError: configuring or compiling failed, or CMake did not take the plan's values.
        HostError: there is not enough space.
    """
    before = read_stamp(job.places.build)
    if before is not None and _is_built(before, job, options):
        return _built(job, before, steps=0)
    stamp = _usable(before, job, options)
    cached = options.use_ccache and job.toolchain.ccache is not None
    # An uncached build says so for good; the first cached step ends that.
    cut = without_network()
    stamp = stamp.model_copy(
        update={
            "uncached": stamp.uncached and not cached,
            "network_cut": stamp.network_cut and bool(cut),
        }
    )
    require_space(job.places.build, _NEED_BYTES, "the build")
    write_stamp(job.places.build, stamp)
    if before is not None and not _is_as_built(before, job):
        job.program.unlink(missing_ok=True)  # somebody changed it; by its time alone ninja would keep it
    _say(job, cached=cached, cut=bool(cut))
    variables = build_variables(job.plan.variables, job.matrix.defaults, job.ws, cached=cached)
    stamp = _configure(stamp, job, cut, variables)
    jobs = _jobs(options)
    steps = ninja.build(
        [*cut, job.toolchain.ninja.path, "-C", job.places.build, "-j", str(jobs)],
        f"compiling the {job.plan.program} of lane {job.plan.lane} ({jobs} at once)",
        _log(job, "build"),
        variables=variables,
        jobs=jobs,
    )
    _assert(job)  # ninja runs cmake by itself when a CMakeLists.txt changed
    if not job.program.is_file():
        raise BuildError(
            f"the build made no {job.program.name}",
            cause=f"{job.program} is not there",
            remedy="the CMake project must define this executable",
        )
    stamp = stamp.model_copy(update={"program_sha256": sha256_file(job.program)})
    write_stamp(job.places.build, stamp)
    return _built(job, stamp, steps=steps)


def _is_built(stamp: Stamp, job: Job, options: Options) -> bool:
    same = stamp.digest == job.plan.digest and stamp.project == str(job.places.project)
    fresh_enough = options.use_ccache or stamp.uncached
    return same and fresh_enough and _is_as_built(stamp, job)


def _is_as_built(stamp: Stamp, job: Job) -> bool:
    return (
        bool(stamp.program_sha256)
        and job.program.is_file()
        and sha256_file(job.program) == stamp.program_sha256
    )


def _usable(stamp: Stamp | None, job: Job, options: Options) -> Stamp:
    """Return the stamp to go on with; the folder is emptied where its content cannot be built on."""
    build = job.places.build
    why = ""
    if stamp is None:
        why = "it has no stamp" if build.exists() else ""
    elif stamp.family != job.plan.family or stamp.project != str(job.places.project):
        why = "compilers, environment or place have changed"
    elif not options.use_ccache and not stamp.uncached:
        why = "what it holds came through the compiler cache"
    if why:
        console.say(f"starting over in {build}: {why}")
        remove(build)
    fresh = Stamp(
        project=str(job.places.project),
        family=job.plan.family,
        digest=job.plan.digest,
        uncached=True,
        plan=job.plan.to_json(),
    )
    if stamp is None or why:
        return fresh
    kept = {name: getattr(stamp, name) for name in ("arguments", "uncached", "network_cut")}
    return fresh.model_copy(update=kept)


def _configure(stamp: Stamp, job: Job, cut: Sequence[str], variables: Mapping[str, str]) -> Stamp:
    build = job.places.build
    arguments = job.plan.arguments(job.places, job.toolchain, launcher=job.toolchain.ccache)
    if stamp.arguments != arguments or not (build / "build.ninja").is_file():
        if _without_ids(stamp.arguments) != _without_ids(arguments):
            (build / "CMakeCache.txt").unlink(missing_ok=True)  # or a value no longer stated would stay
        write_stamp(build, stamp.model_copy(update={"arguments": ()}))
        configure([*cut, job.toolchain.cmake.path, *arguments], variables, _log(job, "cmake"))
        stamp = stamp.model_copy(update={"arguments": arguments})
        write_stamp(build, stamp)
    _assert(job)
    return stamp


def configure(command: Sequence[str | Path], variables: Mapping[str, str], log: Path) -> None:
    """Run cmake; its output goes to `log`.

    Raises:
        BuildError: it failed; the end of its output is in the cause.
    """
    with console.progress("configuring"):
        done = run_lines(command, lambda _: None, env=variables)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{done.command}\n{done.stdout}\n")
    if done.returncode != 0:
        raise BuildError(
            "CMake could not configure the lane",
            cause="\n".join(done.stdout.splitlines()[-_SHOWN_LINES:]),
            remedy=f"the whole output is in {log}",
        )


def _assert(job: Job) -> None:
    build, plan = job.places.build, job.plan
    assert_cache(read_cache(build), plan.values, job.matrix.defaults.inert_options)
    assert_compile_flags(build, job.matrix.isa[plan.isa].compiler_flags)
    if plan.program == "worker":
        assert_archives(build, PROGRAMS["worker"], plan.archives)


def _without_ids(arguments: Sequence[str]) -> list[str]:
    return [argument for argument in arguments if not argument.startswith("-DDGR_")]


def _jobs(options: Options) -> int:
    fitting = job_count(cores(), available_memory())
    if options.jobs is None:
        return fitting
    if options.jobs > fitting:
        console.warn(f"{options.jobs} compilers at once: cores and free memory have room for {fitting}")
    return options.jobs


def _log(job: Job, step: str) -> Path:
    return job.ws.logs("lane") / f"{job.places.build.name}-{step}.log"


def _say(job: Job, *, cached: bool, cut: bool) -> None:
    if cached:
        cache = "through the compiler cache"
    elif job.toolchain.ccache is None:
        cache = "uncached (ccache is not installed)"
    else:
        cache = "uncached"
    network = "network cut" if cut else "network not cut (this machine does not let us)"
    console.say(f"{job.plan.program}: {cache}, {network}, lane digest {job.plan.digest[:16]}")


def _built(job: Job, stamp: Stamp, *, steps: int) -> Built:
    return Built(
        program=job.program,
        digest=job.plan.digest,
        steps=steps,
        uncached=stamp.uncached,
        network_cut=stamp.network_cut,
        build=job.places.build,
    )
