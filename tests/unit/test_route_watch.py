"""Looks at the stages of a running route: what they show, and that none of them can hang."""

# ruff: noqa: N802 - gRPC's method names

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dgr_build.cli import main as cli
from dgr_build.documents.recipe import load_recipe
from dgr_build.errors import RouteError, UsageError
from dgr_build.flows import top
from dgr_build.route import wire
from dgr_build.route.watch import Look, Watch, rates_between
from dgr_build.route.workers import running
from dgr_build.workspace import Workspace, staging


def _status(**fields):
    known = {"instance": "one", "slots_total": 2, "slots_free": 1, "uptime_us": 1_000_000, "newest_epoch": 3}
    return wire.pb2.StatusResponse(range=wire.pb2.LayerRange(first=0, last=6), **(known | fields))


class _Stage(health_pb2_grpc.HealthServicer):
    """A worker that knows its status and its health, and nothing else."""

    def __init__(self):
        self.status, self.health = _status(), health_pb2.HealthCheckResponse.SERVING

    def Status(self, _request, _context):
        return self.status

    def Check(self, _request, _context):
        return health_pb2.HealthCheckResponse(status=self.health)


@pytest.fixture
def stage():
    fake = _Stage()
    server = grpc.server(ThreadPoolExecutor(4))
    methods = {
        "Status": grpc.unary_unary_rpc_method_handler(
            fake.Status,
            request_deserializer=wire.pb2.StatusRequest.FromString,
            response_serializer=wire.pb2.StatusResponse.SerializeToString,
        )
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("dgr.shard.v1.Shard", methods)])
    health_pb2_grpc.add_HealthServicer_to_server(fake, server)
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield fake
    server.stop(0).wait()


@contextmanager
def _silent():
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_second_look_tells_the_speeds_since_the_first(stage):
    with Watch([stage.address]) as watch:
        (first,) = watch.look()
        assert (first.state, first.health, first.rates) == ("serving", "SERVING", None)
        stage.status = _status(
            uptime_us=3_000_000, busy_us=500_000, executed_rows=40, bytes_in=2000, bytes_out=8000
        )
        (second,) = watch.look()
    rates = second.rates
    assert (rates.load, rates.tokens, rates.bytes_in, rates.bytes_out) == (0.25, 20.0, 1000.0, 4000.0)


def test_speeds_are_never_told_across_a_restart():
    assert rates_between(None, _status()) is None
    assert rates_between(_status(), _status(instance="two", uptime_us=5_000_000)) is None
    assert rates_between(_status(), _status()) is None
    assert rates_between(_status(), _status(uptime_us=2_000_000, busy_us=1_500_000)).load == 1.0


def test_a_stage_that_drains_or_does_not_serve_says_so(stage):
    with Watch([stage.address]) as watch:
        stage.health = health_pb2.HealthCheckResponse.NOT_SERVING
        assert watch.look()[0].state == "not serving"
        stage.status = _status(draining=True)
        assert watch.look()[0].state == "draining"


def test_stages_that_do_not_answer_are_shown_in_time_beside_those_that_do(stage):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"127.0.0.1:{listener.getsockname()[1]}"
    with _silent() as silent, Watch([closed, stage.address, silent], patience_s=0.5) as watch:
        began = time.monotonic()
        gone, here, mute = watch.look()
        assert time.monotonic() - began < 5
    assert [look.state for look in (gone, here, mute)] == ["no answer", "serving", "no answer"]
    assert gone.problem.startswith("UNAVAILABLE")
    assert mute.problem.partition(":")[0] in {"DEADLINE_EXCEEDED", "UNAVAILABLE"}
    assert top.row(gone)[:4] == ["?", closed, "no answer", "UNAVAILABLE"]
    assert len(top.row(gone)) == len(top.row(here)) == len(top.COLUMNS)


