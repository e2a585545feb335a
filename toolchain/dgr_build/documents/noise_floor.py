"""A measured noise floor: how far apart right computations of the same logits are."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import Field

from dgr_build.documents.base import Document, Sha1, Sha256

Error = Annotated[float, Field(ge=0)]


class NoiseFloor(Document):
    """What was measured, on what.

    Attributes:
        schema_version: of this document.
        measured_at: when it began, UTC.
        seconds: what it took.
        lane: whose reference program computed.
        reference_sha256: of that program.
        pin_tree: what it was built from.
        artifacts: digest of each model, by recipe.
        cpu: the processor.
        nmse: normalised mean square error of all logits of a prompt against those of the recipe's own ones,
            by recipe and by what of the numerics was otherwise.
    """

    schema_version: Literal[1] = 1
    measured_at: dt.datetime
    seconds: Annotated[float, Field(ge=0)]
    lane: str
    reference_sha256: Sha256
    pin_tree: Sha1
    artifacts: dict[str, Sha256]
    cpu: str
    nmse: dict[str, dict[str, Error]]

    def highest(self) -> dict[str, float]:
        """Return the floor of each recipe's model: the largest error of them all."""
        return {recipe: max(errors.values()) for recipe, errors in self.nmse.items()}
