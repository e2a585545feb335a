"""Measuring two things against each other whose programs say themselves how fast they were."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dgr_build.documents.bench_worker import Bound, Unit, WorkerRow
from dgr_build.flows.bench_measure import ratio_interval

if TYPE_CHECKING:
    from collections.abc import Callable


def _nothing() -> None:
    pass


def _no_detail() -> dict[str, float]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two things that are compared.

    Args:
        what: it is, for a person.
        measure: returns its value; more is better or worse as the unit has it.
    """

    what: str
    measure: Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """Two things, and what must hold of the ratio of their values.

    Args:
        name: what the row is called.
        ours: the worker's.
        theirs: what it is held against.
        unit: of the values.
        bound: what must hold.
        warm_up: measure each once before anything counts.
        detail: what else was seen while measuring, asked at the end.
    """

    name: str
    ours: Side
    theirs: Side
    unit: Unit
    bound: Bound
    warm_up: bool = True
    detail: Callable[[], dict[str, float]] = field(default=_no_detail)

    def runs(self, pairs: int) -> int:
        """Return how often anything is measured."""
        return 2 * (pairs + self.warm_up)


def measured(pairing: Pairing, group: str, pairs: int, *, on_run: Callable[[], None] = _nothing) -> WorkerRow:
    """Measure both in turns and say what came of it; who goes first changes from pair to pair.

    Args:
        pairing: what to measure.
        group: what the row belongs to.
        pairs: how often, at least 2.
        on_run: told when a measurement has ended.
    """
    sides = (pairing.ours, pairing.theirs)
    values: tuple[list[float], list[float]] = ([], [])

    def one(which: int) -> float:
        value = sides[which].measure()
        on_run()
        return value

    if pairing.warm_up:
        one(0), one(1)
    for pair in range(pairs):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            values[which].append(float(f"{one(which):.9g}"))
    ratio = ratio_interval(*values)
    return WorkerRow(
        name=pairing.name,
        group=group,
        ours=pairing.ours.what,
        theirs=pairing.theirs.what,
        unit=pairing.unit,
        bound=pairing.bound,
        ours_values=tuple(values[0]),
        theirs_values=tuple(values[1]),
        ratio=ratio,
        verdict=pairing.bound.judge(ratio),
        detail={name: float(f"{value:.9g}") for name, value in pairing.detail().items()},
    )
