"""What a benchmark of the shard worker found: pairs of values, ratios with their spread, verdicts."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from dgr_build.documents.base import Document, Sha1, Sha256, digest
from dgr_build.documents.bench import Interval, Verdict
from dgr_build.documents.evidence import Environment, Line

Unit = Literal["tokens/s", "ms", "us", "bytes"]


class Bound(Document):
    """What must hold of the ratio of our value to the other's: exactly one of the two.

    Attributes:
        at_least: its lower limit.
        at_most: its upper limit.
    """

    at_least: PositiveFloat | None = None
    at_most: PositiveFloat | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a bound is either at_least or at_most")
        return self

    @property
    def text(self) -> str:
        """The bound for a person."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}"

    def judge(self, ratio: Interval) -> Verdict:
        """Say what an interval says: met when all of it is within, missed when all of it is beyond."""
        if self.at_least is not None:
            within, beyond = ratio.low >= self.at_least, ratio.high < self.at_least
        else:
            limit = self.at_most or 0.0
            within, beyond = ratio.high <= limit, ratio.low > limit
        return "met" if within else "missed" if beyond else "unresolved"


class WorkerRow(Document):
    """One comparison: the worker and something else, measured in turns on the same machine.

    Attributes:
        name: what it is called.
        group: what it is measured with, and named by on the command line.
        ours: what the worker does.
        theirs: what it is held against.
        unit: of the values.
        bound: what must hold of the ratio.
        ours_values: ours in each pair, in order.
        theirs_values: the other's.
        ratio: ours to theirs, from the pairs.
        verdict: what the ratio says of the bound.
        detail: what else was measured on the way, means by name.
    """

    name: Line
    group: Line
    ours: Line
    theirs: Line
    unit: Unit
    bound: Bound
    ours_values: Annotated[tuple[PositiveFloat, ...], Field(min_length=2)]
    theirs_values: Annotated[tuple[PositiveFloat, ...], Field(min_length=2)]
    ratio: Interval
    verdict: Verdict
    detail: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_of_pairs_and_claims_what_they_show(self) -> Self:
        if len(self.ours_values) != len(self.theirs_values):
            raise ValueError(f"{self.name}: {len(self.ours_values)} values of ours are no pairs")
        if self.verdict != self.bound.judge(self.ratio):
            raise ValueError(f"{self.name}: the verdict {self.verdict} is not what the interval says")
        return self


class MeasuredModel(Document):
    """A model that was measured with.

    Attributes:
        name: what the toolchain calls it.
        digest: of the artifact.
        n_bytes: of its file.
        n_layer: its layers.
        n_embd: its width.
    """

    name: Line
    digest: Sha256
    n_bytes: PositiveInt
    n_layer: PositiveInt
    n_embd: PositiveInt


class WorkerBench(Document):
    """The speed of the shard worker on one machine, in one run.

    Attributes:
        schema_version: of this document.
        subject: what was measured.
        quick: with small settings; such a run shows that the benchmark works, not how fast the worker is.
        ran_at: when the run began, UTC.
        pin_commit: upstream's commit, of the worker and of the programs it is held against.
        series_sha256: of the file with the patch series.
        lane_digest: of the worker.
        upstream_values: CMake values of upstream's programs that the lane has otherwise.
        settings: the sizes that were measured with, by name.
        models: by what they were measured for.
        tools: the version of each program that built these, by name.
        environment: where it ran.
        load: of the machine when the run began and ended: processes that wanted a core, over a minute.
        rows: one for each comparison.
        limitations: what a reader must not conclude.
    """

    schema_version: Literal[1] = 1
    subject: Line = "speed of the shard worker"
    quick: bool
    ran_at: dt.datetime
    pin_commit: Sha1
    series_sha256: Sha256
    lane_digest: Sha256
    upstream_values: dict[str, str]
    settings: dict[str, str]
    models: Annotated[tuple[MeasuredModel, ...], Field(min_length=1)]
    tools: dict[str, str]
    environment: Environment
    load: tuple[NonNegativeFloat, NonNegativeFloat]
    rows: Annotated[tuple[WorkerRow, ...], Field(min_length=1)]
    limitations: tuple[Line, ...] = ()

    @property
    def id(self) -> str:
        """The digest of the whole content."""
        return digest(self.model_dump(mode="json"))

    @property
    def missed(self) -> tuple[WorkerRow, ...]:
        """The rows that missed their bound."""
        return tuple(row for row in self.rows if row.verdict == "missed")
