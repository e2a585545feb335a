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


_VALUES = st.floats(-1e3, 1e3, width=32).filter(lambda value: value == 0 or abs(value) > 1e-3)
_ROWS = st.lists(st.lists(_VALUES, min_size=4, max_size=4), min_size=1, max_size=4)


def array(rows):
    return np.array(rows, dtype="<f4")


@given(_ROWS)
def test_values_have_no_error_against_themselves(rows):
    assert compare(array(rows), array(rows)).nmse == 0


@given(_ROWS, _ROWS, st.integers(-8, 8))
def test_the_error_does_not_depend_on_the_scale(ours, theirs, power):
    n = min(len(ours), len(theirs))
    ours, theirs = array(ours[:n]), array(theirs[:n])
    theirs[:, 0] = 1  # an all-zero row has no scale
    scale = np.float32(2.0**power)
    error = compare(ours, theirs).nmse
    assert compare(ours * scale, theirs * scale).nmse == pytest.approx(error)


@given(_ROWS, _ROWS)
def test_the_error_of_all_rows_lies_between_those_of_the_best_and_the_worst(ours, theirs):
    n = min(len(ours), len(theirs))
    ours, theirs = array(ours[:n]), array(theirs[:n])
    theirs[:, 0] = 1
    each = [compare(ours[row : row + 1], theirs[row : row + 1]).nmse for row in range(n)]
    assert min(each) * (1 - 1e-9) <= compare(ours, theirs).nmse <= max(each) * (1 + 1e-9)


def test_the_error_is_of_squares_against_the_other_sides():
    theirs = array([[3, 4]])
    assert compare(array([[3, 4.5]]), theirs).nmse == pytest.approx(0.25 / 25)


def test_values_are_near_up_to_the_limit_itself():
    parity = compare(array([[3, 4.5], [0, 5]]), array([[3, 4], [0, 5]]))
    assert parity.near(0.005)
    assert not parity.near(0.0049)
    assert not parity.sound


@pytest.mark.parametrize("theirs", [logits(rows=2), logits(width=4), logits(rows=0)])
def test_other_shapes_are_never_near(theirs):
    assert not compare(logits(), theirs).near(0.9)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_never_near(value):
    ours = logits()
    ours[1, 2] = value
    assert not compare(ours, logits()).near(0.9)
    assert not compare(logits(), ours).near(0.9)


def test_values_that_prove_nothing_are_never_near():
    same = np.tile(logits(rows=1), (3, 1))
    assert not compare(same, same.copy()).near(0.9)
    assert not compare(logits(rows=0), logits(rows=0)).near(0.9)
