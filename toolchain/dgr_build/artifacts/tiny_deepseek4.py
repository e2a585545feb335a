"""Tiny DeepSeek V4 models: the real layer plan and every kind of state, at a fraction of the width."""

from __future__ import annotations

from dataclasses import dataclass

from dgr_build.artifacts.tiny_spec import (
    Fill,
    Key,
    TensorSpec,
    TinySpec,
    array,
    f32,
    flag,
    inverse_root,
    matrix,
    norm,
    plain,
    u32,
)

ARCH = "deepseek4"
CSA_RATIO = 4  # compressed sparse attention, with an indexer
HCA_RATIO = 128  # heavily compressed attention
SQRT_SOFTPLUS = 4  # the only gating function upstream accepts for V4


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The sizes of a V4 model; field names follow upstream's hyperparameters."""

    n_layer: int
    n_layer_nextn: int
    n_hash: int
    n_embd: int
    n_head: int
    n_ff_exp: int
    n_expert: int
    n_expert_used: int
    n_vocab: int = 384
    n_expert_shared: int = 1
    head_dim: int = 128
    n_rot: int = 32
    n_lora_q: int = 64
    n_lora_o: int = 32
    n_group_o: int = 2
    window: int = 128
    hc: int = 4
    sinkhorn: int = 4
    indexer_heads: int = 2
    indexer_dim: int = 64
    indexer_top_k: int = 8
    n_dense_attention: int = 2

    def ratios(self) -> tuple[int, ...]:
        """Return each block's compression ratio: two plain layers, then CSA and HCA in turn; 0 for MTP."""
        mixed = (CSA_RATIO, HCA_RATIO)
        main = [0] * self.n_dense_attention
        main += [mixed[index % 2] for index in range(self.n_layer - self.n_dense_attention)]
        return (*main, *[0] * self.n_layer_nextn)


SMALL = Dims(
    n_layer=43, n_layer_nextn=1, n_hash=3, n_embd=128, n_head=4, n_ff_exp=64, n_expert=8, n_expert_used=2
)
WIDE = Dims(
    n_layer=4,
    n_layer_nextn=0,
    n_hash=1,
    n_embd=4096,
    n_head=8,
    n_ff_exp=8,
    n_expert=256,
    n_expert_used=6,
    n_lora_q=256,
    n_lora_o=256,
    n_group_o=4,
    n_dense_attention=1,
)


def spec(dims: Dims) -> TinySpec:
    """Return the model of these sizes as data."""
    tensors = [
        TensorSpec(name="token_embd.weight", shape=(dims.n_vocab, dims.n_embd), std=1.0, quantised=True),
        norm("output_norm.weight", dims.n_embd),
        TensorSpec(
            name="output.weight",
            shape=(dims.n_vocab, dims.n_embd),
            std=3.0 * inverse_root(dims.n_embd),
            quantised=True,
            by_token=True,
        ),
        plain(
            "output_hc_fn.weight", (dims.hc, dims.hc * dims.n_embd), std=inverse_root(dims.hc * dims.n_embd)
        ),
        plain("output_hc_base.weight", (dims.hc,), std=0.5),
        plain("output_hc_scale.weight", (1,), std=0.1, mean=1.0),
    ]
    for block, ratio in enumerate(dims.ratios()):
        tensors += _attention(dims, block, ratio)
        tensors += _connections(dims, block)
        tensors += _experts(dims, block)
        if block >= dims.n_layer:
            tensors += _nextn(dims, block)
    return TinySpec(arch=ARCH, n_vocab=dims.n_vocab, keys=_keys(dims), tensors=tuple(tensors))


def _keys(dims: Dims) -> tuple[Key, ...]:
    return (
        u32("context_length", 65536),
        u32("vocab_size", dims.n_vocab),
        u32("embedding_length", dims.n_embd),
        u32("block_count", dims.n_layer + dims.n_layer_nextn),
        u32("nextn_predict_layers", dims.n_layer_nextn),
        u32("attention.head_count", dims.n_head),
        u32("attention.head_count_kv", 1),
        u32("attention.key_length", dims.head_dim),
        u32("attention.value_length", dims.head_dim),
        f32("attention.layer_norm_rms_epsilon", 1e-6),
        u32("attention.q_lora_rank", dims.n_lora_q),
        u32("attention.sliding_window", dims.window),
        u32("attention.indexer.head_count", dims.indexer_heads),
        u32("attention.indexer.key_length", dims.indexer_dim),
        u32("attention.indexer.top_k", dims.indexer_top_k),
        u32("attention.output_group_count", dims.n_group_o),
        u32("attention.output_lora_rank", dims.n_lora_o),
        f32("attention.compress_rope_freq_base", 160000.0),
        array("attention.compress_ratios", dims.ratios()),
        u32("rope.dimension_count", dims.n_rot),
        f32("rope.freq_base", 10000.0),
        u32("expert_count", dims.n_expert),
        u32("expert_used_count", dims.n_expert_used),
        u32("expert_shared_count", dims.n_expert_shared),
        u32("expert_feed_forward_length", dims.n_ff_exp),
        u32("expert_gating_func", SQRT_SOFTPLUS),
        f32("expert_weights_scale", 1.5),
        flag("expert_weights_norm", value=True),
        f32("swiglu_clamp_exp", 10.0),
        u32("hyper_connection.count", dims.hc),
        u32("hyper_connection.sinkhorn_iterations", dims.sinkhorn),
        f32("hyper_connection.epsilon", 1e-6),
        u32("hash_layer_count", dims.n_hash),
    )


