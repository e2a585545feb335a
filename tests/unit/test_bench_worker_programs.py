"""What is read out of the words of the programs that measure, with scripts in their place."""

from __future__ import annotations

import json
import stat

import pytest

from dgr_build.errors import CheckError, HostError, RouteError
from dgr_build.flows.bench_worker_cold import bytes_in_memory, make_cold
from dgr_build.flows.bench_worker_ground import Frames, Route, Settings, Wire, upstream_frame
from dgr_build.flows.bench_worker_programs import Client, Shape, Upstream, json_lines
from dgr_build.lanes.upstream_tools import UpstreamTools


@pytest.fixture
def program(tmp_path):
    """A maker of programs that note how they were called and print lines."""

    def make(name, *lines, code=0, more=""):
        path, calls = tmp_path / name, tmp_path / f"{name}.calls"
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text(
            f"#!/bin/sh\necho \"$@\" >> '{calls}'\n{more}\ncat <<'END'\n{text}\nEND\nexit {code}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path, calls

    return make


_RUN = (
    {"event": "route", "n_ubatch": 8, "stages": []},
    {"event": "prefill", "run": 0, "session": 0, "rows": 16, "frames": 2, "us": 2e6},
    {"event": "token", "run": 0, "session": 0, "index": 0, "us": 40e3, "tail_us": 1},
    {"event": "token", "run": 0, "session": 0, "index": 1, "us": 60e3, "tail_us": 1},
    {"event": "run", "run": 0, "sessions": 1, "prefill_us": 2e6, "decode_us": 100e3},
)


def test_a_run_of_the_client_is_read(program):
    path, calls = program("client", *_RUN)
    route = Route(client=Client(program=path), addresses=("127.0.0.1:1", "127.0.0.1:2"))
    assert route.decode(2) == pytest.approx(20)
    assert route.prefill(16) == pytest.approx(8)
    assert route.token_ms(2) == pytest.approx(50)
    first = calls.read_text().splitlines()[0]
    assert first == "run --stages 127.0.0.1:1,127.0.0.1:2 --sessions 1 --prefill 1 --decode 2"


def test_tokens_of_sessions_beside_each_other_count_together(program):
    path, calls = program("client", *_RUN)
    route = Route(client=Client(program=path), addresses=("127.0.0.1:1",))
    assert route.decode(2, sessions=4, prompt=3) == pytest.approx(80)
    assert "--sessions 4 --prefill 3 --decode 2" in calls.read_text()


def test_a_client_that_fails_says_what_the_stage_said(program):
    path, _ = program("client", more="echo 'error: the stage refused' >&2", code=10)
    with pytest.raises(CheckError) as caught:
        Client(program=path).run(("127.0.0.1:1",), Shape())
    assert "the stage refused" in caught.value.cause


def test_the_overhead_of_a_frame_is_its_time_less_computing(program):
    lines = [{"event": "frame", "bytes": 99, "us": us, "compute_us": 50} for us in (250, 150, 1000)]
    path, calls = program("client", *lines)
    frames = Frames(client=Client(program=path), tail="127.0.0.1:1", echo="127.0.0.1:2", count=3)
    assert frames.overhead_us(8) == pytest.approx(200)
    assert frames.n_bytes(8) == 99
    assert calls.read_text().splitlines()[0] == "frames --to 127.0.0.1:1 --rows 8 --count 3"


def test_an_echo_is_read_as_a_median_and_a_way_is_half_of_it(program):
    lines = [{"event": "echo", "bytes": 7, "us": us} for us in (100, 300, 9000)]
    path, calls = program("client", *lines)
    client = Client(program=path)
    frames = Frames(client=client, tail="", echo="127.0.0.1:2", count=3)
    assert frames.echo_us(7) == pytest.approx(300)
    wire = Wire(route=Route(client=client, addresses=()), echo="127.0.0.1:3")
    assert wire.one_way_ms(7) == pytest.approx(0.15)
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["echo", "tcp-echo"]


def test_a_server_of_the_client_is_waited_for_and_ended(program, tmp_path):
    serve = (
        'while [ $# -gt 1 ]; do [ "$1" = --port-file ] && file=$2; shift; done; '
        'printf "4001\\n4002\\n" > "$file.new"; mv "$file.new" "$file"; exec sleep 60'
    )
    path, calls = program("client", more=serve)
    with Client(program=path).proxy(["127.0.0.1:9"], 2.5, tmp_path) as addresses:
        assert addresses == ("127.0.0.1:4001", "127.0.0.1:4002")
    assert "proxy --to 127.0.0.1:9 --delay-us 2500 --port-file" in calls.read_text()


def test_a_server_that_ends_is_an_error_with_its_words(program, tmp_path):
    path, _ = program("client", "no port is free", code=10)
    with pytest.raises(RouteError) as caught, Client(program=path).echo_server(tmp_path):
        pass
    assert "no port is free" in caught.value.cause


def _upstream(tmp_path, **programs):
    names = {"bench": tmp_path, "batched_bench": tmp_path, "rpc_server": tmp_path} | programs
    return Upstream(tools=UpstreamTools(**names), model=tmp_path / "model.gguf")


def test_llama_bench_is_asked_for_one_test_and_read(program, tmp_path):
    path, calls = program("llama-bench", "ggml: some words", {"samples_ns": [5e8]})
    upstream = _upstream(tmp_path, bench=path)
    assert upstream.bench(threads=2, generate=8) == pytest.approx(16)
    assert upstream.bench(threads=1, prompt=64, rpc=("127.0.0.1:1", "127.0.0.1:2")) == pytest.approx(128)
    first, second = calls.read_text().splitlines()
    assert "-t 2 -p 0 -n 8 -fa on -r 1" in first
    assert "-rpc" not in first
    assert "-rpc 127.0.0.1:1,127.0.0.1:2 -ngl 99 -sm layer -ts 1/1" in second


def test_llama_batched_bench_is_asked_for_one_test_and_read(program, tmp_path):
    path, calls = program("batched", {"pl": 4, "speed_pp": 1.0, "speed_tg": 33.5}, "", "llama_perf: words")
    assert _upstream(tmp_path, batched_bench=path).batched(
        threads=1, sessions=4, prompt=16, generate=100
    ) == pytest.approx(33.5)
    assert "-c 512 -npp 16 -ntg 100 -npl 4" in calls.read_text()


def test_words_without_a_result_are_an_error_that_shows_them():
    with pytest.raises(CheckError) as caught:
        json_lines("warning: nothing\n{broken\n")
    assert "warning: nothing" in caught.value.cause


def test_an_rpc_server_that_ends_is_an_error_with_its_words(program, tmp_path):
    path, _ = program("rpc-server", "unknown device", code=1)
    with (
        pytest.raises(RouteError) as caught,
        _upstream(tmp_path, rpc_server=path).rpc_servers(2, 1, tmp_path),
    ):
        pass
    assert "unknown device" in caught.value.cause


def test_upstream_computes_a_long_prompt_in_its_default_of_rows():
    assert upstream_frame(Settings()) == 512
    assert upstream_frame(Settings(prompt=64)) == 64


def test_a_file_that_was_just_read_is_in_memory_and_can_be_made_cold(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(1 << 20))
    assert bytes_in_memory(path) == 1 << 20
    try:
        make_cold(path)
    except HostError as kept:  # where temporary files lie in memory
        assert kept.remedy  # noqa: PT017
    else:
        assert bytes_in_memory(path) == 0
