"""Faults for the workers of a route: which stage is killed or stopped, and after how many tokens."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dgr_build.route.workers import started_again

if TYPE_CHECKING:
    from dgr_build.route.workers import WorkerProcess

Kind = Literal["kill", "stop"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault.

    Args:
        after: tokens of all sessions together.
        kind: `kill` ends the process at once, as `kill -9` does; `stop` halts it for a while.
        stage: index in the route.
        seconds: until a killed worker is started again, or a stopped one goes on.
    """

    after: int
    kind: Kind
    stage: int
    seconds: float


def schedule(seed: int, *, faults: int, tokens: int, stages: int, longest_s: float) -> tuple[Fault, ...]:
    """Return faults at random moments of a run, the same for the same arguments.

    Args:
        seed: of the choice.
        faults: how many, at most one after each token.
        tokens: how many the run has; the first twentieth is left in peace.
        stages: of the route.
        longest_s: how long a worker is stopped at most; a killed one comes back after two seconds at most.
    """
    choice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    moments = sorted(choice.sample(range(tokens // 20 + 1, tokens), faults))
    made = []
    for moment in moments:
        kind: Kind = choice.choice(("kill", "stop"))
        limit = longest_s if kind == "stop" else min(2.0, longest_s)
        seconds = round(choice.uniform(0.0, limit), 2)
        made.append(Fault(after=moment, kind=kind, stage=choice.randrange(stages), seconds=seconds))
    return tuple(made)


def inflict(fault: Fault, worker: WorkerProcess) -> WorkerProcess:
    """Let a fault happen to a worker, and return the one that serves afterwards.

    Raises:
        RouteError: it had ended before, or does not come back.
    """
    if fault.kind == "stop":
        worker.child.signal(signal.SIGSTOP)
        try:
            time.sleep(fault.seconds)
        finally:
            worker.child.signal(signal.SIGCONT)
        return worker
    worker.child.signal(signal.SIGKILL)
    worker.child.wait()
    time.sleep(fault.seconds)
    return started_again(worker)
