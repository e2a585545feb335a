"""Comparing logits: bytes decide, numbers explain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.route.parity import compare


def logits(rows=3, width=5):
    return np.arange(rows * width, dtype="<f4").reshape(rows, width) / 7


def test_equal_bytes_are_sound():
    parity = compare(logits(), logits())
    assert parity.sound
    assert (parity.max_abs_diff, parity.first_row, parity.rows) == (0.0, None, 3)


@given(row=st.integers(0, 2), column=st.integers(0, 4), bit=st.integers(0, 31))
def test_one_bit_anywhere_is_a_difference_in_its_row(row, column, bit):
    other = logits()
    other.view("<u4")[row, column] ^= np.uint32(1 << bit)
    parity = compare(logits(), other)
    assert not parity.sound
    assert not parity.equal
    assert parity.first_row == row


def test_zeros_of_unlike_sign_differ_though_their_difference_is_none():
    ours, theirs = logits(), logits()
    theirs[0, 0] = -0.0
    parity = compare(ours, theirs)
    assert not parity.equal
    assert parity.max_abs_diff == 0.0


def test_the_largest_difference_is_told():
    theirs = logits()
    theirs[1, 1] += 0.5
    theirs[2, 0] -= 2.0
    parity = compare(logits(), theirs)
    assert parity.first_row == 1
    assert parity.max_abs_diff == pytest.approx(2.0)


@pytest.mark.parametrize("theirs", [logits(rows=2), logits(width=4), logits(rows=0)])
def test_other_shapes_are_never_equal(theirs):
    parity = compare(logits(), theirs)
    assert not parity.sound
    assert parity.max_abs_diff == np.inf


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_prove_nothing_though_equal(value):
    ours = logits()
    ours[1, 2] = value
    parity = compare(ours, ours.copy())
    assert parity.equal
    assert not parity.finite
    assert not parity.sound
    assert parity.max_abs_diff == np.inf


def test_rows_that_are_all_the_same_prove_nothing():
    same = np.tile(logits(rows=1), (3, 1))
    assert compare(same, same.copy()).equal
    assert not compare(same, same.copy()).sound


def test_a_single_row_is_sound_unless_it_is_constant():
    one = logits(rows=1)
    assert compare(one, one.copy()).sound
    flat = np.ones((1, 5), "<f4")
    assert not compare(flat, flat.copy()).sound


def test_no_rows_prove_nothing():
    assert not compare(logits(rows=0), logits(rows=0)).sound
