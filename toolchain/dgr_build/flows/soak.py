"""The story of `dgr-build soak`: sessions that talk on and on while stages are killed and stopped."""

from __future__ import annotations

import datetime as dt
import random
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from dgr_build import console
from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import CheckError, RouteError, UsageError
from dgr_build.flows.programs import reference_of, worker_of
from dgr_build.flows.run import artifact_of, expected_of, find_recipe
from dgr_build.flows.soak_talk import Known, Talk, Talker, Tally
from dgr_build.route.faults import Fault, inflict, schedule
from dgr_build.route.idle import slots_when_idle
from dgr_build.route.reference import WholeJob, run_whole
from dgr_build.route.tls import ClientTls
from dgr_build.route.workers import WorkerProcess, workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.documents.recipe import Recipe
    from dgr_build.workspace import Workspace

LANE = "cpu"
FRAME_S = 5.0
PATIENCE_S = 20.0
# For a token: a frame, the ways in which it can end, and the wait for a stage that is gone.
LIMIT_S = 3 * (FRAME_S + PATIENCE_S)
_LONGEST_STOP_S = 2 * FRAME_S  # half of them last longer than a frame may take
_PROMPTS = 8
_LONGEST_PROMPT = 150
_TOKENS = 120
_IDLE_S = 30.0
_POLL_S = 0.05
_GROWTH = 1.1  # of a stage's memory, over where it was when it had served every session once