def test_a_row_shows_what_its_columns_say(stage):
    stage.status = _status(queued_frames=4, resident_bytes=1_234_567_890)
    with Watch([stage.address]) as watch:
        watch.look()
        stage.status = _status(
            queued_frames=4,
            resident_bytes=1_234_567_890,
            uptime_us=2_000_000,
            busy_us=100_000,
            executed_rows=7,
        )
        cells = dict(zip(top.COLUMNS, top.row(watch.look()[0]), strict=True))
    assert cells == {
        "stage": "[0, 6)", "address": stage.address, "state": "serving", "health": "SERVING", "load": "10%",
        "queue": "4", "tokens/s": "7.0", "in/s": "0 B", "out/s": "0 B", "sessions": "1/2", "epoch": "3",
        "memory": "1.23 GB",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"), (999, "999 B"), (999.6, "1.00 kB"), (1000, "1.00 kB"), (12_340, "12.3 kB"),
        (99_960, "100 kB"), (999_499, "999 kB"), (2e15, "2000 TB"),
    ],
)  # fmt: skip
def test_bytes_have_three_digits(number, text):
    assert top.human_bytes(number) == text


@pytest.fixture
def ws(tmp_path, monkeypatch):
    monkeypatch.setenv("DGR_WORKSPACE", str(tmp_path / "dgr"))
    return Workspace.open()


def test_addresses_and_recipes_name_a_route(ws):
    assert top.stages_of(ws, "a:1, b:2", (), None) == (["a:1", "b:2"], None)
    assert top.stages_of(ws, "llama-tiny-2stage", ("a:1", "b:2"), None) == (["a:1", "b:2"], None)
    for route, at, told in (
        ("a:1,,b:2", (), "HOST:PORT"),
        ("a:1", ("b:2",), "leave one"),
        ("llama-tiny-2stage", ("a:1",), "one for each stage"),
        ("llama-tiny-2stage", (), "--at"),
        ("no-such-recipe", (), "name one"),
    ):
        with pytest.raises(UsageError) as caught:
            top.stages_of(ws, route, at, None)
        assert told in caught.value.remedy


def test_a_recipe_stands_for_the_workers_that_run_from_it(ws):
    recipe = load_recipe(ws.recipes / "llama-tiny-2stage.toml")
    names = [stage.name for stage in recipe.stages]
    with staging(ws.root / "run", recipe.name) as folder:
        (folder / f"{names[0]}.port").write_text("7001\n")
        assert running(ws, recipe) == []  # the other one is still loading
        (folder / f"{names[1]}.port").write_text("7002\n")
        assert running(ws, recipe) == ["127.0.0.1:7001", "127.0.0.1:7002"]
        assert top.stages_of(ws, recipe.name, (), None)[0] == ["127.0.0.1:7001", "127.0.0.1:7002"]
    assert running(ws, recipe) == []


def test_top_as_json_tells_every_stage_and_fails_for_one_that_is_gone(stage, ws, capsys):
    assert ws.root.name == "dgr"
    assert cli.run(["top", stage.address, "--json", "--interval", "0.1"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["state"], told["range"], told["sessions"], told["epoch"]) == ("serving", [0, 6], 1, 3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = f"127.0.0.1:{listener.getsockname()[1]}"
    code = cli.run(["top", f"{stage.address},{gone}", "--json", "--interval", "0.1"])
    assert code == RouteError.exit_code
    here, lost = json.loads(capsys.readouterr().out)
    assert (here["state"], lost["state"], lost["address"]) == ("serving", "no answer", gone)
    assert lost["problem"]


def test_top_once_prints_a_table(stage, ws, capsys):
    assert ws.root.name == "dgr"
    assert cli.run(["top", stage.address, "--once", "--interval", "0.1"]) == 0
    header, line = capsys.readouterr().out.strip().splitlines()
    assert header.split()[:3] == ["stage", "address", "state"]
    assert line.startswith("[0, 6)")


def test_a_look_without_an_answer_knows_nothing_else():
    look = Look(address="a:1", problem="UNAVAILABLE: gone")
    assert top.to_json(look) == {"address": "a:1", "state": "no answer", "problem": "UNAVAILABLE: gone"}
