"""The faults of a soak, and what is held against it."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.errors import CheckError, UsageError
from dgr_build.flows.soak import LIMIT_S, Soaked, SoakRequest, require_sound, soak
from dgr_build.flows.soak_talk import Tally
from dgr_build.route.faults import schedule


@given(
    seed=st.integers(0, 2**32),
    tokens=st.integers(200, 50_000),
    faults=st.integers(0, 90),
    stages=st.integers(1, 43),
)
def test_faults_are_repeatable_in_order_and_within_the_run(seed, tokens, faults, stages):
    made = schedule(seed, faults=faults, tokens=tokens, stages=stages, longest_s=10.0)
    assert made == schedule(seed, faults=faults, tokens=tokens, stages=stages, longest_s=10.0)
    moments = [fault.after for fault in made]
    assert len(made) == len(set(moments)) == faults
    assert moments == sorted(moments)
    assert all(tokens // 20 < fault.after < tokens and fault.stage < stages for fault in made)
    assert all(fault.seconds <= (10.0 if fault.kind == "stop" else 2.0) for fault in made)


def test_another_seed_gives_other_faults():
    ways = {"faults": 20, "tokens": 1000, "stages": 3, "longest_s": 10.0}
    assert schedule(1, **ways) != schedule(2, **ways)
    assert {fault.kind for fault in schedule(1, **ways)} == {"kill", "stop"}


def _soaked(**changed):
    fields = {
        "recipe": SimpleNamespace(name="made"), "artifact": None, "began": dt.datetime.now(dt.UTC),
        "seconds": 1.0, "tally": Tally(tokens=100), "faults": (), "slots": ((4, 4),),
        "memory": ((100, 109),),
    }  # fmt: skip
    return Soaked(**fields | changed)


def test_a_sound_soak_passes():
    require_sound(_soaked())


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"tally": Tally(wrong=["token 3 after 5 ids is 7, not 8"])}, "7, not 8"),
        ({"tally": Tally(longest_s=LIMIT_S + 1)}, "waited"),
        ({"slots": ((4, 4), (3, 4))}, "stage 1 has 3 of 4 slots free"),
        ({"memory": ((100, 111),)}, "stage 0 grew from 100 to 111 bytes"),
    ],
)
def test_what_may_not_be_fails_the_soak_and_is_named(changed, told):
    with pytest.raises(CheckError) as failed:
        require_sound(_soaked(**changed))
    assert told in failed.value.cause


def test_more_faults_than_a_run_can_bear_are_refused():
    with pytest.raises(UsageError):
        soak(None, SoakRequest(tokens=20, faults=11))
