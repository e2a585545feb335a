"""Random weights that are the same bytes with every numpy: raw PCG64 words, scaled by hand.

numpy promises a stable stream for bit generators and their seeding, not for distributions; so only
`random_raw` is used, and everything after it is exact integer work and single IEEE operations.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import PCG64

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD_HALVES = 2


def _stream(seed: int, name: str) -> PCG64:
    # A stream for each tensor: adding or reordering tensors leaves all others as they were.
    key = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return PCG64(int.from_bytes(key[:16], "little"))


def uniform(
    seed: int, name: str, shape: tuple[int, ...], *, std: float, mean: float = 0.0
) -> NDArray[np.float32]:
    """Return a float32 array, uniform around `mean` with standard deviation `std`.

    Args:
        seed: the model's seed.
        name: the tensor's name; it selects the stream.
        shape: the array's shape, slowest dimension first.
        std: standard deviation; the values lie within `mean` +- sqrt(3) * `std`.
        mean: centre of the values.
    """
    count = math.prod(shape)
    words = _stream(seed, name).random_raw((count + 1) // _WORD_HALVES)
    halves = words.astype("<u8", copy=False).view("<u4")[:count]
    # 24 bits fit a float32 exactly, so the only roundings are one product and one sum.
    values = (halves >> np.uint32(8)).astype(np.float32)
    values *= np.float32(2.0**-23)
    values -= np.float32(1.0)
    values *= np.float32(math.sqrt(3.0) * std)
    if mean:
        values += np.float32(mean)
    return values.reshape(shape)


def distinct(seed: int, name: str, rows: int, picks: int, choices: int) -> NDArray[np.int32]:
    """Return `rows` rows of `picks` different numbers below `choices`, in random order.

    The result has the shape [rows, picks].
    """
    keys = _stream(seed, name).random_raw(rows * choices).reshape(rows, choices)
    order = np.argsort(keys, axis=1, kind="stable")
    return np.ascontiguousarray(order[:, :picks].astype(np.int32))
