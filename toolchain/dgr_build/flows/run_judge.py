"""What the logits of a run are held against: the whole model's bits, or how near a lane must come to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dgr_build.errors import CheckError, UsageError
from dgr_build.route.parity import compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dgr_build.documents.matrix import Matrix
    from dgr_build.documents.recipe import Recipe
    from dgr_build.flows.run_outcome import RunOutcome


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What a run's logits are held against.

    Args:
        lane: whose reference program gives the other logits.
        nmse: the highest error, 0 where every bit must be the same.
    """

    lane: str
    nmse: float


def judge_of(matrix: Matrix, recipe: Recipe) -> Judge:
    """Return what the logits of a recipe are held against, by the lanes of its stages.

    Raises:
        UsageError: a lane states no limit for this family of models.
    """
    lanes = list(dict.fromkeys(stage.lane for stage in recipe.stages))
    near = [one for lane in lanes if (one := matrix.find(lane).closeness) is not None]
    if not near:
        return Judge(lane=lanes[0], nmse=0.0)
    family = recipe.model.tiny.arch if recipe.model.tiny is not None else ""
    limits = [one.nmse[family] for one in near if family in one.nmse]
    if not limits:
        raise UsageError(
            f"lanes {', '.join(lanes)} state no limit for the model of recipe {recipe.name}",
            cause="how near its logits must come to the whole model's is measured for each family",
            remedy="run it without --compare",
        )
    return Judge(lane=near[0].against, nmse=max(limits))


def judged(outcome: RunOutcome, judge: Judge, ids: Sequence[int], logits: NDArray[np.float32]) -> RunOutcome:
    """Return a run with how it compares with another one of the same prompt.

    Args:
        outcome: the run.
        judge: how near the other one must be.
        ids: what the other one generated.
        logits: of its every row, [rows, n_vocab].

    Raises:
        CheckError: they are not what they have to be, or they prove nothing.
    """
    # Where bits may differ, tokens may part; from there on the two sides follow different texts.
    common = _common(outcome.token_ids, ids, len(outcome.prompt_ids)) if judge.nmse else None
    parity = compare(outcome.logits[:common], logits[:common])
    outcome = replace(outcome, parity=parity, whole_ids=tuple(ids))
    limit = judge.nmse
    exact = parity.sound and outcome.whole_ids == outcome.token_ids
    if parity.near(limit) if limit else exact:
        return outcome
    said = f"an error of {limit:g} is allowed" if limit else "they must be the same bits"
    raise CheckError(
        f"the route of {outcome.recipe} does not give the whole model's logits",
        cause=f"{said}; error {parity.nmse:g}, max |d| {parity.max_abs_diff:g} from row {parity.first_row} "
        f"of {parity.rows}, finite: {parity.finite}, varied: {parity.varied}, "
        f"tokens {'equal' if outcome.whole_ids == outcome.token_ids else 'differ'}",
        remedy="compare the numerics that the workers' Describe states with the recipe's",
    )


def _common(ours: Sequence[int], theirs: Sequence[int], n_prompt: int) -> int:
    """Return how many rows followed the same tokens: those of the prompt, and up to where they part."""
    same = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(ours) - 1)
    return n_prompt + same
