"""Real workers over mutual TLS: the same bits, certificates that change meanwhile, and clear refusals."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time

import grpc
import numpy as np
import pytest

from dgr_build.documents.tls import Tls
from dgr_build.errors import RouteError
from dgr_build.flows.run import RunRequest, run_recipe
from dgr_build.process import Child
from dgr_build.route.client import RouteClient
from dgr_build.route.dev_certificates import make_dev_certificates
from dgr_build.route.program import Program
from dgr_build.route.tls import ClientTls

from .page_script import free_port, run_page

_RECIPE = "llama-tiny-2stage"
_START_S = 60


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return make_dev_certificates(tmp_path_factory.mktemp("tls") / "certs").folder


def _tls_words(folder):
    files = Tls.of_folder(folder)
    return ["--tls-cert", files.worker_cert, "--tls-key", files.worker_key, "--tls-client-ca", files.ca]


def _command(lane, artifact, *words):
    command = [lane.worker, "--model", artifact.path, "--artifact-digest", artifact.digest, *words]
    return [str(word) for word in command]


@pytest.fixture
def tail(built_cpu_lane, tiny, certs, tmp_path):
    """A whole dense model behind TLS; its certificates may be replaced."""
    folder = tmp_path / "own"
    shutil.copytree(certs, folder)
    log, port = tmp_path / "log", tmp_path / "port"
    words = [
        "--listen",
        "0.0.0.0:0",
        "--port-file",
        port,
        "--n-ctx",
        "64",
        "--n-ubatch",
        "16",
        "--slots",
        "2",
    ]
    with log.open("wb") as out:
        command = _command(built_cpu_lane, tiny("llama"), *words, *_tls_words(folder))
        child = Child(command, stdout=out, stderr=out)
    deadline = time.monotonic() + _START_S
    while not port.exists():
        assert child.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)
    child.folder, child.log, child.address = folder, log, f"127.0.0.1:{int(port.read_text())}"
    yield child
    child.stop()


def _until(log, text):
    deadline = time.monotonic() + 10
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def test_a_recipe_over_mutual_tls_gives_the_bits_of_the_plain_run_and_of_the_whole_model(
    project_workspace, built_cpu_lane, certs, record_property
):
    request = {
        "recipe": _RECIPE, "tokens": (5, 6, 7, 8, 9), "max_tokens": 8, "compare": True,
        "workers": {"cpu": Program(path=built_cpu_lane.worker)},
    }  # fmt: skip
    plain = run_recipe(project_workspace, RunRequest(**request))
    private = run_recipe(project_workspace, RunRequest(**request, tls=certs))
    assert (plain.transport, private.transport) == ("plaintext", "mutual TLS")
    assert private.token_ids == plain.token_ids
    assert private.logits.tobytes() == plain.logits.tobytes()
    assert private.parity.sound
    record_property("metric", f'{{"rows": {len(private.logits)}, "max_abs_diff": 0.0}}')


def test_new_certificates_are_taken_on_sighup_and_bad_ones_are_not(tail, certs, tmp_path):
    first, second = ClientTls.of(Tls.of_folder(certs)), make_dev_certificates(tmp_path / "second").folder
    ids = [3, 4, 5]
    with RouteClient([tail.address], tls=first) as client:
        begun = client.generate(ids, 6)
        tokens = [next(begun).token]
        (tail.folder / "worker.pem").write_text("not PEM\n")
        tail.signal(signal.SIGHUP)
        _until(tail.log, "the old certificates stay")
        assert str(tail.folder / "worker.pem") in tail.log.read_text()
        with RouteClient([tail.address], tls=first):
            pass
        for file in second.iterdir():
            shutil.copy(file, tail.folder)
        tail.signal(signal.SIGHUP)
        _until(tail.log, "certificates_reloaded")
        with pytest.raises(RouteError, match="does not answer"):
            RouteClient([tail.address], tls=first)
        with RouteClient([tail.address], tls=ClientTls.of(Tls.of_folder(second))) as other:
            expected = [step.token for step in other.generate(ids, 6)]
        tokens += [step.token for step in begun]  # the session that was open goes on
    assert tokens == expected
    tail.signal(signal.SIGTERM)
    assert tail.wait(20) == 0


def test_only_a_client_of_the_authority_gets_an_answer(tail, certs, tmp_path):
    others = make_dev_certificates(tmp_path / "others").folder
    trusting = ClientTls(ca=certs / "ca.pem")
    foreign = ClientTls(ca=certs / "ca.pem", cert=others / "client.pem", key=others / "client-key.pem")
    for tls in (None, trusting, foreign):
        with pytest.raises(RouteError, match="does not answer"):
            RouteClient([tail.address], tls=tls)
    with RouteClient([tail.address], tls=ClientTls.of(Tls.of_folder(certs))) as client:
        assert client.n_ctx == 64


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tls-cert", "absent.pem", "--tls-key", "worker-key.pem"], ["absent.pem", "No such file"]),
        (["--tls-cert", "worker.pem", "--tls-key", "client-key.pem"], ["client-key.pem", "not the key of"]),
        (["--tls-cert", "README.txt", "--tls-key", "worker-key.pem"], ["README.txt", "no PEM certificate"]),
        (["--tls-cert", "worker.pem"], ["--tls-key"]),
        (["--tls-client-ca", "ca.pem"], ["--tls-cert"]),
        (["--listen", "0.0.0.0:0"], ["0.0.0.0:0", "--tls-cert", "--insecure-plaintext"]),
        (["--allow-next", "10.0.0.0/8"], ["10.0.0.0/8", "--tls-cert"]),
        (["--allow-next", "10.0.0.0/40"], ["10.0.0.0/40", "--allow-next"]),
        (["--insecure-plaintext", "--tls-cert", "worker.pem", "--tls-key", "worker-key.pem"], ["--tls-cert"]),
    ],
    ids=lambda value: " ".join(value[:2]) if value[0].startswith("--") else "",
)
def test_a_start_that_cannot_be_private_says_why_before_the_model_is_loaded(
    built_cpu_lane, certs, words, said
):
    absent = ["--model", "/nonexistent/model.gguf", "--artifact-digest", "0" * 64]
    command = [str(built_cpu_lane.worker), *absent, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=certs)
    assert done.returncode == 2
    for part in said:
        assert part in done.stderr


def test_a_next_stage_that_is_not_on_the_list_is_refused_by_name(start_worker, tiny, on_the_wire):
    llama = tiny("llama")
    head = start_worker(llama, 0, 6, allow_next="127.0.0.1:1").ready()
    last = start_worker(llama, 6, 12).ready()
    session = on_the_wire.Session([head, last], open_now=False)
    with pytest.raises(on_the_wire.Refused) as caught:
        on_the_wire.ask(head.stub.OpenSession, session.open_request(0))
    assert caught.value.code == grpc.StatusCode.PERMISSION_DENIED
    assert caught.value.field == "successor_address"
    assert last.address in caught.value.text
    assert f"--allow-next {last.address}" in caught.value.text
    assert caught.value.rejected.legal == "127.0.0.1:1"
    allowed = start_worker(llama, 0, 6, allow_next=last.address).ready()
    with on_the_wire.Session([allowed, last]) as session:
        assert np.isfinite(session.run(on_the_wire.prompt(8))).all()


def test_the_commands_of_the_page_for_operators_work_as_they_are(project_workspace, built_cpu_lane, tmp_path):
    replaced = [
        ("CERTS=certs", f"CERTS='{tmp_path / 'certs'}'"), ("7001", free_port()), ("7002", free_port()),
        (".dgr/build/cpu/bin/dgr-shard-worker", f"'{built_cpu_lane.worker}'"),
    ]  # fmt: skip
    project, log = project_workspace.project, tmp_path / "log"
    code, said = run_page(project, "workers.md", "Two workers with mutual TLS", replaced, log)
    assert code == 0, said
    assert "mutual TLS" in said
    assert "equal the whole model's, max |d| = 0" in said
    assert said.count("certificates_reloaded") == 2
