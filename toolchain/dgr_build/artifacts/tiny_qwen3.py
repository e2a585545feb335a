"""Tiny dense models of the qwen3 family: normed queries and keys, heads of a size of their own."""

from __future__ import annotations

from dataclasses import dataclass

from dgr_build.artifacts.tiny_dense import feed_forward, outer_tensors, wide_heads
from dgr_build.artifacts.tiny_spec import TinySpec, f32, u32

ARCH = "qwen3"


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The sizes of a qwen3 model; field names follow upstream's hyperparameters."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_vocab: int = 384


SMALL = Dims(n_layer=8, n_embd=128, n_head=4, n_head_kv=2, head_dim=64, n_ff=256)
WIDE = Dims(n_layer=4, n_embd=4096, n_head=32, n_head_kv=4, head_dim=128, n_ff=1024)


def spec(dims: Dims, *, tied: bool = False) -> TinySpec:
    """Return the model of these sizes as data; `tied` makes the embedding serve as output too."""
    tensors = outer_tensors(dims.n_vocab, dims.n_embd, tied=tied)
    for block in range(dims.n_layer):
        at = f"blk.{block}."
        tensors += wide_heads(at, dims.n_embd, dims.n_head, dims.n_head_kv, dims.head_dim)
        tensors += feed_forward(at, dims.n_embd, dims.n_ff)
    keys = (
        u32("context_length", 40960),
        u32("embedding_length", dims.n_embd),
        u32("block_count", dims.n_layer),
        u32("feed_forward_length", dims.n_ff),
        u32("attention.head_count", dims.n_head),
        u32("attention.head_count_kv", dims.n_head_kv),
        u32("attention.key_length", dims.head_dim),
        u32("attention.value_length", dims.head_dim),
        f32("attention.layer_norm_rms_epsilon", 1e-6),
        f32("rope.freq_base", 1000000.0),
    )
    return TinySpec(arch=ARCH, n_vocab=dims.n_vocab, keys=keys, tensors=tuple(tensors))
