"""Worker processes of a recipe: started with the recipe's settings, watched, and never left behind."""

import dataclasses
import os
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dgr_build.documents.recipe import Recipe
from dgr_build.documents.tls import Tls
from dgr_build.errors import HostError, RouteError, UsageError
from dgr_build.route.dev_certificates import make_dev_certificates
from dgr_build.route.program import Program
from dgr_build.route.tls import ClientTls, channel
from dgr_build.route.workers import arguments, workers

_SERVE = """
    import signal, sys, threading
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    import grpc
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

    print("loading", flush=True)
    server = grpc.server(ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    servicer.set("", health_pb2.HealthCheckResponse.{status})
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if "--tls-cert" in sys.argv:
        key, cert, ca = (
            Path(sys.argv[sys.argv.index(name) + 1]).read_bytes()
            for name in ("--tls-key", "--tls-cert", "--tls-client-ca")
        )
        shown = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", shown)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    file = Path(sys.argv[sys.argv.index("--port-file") + 1])
    staged = file.with_suffix(".new")
    staged.write_text(f"{{port}}\\n")
    staged.rename(file)
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    end.wait()
    server.stop(0)
"""
_DIE = """
    import sys
    for line in range(40):
        print("line", line)
    sys.exit("the GGUF is broken")
"""
_SLEEP = """
    import time
    print("still loading", flush=True)
    time.sleep(60)
"""
_ARTIFACT = SimpleNamespace(path=Path("/models/tiny.gguf"), digest="ab" * 32)


