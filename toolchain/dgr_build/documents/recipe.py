"""A recipe: which model, cut how, placed on which lanes, computed how. All of it is data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from dgr_build.documents.base import Document, Sha256, digest, load_toml, parse
from dgr_build.documents.sampling import Sampling
from dgr_build.documents.tls import Tls
from dgr_build.errors import UsageError

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]

MAX_PARTS = 999
_UNQUANTISED = ("f32", "f16", "bf16")
# Families that tiny models are made of.
Family = Literal["deepseek4", "llama", "qwen3", "gemma3"]


class TinyModel(Document):
    """A tiny model that the project makes itself; equal values give equal bytes.

    Attributes:
        arch: the model family.
        profile: `small` runs in milliseconds; `wide` has the real model's width and experts but few layers.
        dtype: how matrices are stored.
        seed: selects the weights.
        split: number of GGUF parts, 1 for a whole file.
        tied: the embedding serves as output too (llama and qwen3; gemma3 has it so anyway).
    """

    arch: Family
    profile: Literal["small", "wide"] = "small"
    dtype: Literal["f32", "q8_0"] = "f32"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    split: Annotated[int, Field(ge=1, le=MAX_PARTS)] = 1
    tied: bool = False

    @model_validator(mode="after")
    def _tied_is_a_choice(self) -> Self:
        if self.tied and self.arch not in ("llama", "qwen3"):
            raise ValueError(f"tied: {self.arch} leaves no choice; llama and qwen3 do")
        return self

    @property
    def stem(self) -> str:
        """The file name, without suffix, under which the model is kept."""
        tied = "-tied" if self.tied else ""
        return f"{self.arch}-{self.profile}{tied}-{self.dtype}-seed{self.seed}"


class ModelFile(Document):
    """A GGUF that lies on this machine already.

    Attributes:
        path: the file, or the first part of a split one.
        digest: the artifact digest that it must have.
    """

    path: Path
    digest: Sha256


class Model(Document):
    """The model of a recipe: exactly one of the two."""

    tiny: TinyModel | None = None
    file: ModelFile | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.tiny is None) == (self.file is None):
            raise ValueError("state either [model.tiny] or [model.file]")
        return self

    @property
    def identity(self) -> TinyModel | Sha256 | None:
        """What tells it from other models, wherever its file lies."""
        return self.file.digest if self.file is not None else self.tiny


class Stage(Document):
    """One worker's share: the main layers first <= layer < last, on one lane."""

    name: Name
    first: Annotated[int, Field(ge=0)]
    last: Annotated[int, Field(ge=1)]
    lane: Name = "cpu"

    @model_validator(mode="after")
    def _owns_a_layer(self) -> Self:
        if self.last <= self.first:
            raise ValueError(f"stage {self.name}: [{self.first}, {self.last}) holds no layer")
        return self


class Numerics(Document):
    """What a recipe decides about bits; lane and hardware decide the rest, and the worker reports it.

    Attributes:
        n_ubatch: most rows of a frame; n_batch is the same, since a frame is one ubatch.
        n_threads: threads that decode one row.
        n_threads_batch: threads that compute several rows.
        flash_attn: stated, never `auto`: stages on unlike hardware would choose differently.
        type_k: type of the K cache.
        type_v: type of the V cache.
    """

    n_ubatch: Annotated[int, Field(ge=1, le=65536)] = 64
    n_threads: Annotated[int, Field(ge=1, le=1024)] = 1
    n_threads_batch: Annotated[int, Field(ge=1, le=1024)] = 1
    flash_attn: Literal["on", "off"] = "off"
    type_k: CacheType = "f16"
    type_v: CacheType = "f16"

    @model_validator(mode="after")
    def _quantised_values_need_flash(self) -> Self:
        if self.flash_attn == "off" and self.type_v not in _UNQUANTISED:
            raise ValueError(f'type_v: {self.type_v} needs flash_attn = "on"')
        return self

    def digest(self) -> str:
        """Return the sha256 that two sides compare where exactness is asked."""
        return digest(self.model_dump(mode="json"))


