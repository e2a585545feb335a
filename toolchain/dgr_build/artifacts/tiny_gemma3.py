"""Tiny models of the gemma3 family: five layers with a sliding window to one without, and a tied output."""

from __future__ import annotations

from dataclasses import dataclass

from dgr_build.artifacts.tiny_dense import feed_forward, outer_tensors, wide_heads
from dgr_build.artifacts.tiny_spec import TinySpec, f32, norm, u32

ARCH = "gemma3"


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The sizes of a gemma3 model; field names follow upstream's hyperparameters."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    window: int
    n_vocab: int = 384


# Two layers attend to everything, 5 and 11; a prompt of any length that tests use crosses the window.
SMALL = Dims(n_layer=12, n_embd=128, n_head=4, n_head_kv=1, head_dim=64, n_ff=256, window=32)
WIDE = Dims(n_layer=6, n_embd=4096, n_head=8, n_head_kv=4, head_dim=256, n_ff=1024, window=512)


def spec(dims: Dims) -> TinySpec:
    """Return the model of these sizes as data.

    As in real files, no key states which layers have the window: it is the family's pattern.
    """
    tensors = outer_tensors(dims.n_vocab, dims.n_embd, tied=True)
    for block in range(dims.n_layer):
        at = f"blk.{block}."
        tensors += wide_heads(at, dims.n_embd, dims.n_head, dims.n_head_kv, dims.head_dim)
        tensors.append(norm(at + "post_attention_norm.weight", dims.n_embd))
        tensors += feed_forward(at, dims.n_embd, dims.n_ff)
        tensors.append(norm(at + "post_ffw_norm.weight", dims.n_embd))
    keys = (
        u32("context_length", 32768),
        u32("embedding_length", dims.n_embd),
        u32("block_count", dims.n_layer),
        u32("feed_forward_length", dims.n_ff),
        u32("attention.head_count", dims.n_head),
        u32("attention.head_count_kv", dims.n_head_kv),
        u32("attention.key_length", dims.head_dim),
        u32("attention.value_length", dims.head_dim),
        u32("attention.sliding_window", dims.window),
        f32("attention.layer_norm_rms_epsilon", 1e-6),
        f32("rope.freq_base", 1000000.0),
    )
    return TinySpec(arch=ARCH, n_vocab=dims.n_vocab, keys=keys, tensors=tuple(tensors))