@pytest.fixture
def program(tmp_path):
    """A maker of programs that note their process id in the test's folder."""

    def make(name, body):
        file = tmp_path / name
        note = f"open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')"
        script = tmp_path / f"{name}.py"
        script.write_text(f"import os\n{note}\n{textwrap.dedent(body)}")
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')  # a shebang holds no spaces
        file.chmod(0o755)
        return Program(path=file)

    make.serving = lambda: make("serving", _SERVE.format(status="SERVING"))
    make.pids = lambda: [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    return make


def recipe_of(*lanes):
    stages = [{"name": f"s{n}", "first": n, "last": n + 1, "lane": lane} for n, lane in enumerate(lanes)]
    numerics = {"n_ubatch": 8, "n_threads": 2, "n_threads_batch": 3, "flash_attn": "on", "type_v": "q8_0"}
    model = {"tiny": {"arch": "llama"}}
    mode = "exact" if len(set(lanes)) == 1 else "mixed"
    return Recipe.model_validate(
        {
            "name": "made",
            "purpose": "a test",
            "model": model,
            "stages": stages,
            "mode": mode,
            "n_ctx": 96,
            "n_slots": 5,
            "numerics": numerics,
        }
    )


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def break_route(pid):
    os.kill(pid, 9)
    raise RouteError("the stage of layers [1, 2) failed", cause="connection reset")


def test_a_worker_is_started_with_what_the_recipe_says():
    recipe = recipe_of("cpu", "cpu")
    words = arguments(Program(path=Path("/bin/worker"), device="CUDA1"), recipe, recipe.stages[1], _ARTIFACT)
    assert words[0] == "/bin/worker"
    assert dict(zip(words[1::2], words[2::2], strict=True)) == {
        "--model": "/models/tiny.gguf",
        "--artifact-digest": "ab" * 32,
        "--first": "1",
        "--last": "2",
        "--device": "CUDA1",
        "--n-ctx": "96",
        "--slots": "5",
        "--mode": "exact",
        "--n-ubatch": "8",
        "--threads": "2",
        "--threads-batch": "3",
        "--flash-attn": "on",
        "--type-k": "f16",
        "--type-v": "q8_0",
    }


def test_workers_of_a_recipe_with_certificates_serve_over_tls(ws, program, tmp_path):
    folder = make_dev_certificates(tmp_path / "certs").folder
    recipe = recipe_of("cpu").model_copy(update={"tls": Tls.of_folder(folder)})
    seen = []

    def enter(argv, *, read=(), write=()):
        seen.extend(read)
        return [str(word) for word in argv]

    with workers(ws, recipe, {"cpu": replace(program.serving(), enter=enter)}, _ARTIFACT) as serving:
        tls = ClientTls.of(recipe.tls)
        with channel(serving[0].address, tls, []) as opened:
            answer = health_pb2_grpc.HealthStub(opened).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert folder in seen  # one that is entered sees its certificates


def test_a_handshake_that_fails_is_told(ws, program, tmp_path):
    mine, others = (Tls.of_folder(make_dev_certificates(tmp_path / name).folder) for name in ("a", "b"))
    files = {"worker_cert": others.worker_cert, "worker_key": others.worker_key}
    recipe = recipe_of("cpu").model_copy(update={"tls": mine.model_copy(update=files)})
    quick = {"cpu": replace(program.serving(), start_s=2)}
    with pytest.raises(RouteError) as caught, workers(ws, recipe, quick, _ARTIFACT):
        pass
    assert "does not serve in time" in caught.value.message
    assert "CERTIFICATE_VERIFY_FAILED" in caught.value.cause


def test_certificates_that_are_not_good_are_told_before_a_worker_is_started(ws, program, tmp_path):
    recipe = recipe_of("cpu").model_copy(update={"tls": Tls.of_folder(tmp_path)})
    with (
        pytest.raises(UsageError, match=r"ca\.pem"),
        workers(ws, recipe, {"cpu": program.serving()}, _ARTIFACT),
    ):
        pass
    assert not (tmp_path / "pids").exists()


def test_workers_serve_while_the_block_runs_and_are_gone_after_it(ws, program):
    with workers(ws, recipe_of("cpu", "cpu"), {"cpu": program.serving()}, _ARTIFACT) as serving:
        assert [worker.stage.name for worker in serving] == ["s0", "s1"]
        assert len({worker.address for worker in serving}) == 2
        for worker in serving:
            with grpc.insecure_channel(worker.address) as channel:
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            assert "loading" in worker.log.read_text()
        assert all(is_running(pid) for pid in program.pids())
    assert not any(is_running(pid) for pid in program.pids())
    assert list((ws.root / "run").iterdir()) == []


def test_each_stage_is_run_by_the_program_of_its_lane(ws, program):
    programs = {"cpu": program.serving(), "cuda": program("other", _SERVE.format(status="SERVING"))}
    with workers(ws, recipe_of("cpu", "cuda"), programs, _ARTIFACT) as serving:
        assert [Path(worker.child.argv[0]).name for worker in serving] == ["serving", "other"]


def test_a_worker_that_dies_at_the_start_is_named_with_its_last_words(ws, program):
    programs = {"cpu": program.serving(), "cuda": program("dying", _DIE)}
    with (
        pytest.raises(RouteError) as caught,
        workers(ws, recipe_of("cpu", "cuda"), programs, _ARTIFACT),
    ):
        pytest.fail("it serves")
    assert "s1 [1, 2)" in caught.value.message
    assert "ended with 1" in caught.value.message
    assert "the GGUF is broken" in caught.value.cause
    assert "line 39" in caught.value.cause
    assert "line 0" not in caught.value.cause
    assert "s1.log" in caught.value.remedy
    assert not any(is_running(pid) for pid in program.pids())


@pytest.mark.parametrize("body", [_SLEEP, _SERVE.format(status="NOT_SERVING")], ids=["silent", "unhealthy"])
def test_a_worker_that_never_serves_ends_in_an_error(ws, program, body):
    begin = time.monotonic()
    with (
        pytest.raises(RouteError) as caught,
        workers(
            ws, recipe_of("cpu"), {"cpu": dataclasses.replace(program("never", body), start_s=1.5)}, _ARTIFACT
        ),
    ):
        pytest.fail("it serves")
    assert time.monotonic() - begin < 8
    assert "s0 [0, 1)" in caught.value.message
    assert "loading" in caught.value.cause
    assert not any(is_running(pid) for pid in program.pids())


@pytest.mark.parametrize("end", [KeyboardInterrupt, ValueError])
def test_workers_are_stopped_whatever_ends_the_block(ws, program, end):
    with (
        pytest.raises(end),
        workers(ws, recipe_of("cpu", "cpu"), {"cpu": program.serving()}, _ARTIFACT),
    ):
        raise end
    assert len(program.pids()) == 2
    assert not any(is_running(pid) for pid in program.pids())


def test_a_program_that_cannot_be_started_leaves_none_behind(ws, program, tmp_path):
    programs = {"cpu": program("sleeping", _SLEEP), "cuda": Program(path=tmp_path / "missing")}
    with pytest.raises(HostError), workers(ws, recipe_of("cpu", "cuda"), programs, _ARTIFACT):
        pytest.fail("it serves")
    deadline = time.monotonic() + 5
    pids = program.pids() if (tmp_path / "pids").exists() else []
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(is_running(pid) for pid in pids)


def test_an_error_of_the_route_tells_which_worker_has_ended(ws, program):
    with (
        pytest.raises(RouteError) as caught,
        workers(ws, recipe_of("cpu", "cpu"), {"cpu": program.serving()}, _ARTIFACT) as serving,
    ):
        break_route(serving[1].child.pid)
    assert "connection reset" in caught.value.cause
    assert "s1 [1, 2) ended with -9" in caught.value.cause
    assert "s0" not in caught.value.cause


def test_an_error_of_a_route_whose_workers_live_stays_as_it_is(ws, program):
    with (
        pytest.raises(RouteError) as caught,
        workers(ws, recipe_of("cpu"), {"cpu": program.serving()}, _ARTIFACT),
    ):
        raise RouteError("a stage failed", cause="a value is not finite")
    assert caught.value.cause == "a value is not finite"


def test_a_worker_is_started_through_its_environment_with_its_variables(ws, program, tmp_path):
    """What it reads is its own folder and the model's; what it writes is where its port goes."""
    inner = program.serving()
    seen = []

    def enter(argv, *, read=(), write=()):
        seen.append((tuple(read), tuple(write)))
        return ["/usr/bin/env", f"DGR_ENTERED={tmp_path}", *argv]

    script = tmp_path / "serving.py"
    script.write_text(
        f"import os\nassert os.environ['DGR_ENTERED'], os.environ['DGR_OWN']\n"
        f"assert os.environ['DGR_OWN'] == '7'\n{script.read_text()}"
    )
    entered = replace(inner, enter=enter, variables={"DGR_OWN": "7"})
    with workers(ws, recipe_of("cpu", "cpu"), {"cpu": entered}, _ARTIFACT) as serving:
        assert [worker.child.argv[0] for worker in serving] == ["/usr/bin/env"] * 2
        for read, write in seen:
            assert set(read) == {inner.path.parent, _ARTIFACT.path.parent}
            assert len(write) == 1
            assert write[0].is_relative_to(ws.root / "run")
    assert not any(is_running(pid) for pid in program.pids())
