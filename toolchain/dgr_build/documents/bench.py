"""What a benchmark found: pairs of measured times, ratios with their spread, and a verdict on each target."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dgr_build.documents.base import Document, Sha1, Sha256, digest
from dgr_build.documents.evidence import Environment, Line

Verdict = Literal["met", "missed", "unresolved", "no target"]


class Interval(Document):
    """An estimate with its spread.

    Attributes:
        estimate: the geometric mean.
        low: the lower end of the interval.
        high: its upper end.
        confidence: how often such an interval holds the true value.
    """

    estimate: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    confidence: Annotated[float, Field(gt=0, lt=1)]

    @model_validator(mode="after")
    def _holds_its_estimate(self) -> Self:
        if not self.low <= self.estimate <= self.high:
            raise ValueError(f"the interval {self.low} to {self.high} does not hold {self.estimate}")
        return self


class Target(Document):
    """What must hold.

    Attributes:
        of: the ratio of our time to the other's, or our time itself in seconds.
        at_most: its limit.
    """

    of: Literal["ratio", "seconds"]
    at_most: PositiveFloat


class Row(Document):
    """One comparison: two ways to the same end, run in turns on the same machine.

    Attributes:
        name: what it is called on the command line.
        ours: what the toolchain does.
        theirs: what it is held against.
        target: what must hold, None where a comparison is only told.
        ours_seconds: our time in each pair, in order.
        theirs_seconds: the other's.
        ratio: ours to theirs, from the pairs.
        seconds: our time.
        verdict: met when the whole interval is within the target, missed when all of it is beyond, unresolved
            when the target lies inside it.
    """

    name: Line
    ours: Line
    theirs: Line
    target: Target | None = None
    ours_seconds: Annotated[tuple[PositiveFloat, ...], Field(min_length=2)]
    theirs_seconds: Annotated[tuple[PositiveFloat, ...], Field(min_length=2)]
    ratio: Interval
    seconds: Interval
    verdict: Verdict

    @model_validator(mode="after")
    def _is_of_pairs_and_claims_what_they_show(self) -> Self:
        if len(self.ours_seconds) != len(self.theirs_seconds):
            raise ValueError(f"{self.name}: {len(self.ours_seconds)} times of ours are no pairs")
        if self.verdict != judge(self.ratio, self.seconds, self.target):
            raise ValueError(f"{self.name}: the verdict {self.verdict} is not what the interval says")
        return self


class ToolchainBench(Document):
    """The speed of the toolchain on one machine, in one run.

    Attributes:
        schema_version: of this document.
        subject: what was measured.
        ran_at: when the run began, UTC.
        pin_commit: upstream's commit.
        series_sha256: of the file with the patch series.
        tools: the version of each program that took part, by name.
        environment: where it ran.
        load: of the machine when the run began and ended: processes that wanted a core, over a minute.
        rows: one for each comparison.
        limitations: what a reader must not conclude.
    """

    schema_version: Literal[1] = 1
    subject: Line = "speed of the toolchain"
    ran_at: dt.datetime
    pin_commit: Sha1
    series_sha256: Sha256
    tools: dict[str, str]
    environment: Environment
    load: tuple[float, float]
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]
    limitations: tuple[Line, ...] = ()

    @property
    def id(self) -> str:
        """The digest of the whole content."""
        return digest(self.model_dump(mode="json"))

    @property
    def missed(self) -> tuple[str, ...]:
        """The names of the rows that missed their target."""
        return tuple(row.name for row in self.rows if row.verdict == "missed")

    @property
    def pairs(self) -> PositiveInt:
        """The smallest number of pairs of a row."""
        return min(len(row.ours_seconds) for row in self.rows)


def judge(ratio: Interval, seconds: Interval, target: Target | None) -> Verdict:
    """Say what the intervals of a row say of its target."""
    if target is None:
        return "no target"
    interval = ratio if target.of == "ratio" else seconds
    if interval.high <= target.at_most:
        return "met"
    return "missed" if interval.low > target.at_most else "unresolved"
