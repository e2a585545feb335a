"""What a tiny model consists of: metadata keys, and tensors by name, shape and how they are filled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from gguf import GGUFValueType

QUANT_BLOCK = 32  # Q8_0 quantises runs of this many values of one row


class Fill(Enum):
    """How the values of a tensor come about."""

    UNIFORM = "uniform"  # around `mean`, with `std`
    EXPERT_IDS = "expert-ids"  # for each row, different numbers below `choices`


@dataclass(frozen=True, kw_only=True)
class Key:
    """One metadata entry; `kind` is None for strings, arrays and booleans, whose type shows in the value."""

    name: str
    value: object
    kind: GGUFValueType


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One tensor.

    Attributes:
        name: its name in the GGUF.
        shape: slowest dimension first (numpy order, the reverse of ggml's).
        std: standard deviation of its values.
        mean: centre of its values.
        fill: how the values come about.
        choices: upper bound of the numbers of an EXPERT_IDS tensor.
        quantised: may be stored as Q8_0; norms, gates, connection weights and biases stay F32, as upstream
            keeps them.
        by_token: the rows belong to tokens: rows of specials are zero and those of bytes small, so that
            greedy decoding neither ends by itself nor babbles in broken UTF-8.
    """

    name: str
    shape: tuple[int, ...]
    std: float = 0.0
    mean: float = 0.0
    fill: Fill = Fill.UNIFORM
    choices: int = 0
    quantised: bool = False
    by_token: bool = False

    def stored_as_q8(self, dtype: str) -> bool:
        """Tell whether a model of `dtype` stores this tensor as Q8_0."""
        return dtype == "q8_0" and self.quantised and self.shape[-1] % QUANT_BLOCK == 0

    def nbytes(self, dtype: str) -> int:
        """Return the size of the tensor's data in a model of `dtype`."""
        count = math.prod(self.shape)
        return count // QUANT_BLOCK * 34 if self.stored_as_q8(dtype) else count * 4


@dataclass(frozen=True, kw_only=True)
class TinySpec:
    """A whole tiny model as data."""

    arch: str
    n_vocab: int
    keys: tuple[Key, ...]
    tensors: tuple[TensorSpec, ...]


def u32(name: str, value: int) -> Key:
    """Return an unsigned integer key."""
    return Key(name=name, value=value, kind=GGUFValueType.UINT32)


def f32(name: str, value: float) -> Key:
    """Return a float key."""
    return Key(name=name, value=value, kind=GGUFValueType.FLOAT32)


def flag(name: str, value: bool) -> Key:
    """Return a boolean key."""
    return Key(name=name, value=value, kind=GGUFValueType.BOOL)


def array(name: str, value: tuple[object, ...]) -> Key:
    """Return an array key; its element type shows in the values."""
    return Key(name=name, value=value, kind=GGUFValueType.ARRAY)


def inverse_root(width: int) -> float:
    """Return 1/sqrt(width), correctly rounded everywhere, which a power is not."""
    return 1.0 / math.sqrt(width)


def matrix(name: str, rows: int, columns: int, *, gain: float = 1.0, experts: int = 0) -> TensorSpec:
    """Return a matrix (or one for each expert) whose products have `gain` times the spread of their input."""
    shape = (experts, rows, columns) if experts else (rows, columns)
    return TensorSpec(name=name, shape=shape, std=gain * inverse_root(columns), quantised=True)


def plain(name: str, shape: tuple[int, ...], *, std: float, mean: float = 0.0) -> TensorSpec:
    """Return a tensor that is always F32."""
    return TensorSpec(name=name, shape=shape, std=std, mean=mean)


def norm(name: str, width: int, *, mean: float = 1.0) -> TensorSpec:
    """Return a norm's weights, spread a little so that a wrong one shows."""
    return plain(name, (width,), std=0.1 * mean, mean=mean)