def _attention(dims: Dims, block: int, ratio: int) -> list[TensorSpec]:
    at = f"blk.{block}."
    width = dims.n_head * dims.head_dim
    tensors = [
        norm(at + "attn_norm.weight", dims.n_embd),
        plain(at + "attn_sinks.weight", (dims.n_head,), std=0.5),
        matrix(at + "attn_q_a.weight", dims.n_lora_q, dims.n_embd),
        norm(at + "attn_q_a_norm.weight", dims.n_lora_q),
        matrix(at + "attn_q_b.weight", width, dims.n_lora_q),
        matrix(at + "attn_kv.weight", dims.head_dim, dims.n_embd),
        # Keys and values are one: a norm above 1 sharpens attention, so single early tokens matter.
        norm(at + "attn_kv_a_norm.weight", dims.head_dim, mean=2.0),
        matrix(at + "attn_output_a.weight", dims.n_lora_o * dims.n_group_o, width // dims.n_group_o),
        matrix(at + "attn_output_b.weight", dims.n_embd, dims.n_lora_o * dims.n_group_o),
    ]
    if ratio == 0:
        return tensors
    streams = 2 if ratio == CSA_RATIO else 1  # CSA blocks overlap: each position feeds two of them
    tensors += [
        matrix(at + "attn_compressor_kv.weight", streams * dims.head_dim, dims.n_embd),
        matrix(at + "attn_compressor_gate.weight", streams * dims.head_dim, dims.n_embd),
        plain(at + "attn_compressor_ape.weight", (ratio, streams * dims.head_dim), std=0.5),
        norm(at + "attn_compressor_norm.weight", dims.head_dim, mean=2.0),
    ]
    if ratio == CSA_RATIO:
        tensors += [
            matrix(at + "indexer.proj.weight", dims.indexer_heads, dims.n_embd),
            matrix(at + "indexer.attn_q_b.weight", dims.indexer_heads * dims.indexer_dim, dims.n_lora_q),
            matrix(at + "indexer_compressor_kv.weight", 2 * dims.indexer_dim, dims.n_embd),
            matrix(at + "indexer_compressor_gate.weight", 2 * dims.indexer_dim, dims.n_embd),
            plain(at + "indexer_compressor_ape.weight", (ratio, 2 * dims.indexer_dim), std=0.5),
            norm(at + "indexer_compressor_norm.weight", dims.indexer_dim),
        ]
    return tensors


def _connections(dims: Dims, block: int) -> list[TensorSpec]:
    wide = dims.hc * dims.n_embd
    mixes = (2 + dims.hc) * dims.hc
    tensors = []
    for part in ("attn", "ffn"):
        at = f"blk.{block}.hc_{part}_"
        tensors += [
            plain(at + "fn.weight", (mixes, wide), std=inverse_root(wide)),
            plain(at + "base.weight", (mixes,), std=1.0),
            plain(at + "scale.weight", (3,), std=0.1, mean=0.7),
        ]
    return tensors


def _experts(dims: Dims, block: int) -> list[TensorSpec]:
    at = f"blk.{block}."
    tensors = [
        norm(at + "ffn_norm.weight", dims.n_embd),
        plain(at + "ffn_gate_inp.weight", (dims.n_expert, dims.n_embd), std=inverse_root(dims.n_embd)),
    ]
    if block < dims.n_hash:
        tensors.append(
            TensorSpec(
                name=at + "ffn_gate_tid2eid.weight",
                shape=(dims.n_vocab, dims.n_expert_used),
                fill=Fill.EXPERT_IDS,
                choices=dims.n_expert,
            )
        )
    else:
        tensors.append(plain(at + "exp_probs_b.bias", (dims.n_expert,), std=0.1))
    shared = dims.n_ff_exp * dims.n_expert_shared
    return [
        *tensors,
        matrix(at + "ffn_gate_exps.weight", dims.n_ff_exp, dims.n_embd, experts=dims.n_expert),
        matrix(at + "ffn_down_exps.weight", dims.n_embd, dims.n_ff_exp, experts=dims.n_expert),
        matrix(at + "ffn_up_exps.weight", dims.n_ff_exp, dims.n_embd, experts=dims.n_expert),
        matrix(at + "ffn_gate_shexp.weight", shared, dims.n_embd),
        matrix(at + "ffn_down_shexp.weight", dims.n_embd, shared),
        matrix(at + "ffn_up_shexp.weight", shared, dims.n_embd),
    ]


def _nextn(dims: Dims, block: int) -> list[TensorSpec]:
    at = f"blk.{block}.nextn."
    return [
        matrix(at + "eh_proj.weight", dims.n_embd, 2 * dims.n_embd),
        norm(at + "enorm.weight", dims.n_embd),
        norm(at + "hnorm.weight", dims.n_embd),
    ]
