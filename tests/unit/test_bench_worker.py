"""The benchmark of the worker: every group with fakes of what it measures; what is written and refused."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from dgr_build.cli import main
from dgr_build.documents.base import load_json, parse
from dgr_build.documents.bench import Interval
from dgr_build.documents.bench_worker import Bound, MeasuredModel, WorkerBench
from dgr_build.documents.evidence import Environment
from dgr_build.errors import CheckError, UsageError
from dgr_build.flows import bench_worker as flow
from dgr_build.flows.bench_worker import (
    GROUPS,
    AskedOfWorker,
    groups_of,
    measure_worker,
    require_worker_met,
)
from dgr_build.flows.bench_worker_ground import ColdLoad, Settings
from dgr_build.flows.bench_worker_measure import Pairing, Side, measured
from dgr_build.flows.bench_worker_page import page
from dgr_build.workspace import Workspace

_MODEL = MeasuredModel(name="light", digest="d" * 64, n_bytes=10, n_layer=12, n_embd=64)
_BOUNDARY = 4096


class FakeRoute:
    """A route of stages that takes a given time a token and a row, and what its wire adds."""

    def __init__(self, ground, stages, *, way_ms=0.0, **how):
        self.ground, self.stages, self.way_ms, self.how = ground, stages, way_ms, how

    def token_ms(self, tokens):
        assert tokens == self.ground.settings.decode
        ways = self.stages + 1 if self.way_ms else 0
        return 50.0 + self.ground.hop_ms * (self.stages - 1) + ways * self.way_ms

    def decode(self, tokens, *, sessions=1, prompt=1):
        assert sessions <= self.how.get("sessions", 1)
        assert prompt + tokens <= max(self.how.get("positions", 0), self.ground.settings.prompt)
        return 1000 / self.token_ms(tokens)

    def prefill(self, rows):
        assert rows == self.ground.settings.prompt
        return 20.0 * max(self.stages, self.how.get("threads", 1))


class FakeGround:
    """Everything that rows ask of the real one; says what is running."""

    boundary_bytes, header_bytes = _BOUNDARY, 1000

    def __init__(self, **more):
        self.settings = Settings.quick()
        self.running, self.calls = [], []
        self.hop_ms, self.read, self.overhead_us = 0.1, 50_000_000, 90.0
        self.upstream = SimpleNamespace(bench=self._bench, batched=self._batched)
        vars(self).update(more)

    @contextmanager
    def _runs(self, what, thing):
        self.running.append(what)
        try:
            yield thing
        finally:
            self.running.remove(what)

    def route(self, stages, **how):
        return self._runs(f"{stages} stages", FakeRoute(self, stages, **how))

    def delayed(self, route, delay_ms):
        behind = FakeRoute(self, route.stages, way_ms=delay_ms + 0.1, **route.how)
        wire = SimpleNamespace(route=behind, one_way_ms=lambda _: behind.way_ms)
        return self._runs(f"{delay_ms} ms", wire)

    def rpc(self, delay_ms):
        def speed(*, prompt=0, generate=0):
            assert bool(prompt) != bool(generate)
            return 10.0 / (1 + (delay_ms or 0))

        return self._runs(f"rpc {delay_ms}", SimpleNamespace(speed=speed))

    def frames(self):
        tail = SimpleNamespace(
            n_bytes=lambda rows: rows * _BOUNDARY + 100,
            overhead_us=lambda _: self.overhead_us,
            echo_us=lambda _: 50.0,
        )
        return self._runs("frames", tail)

    def cold_load(self, stages, index):
        assert not self.running
        self.calls.append((stages, index))
        return ColdLoad(read=self.read, own=40_000_000)

    def _bench(self, *, threads, prompt=0, generate=0):
        assert bool(prompt) != bool(generate)
        assert threads == self.settings.whole_threads
        return 20.0

    def _batched(self, *, threads, sessions, prompt, generate):
        assert threads == 1
        assert prompt + generate <= self.settings.prompt
        return 19.0 * sessions


def _rows(ground, group, pairs=3):
    return {pairing.name: measured(pairing, group, pairs) for pairing in GROUPS[group].pairings(ground)}


def _verdicts(ground, group):
    return {name: row.verdict for name, row in _rows(ground, group).items()}


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_can_be_measured_and_leaves_nothing_running(group):
    ground = FakeGround()
    rows = _rows(ground, group)
    assert rows
    assert all(row.group == group for row in rows.values())
    assert ground.running == []


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_that_is_given_up_leaves_nothing_running(group):
    ground = FakeGround()
    pairings = GROUPS[group].pairings(ground)
    next(pairings)
    pairings.close()
    assert ground.running == []


def test_rows_have_the_targets_that_were_promised():
    ground = FakeGround()
    bounds = {name: row.bound.text for group in GROUPS for name, row in _rows(ground, group).items()}
    assert bounds == {
        "whole-decode": "at least 0.98",
        "whole-prefill": "at least 0.98",
        "stages-2-decode": "at least 0.97",
        "stages-2-prefill": "at least 0.9",
        "rpc-decode": "at least 1.15",
        "rpc-prefill": "at least 1.7",
        "rpc-5ms-decode": "at least 1.15",
        "rpc-5ms-prefill": "at least 1.7",
        "sessions-1": "at least 0.95",
        "sessions-2": "at least 0.95",
        "floor-0ms": "at most 1",
        "floor-5ms": "at most 1",
        "load-head": "at most 1",
        "load-middle": "at most 1",
        "load-tail": "at most 1",
        "frame-1-rows": "at most 2",
        "frame-256-rows": "at most 2",
    }


def test_the_full_settings_measure_what_was_promised():
    settings = Settings()
    assert settings.stages == (2, 3, 4)
    assert settings.frames >= 16
    assert settings.prompt % settings.frames == 0
    assert settings.sessions == (1, 2, 4, 8)
    assert settings.delays_ms == (0, 5, 20, 80)
    assert settings.rpc_delays_ms == (0, 5, 20)
    assert settings.model.name == "heavy"


def test_joined_sessions_meet_their_target_and_sessions_in_turn_miss_it():
    assert _verdicts(FakeGround(), "sessions") == {"sessions-1": "met", "sessions-2": "missed"}


@pytest.mark.parametrize(("hop_ms", "verdict"), [(0.4, "met"), (3.0, "missed")])
def test_the_floor_is_computing_and_one_way_a_hop_and_one_back(hop_ms, verdict):
    rows = _rows(FakeGround(hop_ms=hop_ms), "floor")
    for delay, row in ((0, rows["floor-0ms"]), (5, rows["floor-5ms"])):
        floor = 50 + 3 * (delay + 0.1)
        assert row.detail["floor_ms"] == pytest.approx(floor, rel=1e-4)
        assert row.detail["over_the_floor_ms"] == pytest.approx(hop_ms, rel=0.01)
        assert row.theirs_values[0] == pytest.approx(floor + max(0.5, 0.03 * floor))
        assert row.verdict == verdict


@pytest.mark.parametrize(("read", "verdict"), [(50_000_000, "met"), (90_000_000, "missed")])
def test_a_stage_may_read_what_it_owns_and_a_little(read, verdict):
    ground = FakeGround(read=read)
    rows = _rows(ground, "load")
    assert {index for _, index in ground.calls} == {0, 1, 2}
    for row in rows.values():
        assert row.theirs_values[0] == pytest.approx(1.01 * 40e6 + 1000 + (16 << 20))
        assert row.detail == {"own_tensor_bytes": 40e6}
        assert row.verdict == verdict


def test_a_frame_that_costs_more_than_twice_an_echo_is_missed():
    assert _verdicts(FakeGround(overhead_us=101.0), "frames")["frame-1-rows"] == "missed"
    assert _rows(FakeGround(), "frames")["frame-256-rows"].detail == {"message_bytes": 256 * _BOUNDARY + 100}


def test_who_is_measured_first_changes_from_pair_to_pair():
    order = []
    sides = {
        side: Side(what=side, measure=lambda side=side: order.append(side) or 1.0)
        for side in ("ours", "theirs")
    }
    pairing = Pairing(name="row", **sides, unit="ms", bound=Bound(at_most=1))
    told = []
    measured(pairing, "group", 3, on_run=lambda: told.append(None))
    assert order == ["ours", "theirs", "ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert len(told) == pairing.runs(3)


@pytest.mark.parametrize(
    ("bound", "interval", "verdict"),
    [
        ({"at_least": 0.98}, (0.98, 1.1), "met"),
        ({"at_least": 0.98}, (0.97, 1.1), "unresolved"),
        ({"at_least": 0.98}, (0.9, 0.979), "missed"),
        ({"at_most": 2.0}, (1.0, 2.0), "met"),
        ({"at_most": 2.0}, (1.0, 2.1), "unresolved"),
        ({"at_most": 2.0}, (2.1, 3.0), "missed"),
    ],
)
def test_a_bound_is_judged_by_the_whole_interval(bound, interval, verdict):
    low, high = interval
    assert Bound(**bound).judge(Interval(estimate=low, low=low, high=high, confidence=0.95)) == verdict


@pytest.mark.parametrize("bound", [{}, {"at_least": 1, "at_most": 1}])
def test_a_bound_is_one_limit(bound):
    with pytest.raises(UsageError, match="is not a valid Bound"):
        parse(bound, Bound, "here")


def _bench(**more):
    rows = tuple(_rows(FakeGround(), "whole").values())
    fields = {
        "quick": True, "ran_at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "pin_commit": "a" * 40,
        "series_sha256": "b" * 64, "lane_digest": "c" * 64, "upstream_values": {"GGML_RPC": "ON"},
        "settings": Settings.quick().told(), "models": (_MODEL,), "tools": {"c++": "1"},
        "environment": Environment(
            cpu="x", cores=2, memory_bytes=1, os="x", kernel="1", compiler="1", backend="CPU"
        ),
        "load": (0, 0), "rows": rows,
    }  # fmt: skip
    return WorkerBench(**fields | more)


def test_a_document_claims_only_what_its_pairs_show():
    data = json.loads(_bench().model_dump_json())
    data["rows"][0]["verdict"] = "missed"
    with pytest.raises(UsageError, match="is not a valid WorkerBench"):
        parse(data, WorkerBench, "here")


def test_the_page_shows_every_row_and_says_that_a_quick_run_was_one():
    bench = _bench()
    text = page(bench)
    assert all(row.name in text and row.theirs in text for row in bench.rows)
    assert "GGML_RPC=ON" in text
    assert bench.id in text
    assert "quick run" in text
    assert "quick run" not in page(_bench(quick=False))


def test_groups_are_measured_in_their_usual_order_and_all_by_default():
    assert groups_of(()) == tuple(GROUPS)
    assert groups_of(["floor,whole", "rpc"]) == ("whole", "rpc", "floor")


def test_an_unknown_group_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError) as caught:
        groups_of(["whole,nothing"])
    assert "nothing" in caught.value.message
    assert "batch" not in caught.value.cause
    assert "sessions" in caught.value.cause


@pytest.mark.parametrize(
    "arguments", [["--only", "nothing"], ["--pairs", "1"], ["--jobs", "0"], ["--quick", "--publish"]]
)
def test_a_wrong_command_line_is_refused_before_anything_is_built(isolated, capsys, arguments):
    assert main.run(["bench", "worker", *arguments, "--json"]) == UsageError.exit_code
    assert json.loads(capsys.readouterr().out)["remedy"]
    assert not (isolated / "workspace" / "build").exists()


def test_the_schema_can_be_printed_without_measuring(isolated, capsys):
    assert main.run(["bench", "worker", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "WorkerBench"
    assert not (isolated / "workspace").exists()


@pytest.fixture
def here(isolated, project_root, monkeypatch):
    """A workspace with folders of the test, where everything that measures is a fake."""

    @contextmanager
    def prepared(ws, settings, jobs):
        manifest = SimpleNamespace(n_bytes=10, n_layer=12, n_embd=64)
        artifact = SimpleNamespace(digest="d" * 64, manifest=manifest)
        yield FakeGround(settings=settings, artifact=artifact, seam=artifact, worker=None)

    monkeypatch.setattr(flow, "prepared", prepared)
    monkeypatch.setattr(flow, "lane_digest_of", lambda _: "e" * 64)
    return Workspace(project=project_root, root=isolated / "workspace", cache=isolated / "cache")


def test_what_was_measured_is_written_as_document_and_page(here):
    measured_worker = measure_worker(here, AskedOfWorker(only=("whole", "load"), quick=True))
    bench = load_json(here.evidence / flow.NAME / "record.json", WorkerBench)
    assert bench == measured_worker.bench
    assert [row.group for row in bench.rows] == ["whole"] * 2 + ["load"] * 3
    assert all(len(row.ours_values) == 2 for row in bench.rows)
    assert bench.id in (here.evidence / flow.NAME / "README.md").read_text()
    require_worker_met(measured_worker)


def test_a_missed_target_is_written_down_before_it_is_an_error(here):
    measured_worker = measure_worker(here, AskedOfWorker(only=("sessions",), pairs=4))
    assert [row.name for row in measured_worker.bench.missed] == ["sessions-2", "sessions-4", "sessions-8"]
    with pytest.raises(CheckError) as caught:
        require_worker_met(measured_worker)
    assert "--only sessions" in caught.value.remedy


def test_what_was_measured_stays_when_a_later_group_fails(here, monkeypatch):
    def broken(ground):
        raise CheckError("upstream's program failed")
        yield

    monkeypatch.setitem(flow.GROUPS, "stages", flow._Group(pairings=broken, pairs=2))
    with pytest.raises(CheckError):
        measure_worker(here, AskedOfWorker(only=("whole", "stages"), quick=True))
    bench = load_json(here.evidence / flow.NAME / "record.json", WorkerBench)
    assert {row.group for row in bench.rows} == {"whole"}


def test_publishing_writes_the_same_bytes_to_the_tracked_folder(here, isolated):
    for name in ("manifests/llama.cpp.toml", "patches/series.toml"):
        (isolated / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        (isolated / "clone" / name).write_bytes((here.project / name).read_bytes())
    clone = Workspace(project=isolated / "clone", root=here.root, cache=here.cache)
    done = measure_worker(clone, AskedOfWorker(only=("whole",), pairs=2, publish=True))
    assert done.folder == clone.published_evidence / flow.NAME
    for name in ("record.json", "README.md"):
        assert (done.folder / name).read_bytes() == (clone.evidence / flow.NAME / name).read_bytes()
