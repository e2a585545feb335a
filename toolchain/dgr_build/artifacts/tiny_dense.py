"""What the tiny models of dense families have in common: embedding, output, and feed-forward layers."""

from __future__ import annotations

from dgr_build.artifacts.tiny_spec import TensorSpec, inverse_root, matrix, norm


def outer_tensors(n_vocab: int, n_embd: int, *, tied: bool) -> list[TensorSpec]:
    """Return the tensors outside the layers; `tied` makes the embedding serve as output too."""
    # A tied output needs rows of unit length; its first norm makes up for the small embedding.
    embedding = inverse_root(n_embd) if tied else 1.0
    tensors = [
        TensorSpec(
            name="token_embd.weight",
            shape=(n_vocab, n_embd),
            std=embedding,
            quantised=True,
        ),
        norm("output_norm.weight", n_embd, mean=3.0 if tied else 1.0),
    ]
    if not tied:
        tensors.append(
            TensorSpec(
                name="output.weight",
                shape=(n_vocab, n_embd),
                std=3.0 * inverse_root(n_embd),
                quantised=True,
                by_token=True,
            )
        )
    return tensors


def feed_forward(at: str, n_embd: int, n_ff: int) -> list[TensorSpec]:
    """Return a layer's feed-forward part; `at` is the layer's prefix."""
    return [
        norm(at + "ffn_norm.weight", n_embd),
        matrix(at + "ffn_gate.weight", n_ff, n_embd),
        matrix(at + "ffn_down.weight", n_embd, n_ff),
        matrix(at + "ffn_up.weight", n_ff, n_embd),
    ]


def wide_heads(at: str, n_embd: int, n_head: int, n_head_kv: int, head: int) -> list[TensorSpec]:
    """Return a layer's attention with normed heads whose size is stated, not n_embd / n_head."""
    return [
        norm(at + "attn_norm.weight", n_embd),
        matrix(at + "attn_q.weight", n_head * head, n_embd),
        matrix(at + "attn_k.weight", n_head_kv * head, n_embd),
        matrix(at + "attn_v.weight", n_head_kv * head, n_embd),
        matrix(at + "attn_output.weight", n_embd, n_head * head),
        norm(at + "attn_q_norm.weight", head),
        norm(at + "attn_k_norm.weight", head),
    ]
