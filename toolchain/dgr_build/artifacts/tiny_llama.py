"""Tiny dense models of the llama family, with an own or a tied output."""

from __future__ import annotations

from dataclasses import dataclass

from dgr_build.artifacts.tiny_dense import feed_forward, outer_tensors
from dgr_build.artifacts.tiny_spec import TinySpec, f32, matrix, norm, u32

ARCH = "llama"


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The sizes of a llama model; field names follow upstream's hyperparameters."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    n_ff: int
    n_vocab: int = 384


SMALL = Dims(n_layer=12, n_embd=128, n_head=4, n_head_kv=2, n_ff=256)
WIDE = Dims(n_layer=4, n_embd=4096, n_head=32, n_head_kv=4, n_ff=1024)


def spec(dims: Dims, *, tied: bool = False) -> TinySpec:
    """Return the model of these sizes as data; `tied` makes the embedding serve as output too."""
    head = dims.n_embd // dims.n_head
    tensors = outer_tensors(dims.n_vocab, dims.n_embd, tied=tied)
    for block in range(dims.n_layer):
        at = f"blk.{block}."
        tensors += [
            norm(at + "attn_norm.weight", dims.n_embd),
            matrix(at + "attn_q.weight", dims.n_embd, dims.n_embd, gain=1.5),
            matrix(at + "attn_k.weight", dims.n_head_kv * head, dims.n_embd, gain=1.5),
            matrix(at + "attn_v.weight", dims.n_head_kv * head, dims.n_embd),
            matrix(at + "attn_output.weight", dims.n_embd, dims.n_embd),
        ]
        tensors += feed_forward(at, dims.n_embd, dims.n_ff)
    keys = (
        u32("context_length", 65536),
        u32("vocab_size", dims.n_vocab),
        u32("embedding_length", dims.n_embd),
        u32("block_count", dims.n_layer),
        u32("feed_forward_length", dims.n_ff),
        u32("attention.head_count", dims.n_head),
        u32("attention.head_count_kv", dims.n_head_kv),
        f32("attention.layer_norm_rms_epsilon", 1e-5),
        u32("rope.dimension_count", head),
        f32("rope.freq_base", 10000.0),
    )
    return TinySpec(arch=ARCH, n_vocab=dims.n_vocab, keys=keys, tensors=tuple(tensors))
