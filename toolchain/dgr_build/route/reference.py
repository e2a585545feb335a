"""The reference program: the whole model on the unmodified base library, with equal numerics."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dgr_build.errors import RouteError
from dgr_build.process import run
from dgr_build.workspace import staging

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dgr_build.documents.recipe import Recipe
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """What the unsplit model gives.

    Args:
        tokens: chosen greedily, one after the prompt and one after each step.
        logits: of every prompt row and every step, [rows, n_vocab].
        prompt_us: time for the prompt.
        decode_us: time for the steps.
        command: what was run.
    """

    tokens: list[int]
    logits: NDArray[np.float32]
    prompt_us: int
    decode_us: int
    command: str


@dataclass(frozen=True, kw_only=True)
class WholeJob:
    """What to run on the unsplit model.

    Args:
        program: the reference program.
        model: the GGUF, or its first part.
        recipe: context and numerics.
        prompt: token ids, run in frames of n_ubatch.
        steps: greedy steps after the prompt.
    """

    program: Path
    model: Path
    recipe: Recipe
    prompt: Sequence[int]
    steps: int


def run_whole(ws: Workspace, job: WholeJob) -> WholeRun:
    """Run a prompt and greedy steps on the unsplit model.

    Raises:
        RouteError: the program fails, its words are in the cause; or its result cannot be read.
    """
    numerics = job.recipe.numerics
    with staging(ws.root / "run", "reference") as folder:
        tokens, logits = folder / "tokens", folder / "logits"
        tokens.write_bytes(np.asarray(job.prompt, dtype="<i4").tobytes())
        options = {
            "model": job.model,
            "tokens": tokens,
            "n-prompt": len(job.prompt),
            "n-decode": job.steps,
            "n-ubatch": numerics.n_ubatch,
            "n-ctx": job.recipe.n_ctx,
            "threads": numerics.n_threads,
            "threads-batch": numerics.n_threads_batch,
            "flash-attn": numerics.flash_attn,
            "type-k": numerics.type_k,
            "type-v": numerics.type_v,
            "logits": logits,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        done = run([job.program, *words, "--json"])
        if done.returncode != 0:
            raise RouteError(
                "the reference program failed",
                cause=done.stderr.strip() or f"exit code {done.returncode}",
                remedy=f"run it by hand: {done.command}",
            )
        try:
            said = json.loads(done.stdout)
            return WholeRun(
                tokens=list(said["tokens"]),
                logits=np.fromfile(logits, dtype="<f4").reshape(-1, said["n_vocab"]),
                prompt_us=int(said["prompt_us"]),
                decode_us=int(said["decode_us"]),
                command=done.command,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RouteError(
                "the reference program gave no result that can be read",
                cause=f"{type(error).__name__}: {error}",
                remedy=f"build it anew with dgr-build lane {job.recipe.stages[0].lane}, "
                f"or run it by hand: {done.command}",
            ) from error