class Recipe(Document):
    """A route as data.

    Attributes:
        name: what the recipe is called; the file is called the same.
        purpose: one sentence for a person who chooses.
        model: which artifact.
        stages: from head to tail; together they cover every main layer once.
        n_ctx: tokens that one session can hold.
        n_slots: sessions at a time.
        mode: `exact` runs one frame a decode, so bits equal the unsplit model's; all stages are on one lane.
            `mixed` too, but stages may be on unlike lanes: logits come near the unsplit model's only.
            `throughput` joins frames of several sessions in a decode; a session alone gets exact bits,
            sessions beside each other come near to them.
        boundary: type of the residual between stages.
        results: `direct` from the tail to the client, or `chain` back through the stages.
        numerics: everything the recipe decides about bits.
        sampling: how the tail chooses tokens.
        tls: certificates of its workers and its client; without them they speak plaintext on loopback.
    """

    name: Name
    purpose: str
    model: Model
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    n_ctx: Annotated[int, Field(ge=1)] = 512
    n_slots: Annotated[int, Field(ge=1, le=256)] = 1
    mode: Literal["exact", "mixed", "throughput"] = "exact"
    boundary: Literal["f32"] = "f32"
    results: Literal["direct", "chain"] = "direct"
    numerics: Numerics = Numerics()
    sampling: Sampling = Sampling()
    tls: Tls | None = None

    @model_validator(mode="after")
    def _stages_join(self) -> Self:
        names = [stage.name for stage in self.stages]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"stages: the name {doubled[0]} is used twice")
        expected = 0
        for stage in self.stages:
            if stage.first != expected:
                what = "overlaps the stage before" if stage.first < expected else "leaves a gap before"
                raise ValueError(f"stage {stage.name}: first is {stage.first}, {expected} expected ({what})")
            expected = stage.last
        return self

    @model_validator(mode="after")
    def _exact_on_one_lane(self) -> Self:
        lanes = sorted({stage.lane for stage in self.stages})
        if self.mode != "mixed" and len(lanes) > 1:
            raise ValueError(
                f'mode: stages on {" and ".join(lanes)} cannot be {self.mode}; state mode = "mixed"'
            )
        return self

    @property
    def worker_mode(self) -> Literal["exact", "throughput"]:
        """How its workers fill a call of the library."""
        return "throughput" if self.mode == "throughput" else "exact"

    def placed(self, lanes: tuple[str, ...]) -> Recipe:
        """Return the recipe with its stages on other lanes.

        Args:
            lanes: one for all stages, or one for each.

        Raises:
            UsageError: there is neither one lane nor one for each stage.
        """
        if len(lanes) not in {1, len(self.stages)}:
            raise UsageError(
                f"{len(lanes)} lanes for the {len(self.stages)} stages of recipe {self.name}",
                remedy="give one lane for all stages, or one for each, from head to tail",
            )
        each = lanes * len(self.stages) if len(lanes) == 1 else lanes
        moved = tuple(
            stage.model_copy(update={"lane": lane}) for stage, lane in zip(self.stages, each, strict=True)
        )
        alike = self.mode if self.mode != "mixed" else "exact"
        return self.model_copy(update={"stages": moved, "mode": alike if len(set(each)) == 1 else "mixed"})

    def sampled(self, changes: Mapping[str, object]) -> Recipe:
        """Return the recipe with some values of its sampling changed.

        Raises:
            UsageError: one is out of its range, or would have no effect.
        """
        data = {**self.sampling.model_dump(), **changes}
        sampling = parse(data, Sampling, f"the sampling of recipe {self.name}")
        idle = [name for name in ("top_k", "top_p", "min_p", "seed") if name in changes]
        if idle and sampling.temperature == 0:
            raise UsageError(
                f"{' and '.join(idle)} without a temperature would have no effect",
                cause="at temperature 0 the most likely token is taken",
                remedy="give a temperature too, such as 0.8",
            )
        return self.model_copy(update={"sampling": sampling})

    @model_validator(mode="after")
    def _frame_fits_context(self) -> Self:
        if self.numerics.n_ubatch > self.n_ctx:
            raise ValueError(f"numerics.n_ubatch {self.numerics.n_ubatch} is more than n_ctx {self.n_ctx}")
        return self

    def digest(self) -> str:
        """Return the sha256 of the recipe's canonical form; where certificates lie is no part of it."""
        plain = {"sampling"} if self.sampling == Sampling() else set()  # as before recipes could sample
        return digest(self.model_dump(mode="json", exclude={"tls"} | plain))


def load_recipe(path: Path) -> Recipe:
    """Read a recipe. Names of certificates are meant from its folder.

    Raises:
        UsageError: the file is missing or a field is wrong; each wrong field is named.
    """
    recipe = load_toml(path, Recipe)
    if recipe.tls is None:
        return recipe
    return recipe.model_copy(update={"tls": recipe.tls.seen_from(path.parent)})
