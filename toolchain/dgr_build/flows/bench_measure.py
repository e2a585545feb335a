"""Measuring two ways against each other: in turns, in pairs, with an interval for the ratio."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dgr_build.documents.bench import Interval, Row, Target, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONFIDENCE = 0.95
_NORMAL = 1.959963984540054  # the quantile of the normal distribution for 95 %
# Of Student's t for 95 %, by degrees of freedom from 1 on.
_STUDENT = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip


def _nothing() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Way:
    """One of two ways to the same end.

    Args:
        what: what it does, for a person.
        run: does it; this is what is timed.
        prepare: brings about the state it starts from; not timed.
    """

    what: str
    run: Callable[[], None]
    prepare: Callable[[], None] = _nothing


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two ways, and what must hold of their times.

    Args:
        name: what it is called on the command line.
        ours: the toolchain's way.
        theirs: what it is held against.
        target: what must hold, None where nothing must.
        warm_up: run each once before anything counts, so that files are in memory.
    """

    name: str
    ours: Way
    theirs: Way
    target: Target | None
    warm_up: bool = True

    def runs(self, pairs: int) -> int:
        """Return how often anything is run."""
        return 2 * (pairs + self.warm_up)


def compare(
    comparison: Comparison,
    pairs: int,
    *,
    on_run: Callable[[], None] = _nothing,
    clock: Callable[[], float] = time.perf_counter,
) -> Row:
    """Run both ways in turns and say what came of it.

    Whoever goes first changes from pair to pair, so that a drift of the machine hits both alike.

    Args:
        comparison: what to run.
        pairs: how often, at least 2.
        on_run: told when a run has ended.
        clock: seconds, from wherever.
    """
    ways = (comparison.ours, comparison.theirs)
    seconds: tuple[list[float], list[float]] = ([], [])

    def timed(which: int) -> float:
        ways[which].prepare()
        start = clock()
        ways[which].run()
        took = clock() - start
        on_run()
        return took

    if comparison.warm_up:
        timed(0), timed(1)
    for pair in range(pairs):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            seconds[which].append(timed(which))
    return row_of(comparison, *seconds)


def row_of(comparison: Comparison, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """Return a row of the measured times, in seconds."""
    ours, theirs = (tuple(round(one, 9) for one in times) for times in (ours, theirs))
    ratio, seconds = ratio_interval(ours, theirs), mean_interval(ours)
    return Row(
        name=comparison.name,
        ours=comparison.ours.what,
        theirs=comparison.theirs.what,
        target=comparison.target,
        ours_seconds=ours,
        theirs_seconds=theirs,
        ratio=ratio,
        seconds=seconds,
        verdict=judge(ratio, seconds, comparison.target),
    )


def ratio_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Return the ratio of two ways from their pairs, with an interval.

    Times of programs are skewed and ratios multiply, so the interval is Student's on the logarithms.

    Args:
        ours: seconds.
        theirs: seconds of the same pairs.
    """
    return _interval(np.log(np.asarray(ours) / np.asarray(theirs)))


def mean_interval(seconds: Sequence[float]) -> Interval:
    """Return the geometric mean of times, with an interval."""
    return _interval(np.log(np.asarray(seconds)))


def student(freedom: int) -> float:
    """Return the quantile of Student's t for a two-sided interval of 95 %.

    Args:
        freedom: degrees of freedom, at least 1.
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = _NORMAL  # Fisher's expansion; right to four digits here
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    each = [term / float(freedom) ** power for power, term in enumerate(terms, 1)]
    return z + math.fsum(each)


def _interval(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Interval:
    mean = float(logs.mean())
    half = student(len(logs) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    low, estimate, high = (float(f"{math.exp(value):.6g}") for value in (mean - half, mean, mean + half))
    return Interval(estimate=estimate, low=low, high=high, confidence=CONFIDENCE)
