"""Lanes become jobs of hosted runners: the matrix as data, for whatever continuous integration reads it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from dgr_build.documents.ci import LaneRun, Preparation
from dgr_build.errors import UsageError

if TYPE_CHECKING:
    from dgr_build.documents.ci import Ci, Runner
    from dgr_build.documents.matrix import Matrix

_FILE = "lanes/matrix.toml"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One lane on one runner.

    Attributes:
        name: of the job: the lane, and its profile where it has one.
        lane: the lane that is built.
        profile: which part of it, "" for all.
        backend: what the worker computes with.
        exercised: how far the project itself has gone with the lane; a hosted runner has no GPU.
        runner: the name of the runner in the matrix.
        runs_on: the label of the GitHub runner.
        image: the image of the GitLab job.
        tags: what chooses the GitLab runner.
        manager: the package manager of the runner.
        install: packages of the system that must be there first.
        settings: kernel settings that must hold first.
        command: the one command that builds; words.
        events: what starts it.
        timeout_minutes: when it is ended; minutes.
    """

    name: str
    lane: str
    profile: str
    backend: str
    exercised: str
    runner: str
    runs_on: str
    image: str
    tags: tuple[str, ...]
    manager: str
    install: tuple[str, ...]
    settings: tuple[str, ...]
    command: tuple[str, ...]
    events: tuple[str, ...]
    timeout_minutes: int

    @property
    def command_line(self) -> str:
        """The command as it is typed."""
        return shlex.join(self.command)


def settings_of(matrix: Matrix) -> Ci:
    """Return the `[ci]` part.

    Raises:
        UsageError: the matrix has none.
    """
    if matrix.ci is None:
        raise UsageError(f"{_FILE} has no [ci] part", remedy=f"add one to {_FILE}; docs/ci.md describes it")
    return matrix.ci


def jobs(matrix: Matrix, only: str = "*") -> tuple[Job, ...]:
    """Return the jobs of the lanes, in the order of the matrix.

    Args:
        matrix: the lanes.
        only: a glob over the names of lanes and of jobs.

    Raises:
        UsageError: nothing has such a name, or the `[ci]` part names a lane or a profile that is not there.
    """
    ci = settings_of(matrix)
    _known_lanes(ci, matrix)
    made = [job for name in matrix.lane for job in _jobs_of(matrix, ci, name)]
    names = [job.name for job in made]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _wrong("lane", f"two jobs are called {', '.join(twice)}")
    chosen = tuple(job for job in made if fnmatchcase(job.lane, only) or fnmatchcase(job.name, only))
    if not chosen:
        raise UsageError(
            f"no lane is called like {only!r}",
            cause=f"there are the lanes {', '.join(matrix.lane)} and the jobs {', '.join(names)}",
            remedy="quote the pattern so that the shell leaves it alone: dgr-build matrix --only 'cu*'",
        )
    return chosen


def plain_data(made: tuple[Job, ...]) -> list[dict[str, Any]]:
    """Return jobs as plain data, `--format json`."""
    return [asdict(job) for job in made]


def include_list(made: tuple[Job, ...]) -> dict[str, list[dict[str, Any]]]:
    """Return jobs as what `strategy.matrix: ${{ fromJSON(...) }}` takes: flat values only."""
    return {
        "include": [
            {
                "name": job.name,
                "lane": job.lane,
                "profile": job.profile,
                "runs-on": job.runs_on,
                "timeout-minutes": job.timeout_minutes,
                "manager": job.manager,
                "install": " ".join(job.install),
                "settings": " ".join(job.settings),
                "command": job.command_line,
                "events": " ".join(job.events),
            }
            for job in made
        ]
    }


def _known_lanes(ci: Ci, matrix: Matrix) -> None:
    unknown = [name for name in ci.lane if name not in matrix.lane]
    if unknown:
        raise _wrong(f"lane.{unknown[0]}", f"no lane has this name, there are {', '.join(matrix.lane)}")


def _jobs_of(matrix: Matrix, ci: Ci, name: str) -> list[Job]:
    lane = matrix.lane[name]
    runner_name, runner = _runner(matrix, ci, name)
    kind = matrix.environment[lane.environment].kind
    for run in _runs(ci, name):
        matrix.with_profile(name, run.profile or None)
    needs = ci.environment.get(kind, Preparation()) if runner.system == "Linux" else Preparation()
    return [
        Job(
            name=f"{name}-{run.profile}" if run.profile else name,
            lane=name,
            profile=run.profile,
            backend=lane.backend,
            exercised=lane.exercised,
            runner=runner_name,
            runs_on=runner.github,
            image=runner.gitlab,
            tags=runner.gitlab_tags,
            manager=runner.manager,
            install=tuple(sorted({*runner.packages, *needs.packages})),
            settings=needs.settings,
            command=_command(name, run, ci),
            events=run.events,
            timeout_minutes=run.timeout_minutes,
        )
        for run in _runs(ci, name)
    ]


def _runs(ci: Ci, name: str) -> tuple[LaneRun, ...]:
    return ci.lane[name].jobs if name in ci.lane else (LaneRun(),)


def _runner(matrix: Matrix, ci: Ci, name: str) -> tuple[str, Runner]:
    lane = matrix.lane[name]
    wanted = (lane.systems[0], matrix.isa[lane.isa].machine)
    for runner_name, runner in ci.runner.items():
        if (runner.system, runner.machine) == wanted:
            return runner_name, runner
    raise _wrong("runner", f"none is a {' '.join(wanted)}, which lane {name} is built on")


def _command(name: str, run: LaneRun, ci: Ci) -> tuple[str, ...]:
    profile = ("--profile", run.profile) if run.profile else ()
    packages = (word for package in ci.packages for word in ("--package", package))
    return ("./dgr-build", "lane", name, *profile, *packages)


def _wrong(field: str, cause: str) -> UsageError:
    return UsageError(
        f"ci.{field} in {_FILE} does not fit", cause=cause, remedy=f"edit {_FILE} and try again"
    )
