"""The storage rule against real bind mounts, and the command line as a person types it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def _model(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", "from dgr_build.cli.main import main; main()", "model", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_bind_mount_of_a_home_folder_is_refused(tmp_path):
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare program on this host")
    probe = subprocess.run([unshare, "--mount", "--map-root-user", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"mount namespaces are not permitted here: {probe.stderr.decode().strip()}")
    # The namespace gets a /home of its own, so that nothing of this machine's is touched or needed.
    script = (
        'set -e; mount -t tmpfs none /home; mkdir /home/me "$1"; mount --bind /home/me "$1"; '
        'exec "$2" -c "from dgr_build.cli.main import main; main()" '
        'model tiny --arch llama --out "$1/m.gguf" --json'
    )
    done = subprocess.run(
        [
            unshare,
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            script,
            "sh",
            str(tmp_path / "models"),
            sys.executable,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 9, done.stderr
    answer = json.loads(done.stdout)
    assert answer["error"] == "artifact"
    assert "/home/me" in answer["cause"]


def test_tiny_then_show_verify_and_tamper(tmp_path):
    out = tmp_path / "with space" / "m.gguf"
    made = _model("tiny", "--arch", "deepseek4", "--split", "3", "--out", str(out), "--json")
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    assert len(facts["parts"]) == 3
    first = Path(facts["path"])
    assert json.loads(_model("verify", str(first), "--json").stdout)["digest"] == facts["digest"]
    assert facts["digest"] in _model("show", str(first)).stdout
    manifest = Path(facts["manifest"])
    manifest.write_text(manifest.read_text().replace('"n_layer": 43', '"n_layer": 42'))
    refused = _model("verify", str(first), "--json")
    assert refused.returncode == 9
    assert json.loads(refused.stdout)["error"] == "artifact"


def test_default_place_is_the_models_root(tmp_path):
    made = _model("tiny", "--arch", "llama", "--json", DGR_MODELS=str(tmp_path / "models"))
    assert Path(json.loads(made.stdout)["path"]).is_relative_to(tmp_path / "models")


@pytest.mark.parametrize(
    "wrong", [["--arch", "gpt2"], ["--arch", "llama", "--split", "0"], ["--arch", "llama", "--dtype", "q4"]]
)
def test_wrong_options_are_usage_errors(wrong, tmp_path):
    done = _model("tiny", *wrong, "--out", str(tmp_path / "m.gguf"), "--json")
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_maker_leaves_no_model_and_the_next_run_cleans_up(tmp_path, number):
    out = tmp_path / "m.gguf"
    command = [sys.executable, "-c", "from dgr_build.cli.main import main; main()", "model", "tiny"]
    command += ["--arch", "deepseek4", "--profile", "wide", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as maker:
        deadline = time.monotonic() + 60
        while not any(tmp_path.glob(".staging-*/m.gguf")) and time.monotonic() < deadline:
            time.sleep(0.01)
        maker.send_signal(number)
        code = maker.wait(timeout=60)
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert not out.exists()
    if number == signal.SIGINT:
        assert list(tmp_path.iterdir()) == []
    assert _model("tiny", "--arch", "llama", "--out", str(out), "--json").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "m.gguf.manifest.json"]
