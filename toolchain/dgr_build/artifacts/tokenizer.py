"""The vocabulary of the tiny models: every byte, so that any UTF-8 text goes in and comes out whole."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

SPACE = "\u2581"  # what SentencePiece writes for a space
UNK, BOS, EOS = 0, 1, 2

_PAIRS = ("th", "he", "in", "er", "an", "re", "on", "at", "en", "st", "or", "es", "ing", "the", "and")
_LETTERS = "äöüßéèñçøåλπж中文"


class TokenType(IntEnum):
    """llama.cpp's token types."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    BYTE = 6


@dataclass(frozen=True, kw_only=True)
class Token:
    """One entry of the vocabulary."""

    text: str
    score: float
    kind: TokenType


def vocabulary(size: int) -> tuple[Token, ...]:
    """Return a SentencePiece-like vocabulary of exactly `size` tokens.

    It holds the specials, the 256 bytes, the space mark, printable ASCII, some letters beyond ASCII and some
    pieces of more than one character, so that merging and the byte fall-back are both used; the rest is
    filled up with pieces that no text produces.

    Raises:
        ValueError: `size` is below what the fixed part needs.
    """
    tokens = [
        Token(text="<unk>", score=0.0, kind=TokenType.UNKNOWN),
        Token(text="<s>", score=0.0, kind=TokenType.CONTROL),
        Token(text="</s>", score=0.0, kind=TokenType.CONTROL),
    ]
    tokens += [Token(text=f"<0x{byte:02X}>", score=0.0, kind=TokenType.BYTE) for byte in range(256)]
    pieces = [SPACE, *(chr(code) for code in range(0x21, 0x7F)), *_LETTERS, *_PAIRS]
    missing = size - len(tokens) - len(pieces)
    if missing < 0:
        raise ValueError(f"a vocabulary needs at least {len(tokens) + len(pieces)} tokens, {size} asked for")
    pieces += [f"\ue000{number:04d}" for number in range(missing)]
    # Longer pieces score higher, so a merge is always taken where one exists.
    tokens += [Token(text=piece, score=float(len(piece)) - 10.0, kind=TokenType.NORMAL) for piece in pieces]
    return tuple(tokens)
