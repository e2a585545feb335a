"""Whether running stages are the route that is meant: joined without gaps, and as the recipe has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build.errors import RouteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.documents.recipe import Numerics
    from dgr_build.route.session import StageLink


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the stages of a route have to be.

    Args:
        artifact_digest: hex digest of the model's manifest.
        ranges: first layer and one past the last of every stage, from head to tail.
        lane_digests: of every stage, from head to tail.
        numerics: what the recipe decides about bits.
        mixed: stages may differ in what lane and hardware decide about bits.
        mode: `exact`, or `throughput` where workers join frames of several sessions.
    """

    artifact_digest: str
    ranges: tuple[tuple[int, int], ...]
    lane_digests: tuple[str, ...]
    numerics: Numerics
    mixed: bool = False
    mode: str = "exact"


def require_route(stages: Sequence[StageLink], expected: Expected | None) -> None:
    """Check the stages of a route before a session is opened; what only they can judge they refuse at open.

    Raises:
        RouteError: the first stage that does not belong where it is, with what it has and should have.
    """
    layer = 0
    for stage in stages:
        _require(stage, "first layer", stage.layers[0], layer)
        layer = stage.layers[1]
    _require(stages[-1], "last layer", layer, stages[-1].about.artifact.n_layer)
    if expected is None:
        return
    if len(stages) != len(expected.ranges):
        raise RouteError(
            f"the route has {len(stages)} stages",
            cause=f"the recipe has {len(expected.ranges)}",
            remedy="give one address for each stage, from head to tail",
        )
    for stage, layers, lane in zip(stages, expected.ranges, expected.lane_digests, strict=True):
        _require(stage, "layers", stage.layers, layers)
        _require(stage, "artifact", stage.about.artifact.digest, expected.artifact_digest)
        _require(stage, "lane digest", stage.about.build.lane_digest, lane)
        _require(stage, "mode", stage.about.mode, expected.mode)
        for name, value in _facts(expected.numerics).items():
            _require(stage, f"numerics.{name}", getattr(stage.about.numerics, name), value)


def _facts(numerics: Numerics) -> dict[str, Any]:
    """Return the recipe's numerics under the names of the wire."""
    return {**numerics.model_dump(), "flash_attn": numerics.flash_attn == "on"}


def _require(stage: StageLink, what: str, has: object, should: object) -> None:
    if has != should:
        raise RouteError(
            f"{stage.name} is not the stage that is expected there",
            cause=f"its {what} is {has}, {should} was expected",
            remedy="start its worker with the settings of the recipe, from this build",
        )
