"""The prefix hash, against the test vector of the contract."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dgr_build.route.hashing import prefix_next, prefix_start

_IDS = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20)


def test_the_prefix_hash_gives_the_vector_of_the_contract():
    start = prefix_start("00" * 32)
    assert start.hex() == "7e0f5ddc958fa863722822b287fad1a06fe4b54e0668032619152550bf895fb3"
    after = prefix_next(start, [1, 2, 3])
    assert after.hex() == "9bd34196546daf431cef1d1587f4ae3665d7e20fd9394d9ead195d6a4e0b9d72"


@given(_IDS, _IDS)
def test_the_prefix_hash_tells_frames_apart_however_they_are_cut(first, second):
    start = prefix_start("11" * 32)
    joined = prefix_next(start, first + second)
    assert joined != prefix_next(prefix_next(start, first), second)
