"""Where a model can be cut, how to cut it evenly, and whether a recipe's stages fit an artifact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.errors import UsageError

if TYPE_CHECKING:
    from dgr_build.documents.artifact import ArtifactManifest
    from dgr_build.documents.recipe import Recipe

# Families that the patch stack can run in ranges.
STAGED = ("deepseek4", "llama", "qwen3", "gemma3")
# Upstream's draft head for V4 reads the outputs of the last main layers; one stage must own them all.
_DRAFT_TAPS = 3


@dataclass(frozen=True, kw_only=True)
class Range:
    """Main layers first <= layer < last."""

    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A place between two layers where a model can be divided.

    Attributes:
        at: the first layer after the cut.
        draft_head: a route with this cut can carry the draft head later.
    """

    at: int
    draft_head: bool


def even_cuts(n_layer: int, n_stages: int) -> tuple[Range, ...]:
    """Divide `n_layer` layers among `n_stages` stages; sizes differ by one at most, larger ones first.

    Raises:
        UsageError: there are fewer layers than stages, or no stage at all.
    """
    if not 1 <= n_stages <= n_layer:
        raise UsageError(
            f"{n_layer} layers cannot be divided among {n_stages} stages",
            cause="each stage owns at least one layer",
            remedy=f"choose 1 to {n_layer} stages",
        )
    size, larger = divmod(n_layer, n_stages)
    ranges = []
    first = 0
    for stage in range(n_stages):
        last = first + size + (stage < larger)
        ranges.append(Range(first=first, last=last))
        first = last
    return tuple(ranges)


def legal_cuts(manifest: ArtifactManifest) -> tuple[Cut, ...]:
    """Return every place where this model can be cut; none for a family that runs only whole."""
    if manifest.arch not in STAGED:
        return ()
    taps = _DRAFT_TAPS if manifest.n_layer_nextn else 0
    return tuple(
        Cut(at=layer, draft_head=layer <= manifest.n_layer - taps) for layer in range(1, manifest.n_layer)
    )


def check_placement(recipe: Recipe, manifest: ArtifactManifest) -> None:
    """Check that a recipe's stages and cache fit an artifact.

    That stages join without gap or overlap the recipe checks itself.

    Raises:
        UsageError: the last stage ends elsewhere than the model, a cut is not legal, or the cache types do
            not suit the family; the legal choice is named.
    """
    end = recipe.stages[-1].last
    if end != manifest.n_layer:
        raise UsageError(
            f"recipe {recipe.name}: stage {recipe.stages[-1].name} ends at layer {end}",
            cause=f"the model has {manifest.n_layer} main layers, and the stages must cover them all",
            remedy=f"let the last stage end at {manifest.n_layer}",
        )
    legal = {cut.at for cut in legal_cuts(manifest)}
    for stage in recipe.stages[1:]:
        if stage.first not in legal:
            raise UsageError(
                f"recipe {recipe.name}: {manifest.arch} cannot be cut before layer {stage.first}",
                cause=f"families that run in ranges: {', '.join(STAGED)}",
                remedy="use one stage for the whole model",
            )
    numerics = recipe.numerics
    if manifest.arch == "deepseek4" and numerics.type_k != numerics.type_v:
        raise UsageError(
            f"recipe {recipe.name}: type_k is {numerics.type_k} and type_v is {numerics.type_v}",
            cause="deepseek4 keeps keys and values as one",
            remedy=f'set type_v = "{numerics.type_k}"',
        )
