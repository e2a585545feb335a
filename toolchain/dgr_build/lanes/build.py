"""Building a plan: configure, hold the cache against the plan, compile; continuing where a run stopped."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.errors import BuildError
from dgr_build.lanes import ninja
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.cache_session import serving
from dgr_build.lanes.cmake_cache import assert_archives, assert_cache, assert_compile_flags, read_cache
from dgr_build.lanes.compiler_cache import choose
from dgr_build.lanes.diagnose import explain
from dgr_build.lanes.jobs import available_memory, cores, job_count
from dgr_build.lanes.remote_cache import SETTING
from dgr_build.lanes.stamp import Stamp, read_stamp, write_stamp
from dgr_build.lanes.variables import build_variables
from dgr_build.process import run_lines
from dgr_build.workspace import remove, require_space

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix
    from dgr_build.lanes.cache_session import Session, Statistics
    from dgr_build.lanes.compiler_cache import Cache
    from dgr_build.lanes.plan import Places, Plan
    from dgr_build.lanes.toolchain import Toolchain
    from dgr_build.workspace import Workspace

PROGRAMS = {"worker": "dgr-shard-worker", "reference": "dgr-reference"}
_NEED_BYTES = 1_500_000_000


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to build; nothing here changes what comes out.

    Args:
        jobs: compilers at once, None to let cores and memory decide.
        use_ccache: whether the compiler cache may answer.
        surroundings: variables of the compilers otherwise than stated, to see that nothing depends on them.
    """

    jobs: int | None = None
    use_ccache: bool = True
    surroundings: Mapping[str, str] = field(default_factory=dict)


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
        seconds: what configuring and compiling took, in all runs that it came from.
        cache: what the compiler cache did in this run, None where that is not known or nothing was done.
    """

    program: Path
    digest: str
    steps: int
    uncached: bool
    network_cut: bool
    build: Path
    seconds: float
    cache: Statistics | None = None


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

    def inside(self, argv: Sequence[str | Path], cache: Cache, session: Session | None = None) -> list[str]:
        """Return a command in the lane's environment: sources are only read, without a network.

        Args:
            argv: the program with its arguments.
            cache: the compiler cache.
            session: the cache while the build runs; None for its server, which has the network.
        """
        self.ws.ccache.mkdir(parents=True, exist_ok=True)
        read = [self.places.project, self.places.source]
        if cache.apart:
            read += [path.parent for path in (cache.launcher, cache.program) if path is not None]
        write = [self.places.build, self.ws.ccache]
        write += [session.folder] if session is not None and session.folder is not None else []
        return self.toolchain.made.command(argv, read=read, write=write, network=session is None)


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
    cache = choose(
        job.ws,
        job.toolchain.path,
        setting=os.environ.get(SETTING),
        uncached=not options.use_ccache,
        made=job.toolchain.made,
    )
    cached = cache.name != "none"
    # An uncached build says so for good; the first cached step ends that.
    cut = job.toolchain.made.cuts_network() and not cache.apart  # a server compiles, outside of the cut
    stamp = stamp.model_copy(
        update={
            "uncached": stamp.uncached and not cached,
            "network_cut": stamp.network_cut and cut,
        }
    )
    require_space(job.places.build, _NEED_BYTES, "the build")
    write_stamp(job.places.build, stamp)
    if before is not None and not _is_as_built(before, job):
        job.program.unlink(missing_ok=True)  # somebody changed it; by its time alone ninja would keep it
    _say(job, cache, cut=cut)
    jobs = _jobs(options)
    with _timed(job.places.build), serving(job.ws, cache, prefix=job.inside([], cache)) as session:
        variables = build_variables(job.plan.variables, job.matrix.defaults, session.variables)
        variables |= options.surroundings
        stamp = _configure(stamp, job, (cache, session), variables)
        steps = ninja.build(
            job.inside([job.toolchain.ninja.path, "-C", job.places.build, "-j", str(jobs)], cache, session),
            f"compiling the {job.plan.program} of lane {job.plan.lane} ({jobs} at once)",
            _log(job, "build"),
            variables=variables,
            jobs=jobs,
        )
        statistics = session.statistics()
    _assert(job)  # ninja runs cmake by itself when a CMakeLists.txt changed
    if not job.program.is_file():
        raise BuildError(
            f"the build made no {job.program.name}",
            cause=f"{job.program} is not there",
            remedy="the CMake project must define this executable",
        )
    stamp = (read_stamp(job.places.build) or stamp).model_copy(
        update={"program_sha256": sha256_file(job.program)}
    )
    write_stamp(job.places.build, stamp)
    return replace(_built(job, stamp, steps=steps), cache=statistics)


@contextmanager
def _timed(build: Path) -> Iterator[None]:
    """Add what the block takes to the stamp of a build folder, also when it fails or is interrupted."""
    started = time.monotonic()
    try:
        yield
    finally:
        stamp = read_stamp(build)
        if stamp is not None:
            spent = round(stamp.seconds + time.monotonic() - started, 2)
            write_stamp(build, stamp.model_copy(update={"seconds": spent}))


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
    kept = {name: getattr(stamp, name) for name in ("arguments", "uncached", "network_cut", "seconds")}
    return fresh.model_copy(update=kept)


def _configure(stamp: Stamp, job: Job, caching: tuple[Cache, Session], variables: Mapping[str, str]) -> Stamp:
    build = job.places.build
    arguments = job.plan.arguments(job.places, job.toolchain, launcher=caching[0].launcher)
    if stamp.arguments != arguments or not (build / "build.ninja").is_file():
        if _without_ids(stamp.arguments) != _without_ids(arguments):
            (build / "CMakeCache.txt").unlink(missing_ok=True)  # or a value no longer stated would stay
        write_stamp(build, stamp.model_copy(update={"arguments": ()}))
        configure(job.inside([job.toolchain.cmake.path, *arguments], *caching), variables, _log(job, "cmake"))
        stamp = stamp.model_copy(update={"arguments": arguments})
        write_stamp(build, stamp)
    _assert(job)
    return stamp


def configure(command: Sequence[str | Path], variables: Mapping[str, str], log: Path) -> None:
    """Run cmake; its output goes to `log`.

    Raises:
        BuildError: it failed; the first real error of its output is in the cause.
    """
    with console.progress("configuring"):
        done = run_lines(command, lambda _: None, env=variables)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{done.command}\n{done.stdout}\n")
    if done.returncode != 0:
        cause, remedy = explain(done.stdout, log)
        raise BuildError("CMake could not configure the lane", cause=cause, remedy=remedy)


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


def _say(job: Job, cache: Cache, *, cut: bool) -> None:
    why = "the cache's server compiles" if cache.apart else "this machine does not let us"
    network = "network cut" if cut else f"network not cut ({why})"
    console.say(f"{job.plan.program}: {cache.described}, {network}, lane digest {job.plan.digest[:16]}")


def _built(job: Job, stamp: Stamp, *, steps: int) -> Built:
    return Built(
        program=job.program,
        digest=job.plan.digest,
        steps=steps,
        uncached=stamp.uncached,
        network_cut=stamp.network_cut,
        seconds=stamp.seconds,
        build=job.places.build,
    )
