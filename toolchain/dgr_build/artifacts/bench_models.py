"""Models to measure with: made like the tiny ones, but as heavy, or as light, as a benchmark needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.artifacts.storage import models_root
from dgr_build.artifacts.tiny import provide_at
from dgr_build.documents.recipe import TinyModel

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.artifacts.tiny_llama import Dims

# Raised whenever the bytes of a model here change.
_GENERATION = 1
_REQUEST = TinyModel(arch="llama", dtype="q8_0")


@dataclass(frozen=True, kw_only=True)
class BenchModel:
    """A dense model of the llama family, stored as Q8_0; equal sizes give equal bytes.

    Args:
        name: what it is called.
        n_layer: its layers.
        n_embd: its width.
        n_head: its heads.
        n_head_kv: of keys and values.
        n_ff: the width of its feed-forward layers.
    """

    name: str
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    n_ff: int

    def dims(self) -> Dims:
        """Return its sizes as its maker takes them."""
        from dgr_build.artifacts.tiny_llama import Dims  # noqa: PLC0415 - slow to load, needed once

        return Dims(
            n_layer=self.n_layer,
            n_embd=self.n_embd,
            n_head=self.n_head,
            n_head_kv=self.n_head_kv,
            n_ff=self.n_ff,
        )


# About 1 GB and well over 20 ms a token on one thread: what a hop costs is a small part of it.
HEAVY = BenchModel(name="heavy", n_layer=24, n_embd=2048, n_head=16, n_head_kv=2, n_ff=5120)
# An eighth of it, for a look that takes minutes.
LIGHT = BenchModel(name="light", n_layer=12, n_embd=1024, n_head=8, n_head_kv=1, n_ff=2560)
# Hardly anything to compute for a boundary of 4 KiB a row.
SEAM = BenchModel(name="seam", n_layer=2, n_embd=1024, n_head=8, n_head_kv=1, n_ff=32)


def bench_model_path(model: BenchModel) -> Path:
    """Return where a model is kept."""
    return models_root() / "bench" / f"{_REQUEST.arch}-{model.name}-{_REQUEST.dtype}-g{_GENERATION}.gguf"


def provide_bench_model(model: BenchModel) -> Artifact:
    """Return a model, verified; it is made where it is not there yet.

    Raises:
        ArtifactError: the models root leads under /home.
        HostError: there is not enough space.
    """
    from dgr_build.artifacts.tiny_llama import spec  # noqa: PLC0415 - slow to load, needed once

    return provide_at(_REQUEST, bench_model_path(model), spec=spec(model.dims()))
