"""The tiny vocabulary: any UTF-8 text goes in and comes out whole."""

from __future__ import annotations

import pytest
from gguf import GGUFReader
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.artifacts import tiny_deepseek4
from dgr_build.artifacts.tiny import make_tiny
from dgr_build.artifacts.tokenizer import BOS, EOS, SPACE, UNK, TokenType, vocabulary
from dgr_build.documents.recipe import TinyModel

_TOKENS = vocabulary(384)
_IDS = {token.text: number for number, token in enumerate(_TOKENS) if token.kind is TokenType.NORMAL}
_FIRST_BYTE = 3


def _encode(text):
    # Longest piece first, bytes for what no piece covers: a plain stand-in for llama.cpp's merging.
    ids = []
    text = text.replace(" ", SPACE)
    while text:
        piece = next((text[:length] for length in (3, 2, 1) if text[:length] in _IDS), None)
        if piece is None:
            piece = text[0]
            ids += [_FIRST_BYTE + byte for byte in piece.encode()]
        else:
            ids.append(_IDS[piece])
        text = text[len(piece) :]
    return ids


def _decode(ids):
    data = b""
    for number in ids:
        token = _TOKENS[number]
        data += bytes([int(token.text[3:5], 16)]) if token.kind is TokenType.BYTE else token.text.encode()
    return data.decode().replace(SPACE, " ")


@given(st.text().filter(lambda text: SPACE not in text))
def test_any_text_round_trips(text):
    assert _decode(_encode(text)) == text


def test_tokens_are_distinct_and_specials_stand_where_the_keys_say():
    texts = [token.text for token in _TOKENS]
    assert len(set(texts)) == len(texts) == 384
    assert [texts[number] for number in (UNK, BOS, EOS)] == ["<unk>", "<s>", "</s>"]
    assert [token.kind for token in _TOKENS].count(TokenType.BYTE) == 256


def test_longer_pieces_score_higher_so_that_merges_are_taken():
    score = {token.text: token.score for token in _TOKENS}
    assert score["the"] > score["th"] > score["t"]


@pytest.mark.parametrize("size", [385, 1000])
def test_larger_vocabularies_are_filled_up(size):
    tokens = vocabulary(size)
    assert len({token.text for token in tokens}) == size
    assert tokens[:384] == _TOKENS


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(ValueError, match="384"):
        vocabulary(300)


def test_the_file_carries_the_tokenizer(tmp_path):
    dims = tiny_deepseek4.Dims(
        n_layer=2, n_layer_nextn=0, n_hash=1, n_embd=64, n_head=2, n_ff_exp=32, n_expert=4, n_expert_used=2
    )
    artifact = make_tiny(TinyModel(arch="deepseek4"), tmp_path / "m.gguf", spec=tiny_deepseek4.spec(dims))
    fields = {name: field.contents() for name, field in GGUFReader(artifact.path).fields.items()}
    assert fields["tokenizer.ggml.model"] == "llama"
    assert fields["tokenizer.ggml.tokens"] == [token.text for token in _TOKENS]
    assert fields["tokenizer.ggml.token_type"] == [int(token.kind) for token in _TOKENS]
    assert len(fields["tokenizer.ggml.scores"]) == 384
    assert fields["tokenizer.ggml.add_space_prefix"] == False  # noqa: E712 - a numpy boolean
    assert fields["tokenizer.ggml.add_bos_token"]
    assert fields["tokenizer.ggml.bos_token_id"] == BOS
