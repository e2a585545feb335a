"""The maths of a benchmark: pairs, intervals, verdicts, and what the document refuses to claim."""

from __future__ import annotations

import datetime as dt
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.documents.base import parse
from dgr_build.documents.bench import Interval, Target, ToolchainBench, judge
from dgr_build.errors import UsageError
from dgr_build.flows.bench_measure import (
    Comparison,
    Way,
    compare,
    mean_interval,
    ratio_interval,
    row_of,
    student,
)
from dgr_build.flows.bench_page import page

_TIMES = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=40)


def _comparison(**fields):
    ways = {side: Way(what=side, run=lambda: None) for side in ("ours", "theirs")}
    return Comparison(**{"name": "row", **ways, "target": Target(of="ratio", at_most=1.1), **fields})


@given(_TIMES)
def test_the_ratio_of_a_thing_with_itself_is_one(times):
    interval = ratio_interval(times, times)
    assert (interval.low, interval.estimate, interval.high) == (1, 1, 1)


@given(_TIMES, st.randoms(use_true_random=False))
def test_the_ratio_of_a_thing_with_its_own_times_in_another_order_holds_one(times, random):
    shuffled = random.sample(times, len(times))
    interval = ratio_interval(times, shuffled)
    assert interval.low <= 1 <= interval.high


@given(_TIMES, _TIMES)
def test_turning_a_ratio_round_turns_its_interval_round(ours, theirs):
    count = min(len(ours), len(theirs))
    one, other = ratio_interval(ours[:count], theirs[:count]), ratio_interval(theirs[:count], ours[:count])
    assert other.estimate == pytest.approx(1 / one.estimate, rel=1e-4)
    assert other.low == pytest.approx(1 / one.high, rel=1e-4)


@given(_TIMES, st.floats(0.1, 10))
def test_a_ratio_does_not_depend_on_the_unit(times, factor):
    scaled = [time * factor for time in times]
    assert ratio_interval(scaled, times).estimate == pytest.approx(factor, rel=1e-4)


def test_an_interval_of_known_data_is_students():
    # Logs 0, 0.1, 0.2, 0.3, 0.4: mean 0.2, standard error sqrt(0.025 / 5), t of 4 degrees 2.7764
    interval = mean_interval([math.exp(0.1 * n) for n in range(5)])
    half = 2.7764 * math.sqrt(0.025 / 5)
    assert interval.estimate == pytest.approx(math.exp(0.2), rel=1e-5)
    assert interval.low == pytest.approx(math.exp(0.2 - half), rel=1e-5)
    assert interval.high == pytest.approx(math.exp(0.2 + half), rel=1e-5)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (9, 2.2622), (21, 2.0796), (30, 2.0423), (120, 1.9799)]
)
def test_students_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student(freedom) == pytest.approx(quantile, abs=2e-4)


def test_intervals_hold_the_truth_as_often_as_they_say():
    normal = statistics.NormalDist(math.log(1.2), 0.1)
    hits = 0
    for seed in range(400):
        logs = normal.samples(6, seed=seed)
        interval = ratio_interval([math.exp(one) for one in logs], [1.0] * 6)
        hits += interval.low <= 1.2 <= interval.high
    assert 0.91 <= hits / 400 <= 0.985


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.8, 1.1, "met"), (1.11, 1.3, "missed"), (1.0, 1.2, "unresolved"), (1.1, 1.2, "unresolved")],
)
def test_a_target_inside_the_interval_is_unresolved(low, high, verdict):
    interval = Interval(estimate=(low + high) / 2, low=low, high=high, confidence=0.95)
    other = Interval(estimate=5, low=5, high=5, confidence=0.95)
    assert judge(interval, other, Target(of="ratio", at_most=1.1)) == verdict
    assert judge(other, interval, Target(of="seconds", at_most=1.1)) == verdict
    assert judge(interval, other, None) == "no target"


def test_both_ways_take_turns_and_only_running_is_timed():
    now, order = [0.0], []

    def way(name, run_s):
        def spend(what, seconds):
            order.append(f"{what} {name}")
            now[0] += seconds

        return Way(what=name, prepare=lambda: spend("prepare", 100), run=lambda: spend("run", run_s))

    ended = []
    comparison = _comparison(ours=way("ours", 3), theirs=way("theirs", 2))
    row = compare(comparison, 3, on_run=lambda: ended.append(1), clock=lambda: now[0])
    assert row.ours_seconds == (3, 3, 3)
    assert row.theirs_seconds == (2, 2, 2)
    assert len(ended) == comparison.runs(3) == 8
    runs = [step.removeprefix("run ") for step in order if step.startswith("run")][2:]
    assert runs == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert row.ratio.estimate == 1.5
    assert row.verdict == "missed"


def test_a_target_in_seconds_is_held_against_our_own_time():
    target = Target(of="seconds", at_most=1.0)
    row = row_of(_comparison(target=target), [0.5, 0.6, 0.55], [0.01, 0.01, 0.01])
    assert row.verdict == "met"
    assert row.ratio.estimate > 50


def _bench(**changes):
    row = row_of(_comparison(), [1.0, 1.1, 1.05], [1.0, 1.0, 1.0]).model_dump(mode="json")
    data = {
        "ran_at": dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC),
        "pin_commit": "a" * 40,
        "series_sha256": "b" * 64,
        "tools": {"git": "git version 2"},
        "environment": {
            "cpu": "a processor", "cores": 2, "memory_bytes": 1 << 33, "os": "Debian 12", "kernel": "6.1",
            "compiler": "g++ 12", "backend": "none",
        },
        "load": (0.1, 1.2),
        "rows": [row],
    }  # fmt: skip
    return data | changes, row


def test_a_benchmark_reads_back_equal_and_keeps_its_id():
    bench = parse(_bench()[0], ToolchainBench, "the test")
    again = ToolchainBench.model_validate_json(bench.model_dump_json())
    assert again == bench
    assert again.id == bench.id


@pytest.mark.parametrize(
    "change",
    [{"verdict": "met"}, {"theirs_seconds": [1.0, 1.0]}, {"ours_seconds": [1.0]}, {"extra": 1}],
)
def test_a_row_claims_no_more_than_its_pairs_show(change):
    data, row = _bench()
    with pytest.raises(UsageError):
        parse(data | {"rows": [row | change]}, ToolchainBench, "the test")


def test_the_schema_names_and_explains_every_field():
    schema = ToolchainBench.model_json_schema()
    assert set(schema["properties"]) >= {"schema_version", "rows", "environment", "tools", "load"}
    assert "verdict" in schema["$defs"]["Row"]["description"]


def test_the_page_shows_every_row_with_its_verdict():
    bench = parse(_bench()[0], ToolchainBench, "the test")
    text = page(bench)
    assert bench.id in text
    assert f"| {bench.rows[0].verdict} | 3 |" in text