@dataclass(frozen=True, kw_only=True)
class SoakRequest:
    """What to soak.

    Args:
        recipe: the name of a recipe of the project, or a file; all its stages on lane cpu.
        tokens: how many are yielded at least, by all sessions together.
        faults: how many of them are inflicted.
        sessions: that talk at once.
        seed: of prompts and faults.
    """

    recipe: str = "deepseek4-tiny-3stage"
    tokens: int = 20_000
    faults: int = 100
    sessions: int = 4
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What was seen.

    Args:
        recipe: as it was run.
        artifact: the model.
        began: when.
        seconds: how long it took.
        tally: what the clients saw.
        faults: what was inflicted.
        slots: free and all slots of each stage at the end.
        memory: of each stage, resident bytes when it had first served, and at the end.
    """

    recipe: Recipe
    artifact: Artifact
    began: dt.datetime
    seconds: float
    tally: Tally
    faults: tuple[Fault, ...]
    slots: tuple[tuple[int, int], ...]
    memory: tuple[tuple[int, int], ...]

    @property
    def wrong(self) -> list[str]:
        """What may not be; nothing when all is well."""
        tally = self.tally
        found = [f"a wrong token: {line}" for line in tally.wrong[:5]]
        if tally.longest_s > LIMIT_S:
            found.append(f"a client waited {tally.longest_s:.1f} s, more than {LIMIT_S:.0f} s")
        for stage, (free, total) in enumerate(self.slots):
            if free != total:
                found.append(f"stage {stage} has {free} of {total} slots free")
        for stage, (first, last) in enumerate(self.memory):
            if last > _GROWTH * first:
                found.append(f"stage {stage} grew from {first} to {last} bytes")
        return found


def soak(ws: Workspace, request: SoakRequest) -> Soaked:
    """Let sessions talk over the workers of a recipe while stages are killed and stopped.

    Raises:
        UsageError: there is no such recipe, or more faults than tokens.
        HostError: lane cpu was not built.
        RouteError: a worker did not come back, or a client broke in a way that is no answer.
    """
    if request.faults > request.tokens // 2:
        raise UsageError(
            f"{request.faults} faults are too many for {request.tokens} tokens",
            cause="sessions must get on between two of them",
            remedy="ask for at least twice as many tokens",
        )
    recipe = find_recipe(ws, request.recipe).placed((LANE,))
    recipe = recipe.model_copy(update={"n_slots": request.sessions})
    artifact = artifact_of(recipe)
    programs = {LANE: worker_of(ws, load_matrix(ws.matrix_file), LANE)}
    known = _known(ws, recipe, artifact, request.seed)
    planned = schedule(
        request.seed,
        faults=request.faults,
        tokens=request.tokens,
        stages=len(recipe.stages),
        longest_s=_LONGEST_STOP_S,
    )
    began, started, tally = dt.datetime.now(dt.UTC).replace(microsecond=0), time.monotonic(), Tally()
    with ExitStack() as stack:
        serving = list(stack.enter_context(workers(ws, recipe, programs, artifact)))
        stack.callback(lambda: [worker.child.stop() for worker in serving])
        talk = Talk(
            addresses=[worker.address for worker in serving],
            expected=expected_of(recipe, artifact, programs),
            tls=ClientTls.of(recipe.tls),
            known=known,
            frame_s=FRAME_S,
            patience_s=PATIENCE_S,
        )
        first = _warm(talk, serving, request.sessions)
        with _talking(talk, tally, request) as talkers:
            _inflict_all(planned, serving, tally, talkers, request.tokens)
        slots = tuple(slots_when_idle(worker, _IDLE_S) for worker in serving)
        last = [_resident(worker) for worker in serving]
    return Soaked(
        recipe=recipe,
        artifact=artifact,
        began=began,
        seconds=time.monotonic() - started,
        tally=tally,
        faults=planned,
        slots=slots,
        memory=tuple(zip(first, last, strict=True)),
    )


def require_sound(soaked: Soaked) -> None:
    """Check that nothing was seen that may not be.

    Raises:
        CheckError: something was; all of it is named.
    """
    if soaked.wrong:
        raise CheckError(
            f"the soak of {soaked.recipe.name} found {len(soaked.wrong)} faults of ours",
            cause="; ".join(soaked.wrong),
            remedy="read the logs of the workers; the same --seed gives the same faults",
        )


def _known(ws: Workspace, recipe: Recipe, artifact: Artifact, seed: int) -> list[Known]:
    """Return prompts of all lengths, with what the whole model on the unmodified library says to them."""
    choice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    program = reference_of(ws, LANE)
    known = []
    with console.progress("asking the whole model", _PROMPTS, unit="prompts") as task:
        for _ in range(_PROMPTS):
            length = choice.randint(1, min(_LONGEST_PROMPT, recipe.n_ctx - _TOKENS))
            prompt = [choice.randrange(artifact.manifest.n_vocab) for _ in range(length)]
            job = WholeJob(
                program=program, model=artifact.path, recipe=recipe, prompt=prompt, steps=_TOKENS - 1
            )
            known.append(Known(prompt=tuple(prompt), tokens=tuple(run_whole(ws, job).tokens)))
            task.advance(1)
    return known


def _warm(talk: Talk, serving: Sequence[WorkerProcess], sessions: int) -> list[int]:
    """Let all sessions talk for a while, and return the memory of each stage after that."""
    tally = Tally()
    talkers = [Talker(talk, tally, seed) for seed in range(sessions)]
    with _running(talkers):
        while tally.generations < sessions:
            _require_sound(talkers)
            time.sleep(_POLL_S)
    return [_resident(worker) for worker in serving]


@contextmanager
def _talking(talk: Talk, tally: Tally, request: SoakRequest) -> Iterator[list[Talker]]:
    talkers = [Talker(talk, tally, request.seed * 1000 + number) for number in range(request.sessions)]
    with _running(talkers):
        yield talkers
    _require_sound(talkers)


@contextmanager
def _running(talkers: Sequence[Talker]) -> Iterator[None]:
    for talker in talkers:
        talker.start()
    try:
        yield
    finally:
        for talker in talkers:
            talker.stop()
        for talker in talkers:
            talker.join(LIMIT_S)


def _inflict_all(
    planned: Sequence[Fault],
    serving: list[WorkerProcess],
    tally: Tally,
    talkers: Sequence[Talker],
    tokens: int,
) -> None:
    """Wait for the moment of each fault and let it happen, then for the last token; a wrong one ends it."""
    with console.progress(f"soaking, {len(planned)} faults", tokens, unit="tokens") as task:
        done = 0
        for fault in [*planned, None]:
            while tally.tokens < (fault.after if fault else tokens):
                _require_sound(talkers)
                if tally.wrong:
                    return
                task.advance(tally.tokens - done)
                done = tally.tokens
                time.sleep(_POLL_S)
            if fault:
                serving[fault.stage] = inflict(fault, serving[fault.stage])


def _require_sound(talkers: Sequence[Talker]) -> None:
    for talker in talkers:
        if talker.broken is not None:
            raise RouteError(
                f"a client of the soak broke: {type(talker.broken).__name__}",
                cause=str(talker.broken),
                remedy="this is a bug of the client: report it with the logs of the workers",
            ) from talker.broken


def _resident(worker: WorkerProcess) -> int:
    """Return the resident memory of a stage, in bytes."""
    return int(psutil.Process(worker.child.pid).memory_info().rss)
