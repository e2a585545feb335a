"""The `[ci]` part of the lane matrix: on what, when and for how long each lane is built for every change."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from dgr_build.documents.base import Document, Sha1

Event = Literal["pull_request", "push", "schedule"]
Manager = Literal["apt-get", "brew"]
Minutes = Annotated[int, Field(ge=1, le=360)]  # a hosted runner ends a job after six hours
ActionName = Literal["checkout", "cache", "upload"]


def _stays_inside(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError("leads out of the checkout")
    return path


# These words end up in shell lines and YAML, so nothing in them may mean anything to either.
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+:/_-]*$")]
Inside = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9._][A-Za-z0-9._/*-]*$"), AfterValidator(_stays_inside)
]
PlainLine = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 =.+:/_-]+$")]

_EVERY_EVENT: tuple[Event, ...] = ("pull_request", "push", "schedule")


class Runner(Document):
    """A hosted machine that lanes are built on.

    Attributes:
        system: as `uname -s` says it.
        machine: as `uname -m` says it.
        github: its label with GitHub Actions.
        gitlab: the image of a GitLab job.
        gitlab_tags: the tags that choose a GitLab runner, none for the default ones.
        manager: its package manager.
        packages: what has to be installed for any lane.
    """

    system: Literal["Linux", "Darwin"]
    machine: Word
    github: Word
    gitlab: Word
    gitlab_tags: tuple[Word, ...] = ()
    manager: Manager
    packages: tuple[Word, ...] = ()


class Preparation(Document):
    """What an environment of one kind needs of a fresh Linux runner.

    Attributes:
        packages: what has to be installed before.
        settings: kernel settings, in the words of `sysctl`; virtual machines only, a container cannot.
    """

    packages: tuple[Word, ...] = ()
    settings: tuple[PlainLine, ...] = ()


class Action(Document):
    """A GitHub action and the exact commit that is used.

    Attributes:
        uses: its repository.
        version: the release, for a person and for tools that propose updates.
        commit: the commit of that release; None where nobody knows it for certain.
        open: what is still to be found out about it, "" where nothing is.
    """

    uses: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]+/[A-Za-z0-9_.-]+$")]
    version: Annotated[str, StringConstraints(pattern=r"^v\d+\.\d+\.\d+$")]
    commit: Sha1 | None = None
    open: str = ""

    @model_validator(mode="after")
    def _unpinned_is_open(self) -> Self:
        if self.commit is None and not self.open:
            raise ValueError("open: an action without a commit must say what is to be found out")
        return self

    @property
    def reference(self) -> str:
        """What a workflow names: the commit where it is known, else the exact version."""
        return f"{self.uses}@{self.commit or self.version}"


class Cache(Document):
    """Folders kept from one run of a job to the next.

    Attributes:
        name: what a person calls it; begins its key.
        paths: the folders, relative to the checkout.
        inputs: files whose content decides whether it still holds, for all jobs of a lane; none means that it
            grows with every commit, for each job apart.
    """

    name: Word
    paths: Annotated[tuple[Inside, ...], Field(min_length=1)]
    inputs: tuple[Inside, ...] = ()


class LaneRun(Document):
    """One job of a lane.

    Attributes:
        profile: a profile of the lane, "" for all that the lane is made for.
        events: what starts it; by hand it can be started always.
        timeout_minutes: when it is ended; minutes.
    """

    profile: Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9-]*)?$")] = ""
    events: Annotated[tuple[Event, ...], Field(min_length=1)] = _EVERY_EVENT
    timeout_minutes: Minutes = 120

    @field_validator("events")
    @classmethod
    def _once_in_order(cls, value: tuple[Event, ...]) -> tuple[Event, ...]:
        if len(set(value)) != len(value):
            raise ValueError("names an event twice")
        return tuple(event for event in _EVERY_EVENT if event in value)


class LaneRuns(Document):
    """The jobs of a lane that is not content with one plain job."""

    jobs: Annotated[tuple[LaneRun, ...], Field(min_length=1)]


class Ci(Document):
    """How all lanes are built by hosted runners.

    Attributes:
        branch: pushes to it start jobs.
        nightly: when scheduled jobs start, as cron writes it, UTC.
        packages: the packages that every job makes.
        cache_folder: DGR_CACHE, relative to the checkout.
        artifacts: what a job that went well hands out.
        logs: what a job that failed hands out.
        retention_days: how long both are kept; days.
        runner: the machines; a lane takes the one of its system and processor.
        environment: what environments need, by their kind.
        action: the actions of the GitHub workflow.
        cache: what is kept between runs.
        lane: lanes with other jobs than one plain one; all others need no entry.
    """

    branch: Word
    nightly: Annotated[str, StringConstraints(pattern=r"^[0-9*/,-]+( [0-9*/,-]+){4}$")]
    packages: tuple[Literal["wheel", "tar"], ...]
    cache_folder: Inside
    artifacts: Annotated[tuple[Inside, ...], Field(min_length=1)]
    logs: Annotated[tuple[Inside, ...], Field(min_length=1)]
    retention_days: Annotated[int, Field(ge=1, le=90)]
    runner: Annotated[dict[Word, Runner], Field(min_length=1)]
    environment: dict[Literal["host", "sysroot", "wheels"], Preparation] = Field(default_factory=dict)
    action: dict[ActionName, Action]
    cache: tuple[Cache, ...] = ()
    lane: dict[str, LaneRuns] = Field(default_factory=dict)

    @field_validator("action")
    @classmethod
    def _every_action(cls, value: dict[ActionName, Action]) -> dict[ActionName, Action]:
        missing = {"checkout", "cache", "upload"} - set(value)
        if missing:
            raise ValueError(f"lacks {', '.join(sorted(missing))}")
        return value

    @model_validator(mode="after")
    def _one_runner_each(self) -> Self:
        kinds = [(runner.system, runner.machine) for runner in self.runner.values()]
        if len(set(kinds)) != len(kinds):
            raise ValueError("runner: two of them have one system and machine")
        return self
