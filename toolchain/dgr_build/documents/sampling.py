"""How the tail chooses tokens: greedily, or by chance that a seed decides."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from dgr_build.documents.base import Document

_MOST = 1 << 20
_Penalty = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]


class Sampling(Document):
    """What is done with the logits, in this order: penalties, top_k, top_p, min_p, temperature, draw.

    Attributes:
        temperature: logits are divided by it; 0 is greedy, the lowest id among the maxima.
        top_k: candidates kept; 0 for all.
        top_p: probability mass kept, at temperature 1; 1 for all.
        min_p: least probability kept, as a share of the largest; 0 for all.
        penalty_window: last positions, the prompt's too, whose token ids are penalised.
        repetition_penalty: divides positive logits of these ids, multiplies others; 1 for none.
        frequency_penalty: taken from the logit for each time an id is in the window.
        presence_penalty: taken once from the logit of each id in the window.
        seed: the draw for a token is a function of it and of the token's absolute position.
    """

    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.0
    top_k: Annotated[int, Field(ge=0, le=_MOST)] = 0
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    penalty_window: Annotated[int, Field(ge=0, le=_MOST)] = 64
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10, allow_inf_nan=False)] = 1.0
    frequency_penalty: _Penalty = 0.0
    presence_penalty: _Penalty = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0

    @model_validator(mode="after")
    def _warm_or_greedy(self) -> Self:
        if 0 < self.temperature < 0.001:  # noqa: PLR2004 - logits would overflow
            raise ValueError("temperature: 0 for greedy, or 0.001 to 100")
        return self

    @model_validator(mode="after")
    def _penalties_look_at_something(self) -> Self:
        if self.penalises and self.penalty_window == 0:
            raise ValueError("penalty_window: a penalty needs a window of 1 to 1048576 positions")
        return self

    @property
    def penalises(self) -> bool:
        """Whether any penalty is on."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0

    @property
    def is_plain(self) -> bool:
        """The most likely token of the model itself: what is done where nothing else is asked for."""
        return self.temperature == 0 and not self.penalises

    def to_text(self) -> str:
        """Return what differs from the defaults, for a person."""
        if self.is_plain:
            return "greedy"
        said = self.model_dump(exclude_defaults=True)
        return ", ".join(f"{name} {value}" for name, value in said.items())
