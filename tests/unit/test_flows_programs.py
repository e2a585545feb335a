"""The programs of built lanes: which of them is started, and with what."""

import json
import os
from types import SimpleNamespace

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import CheckError, HostError, UsageError
from dgr_build.flows import run
from dgr_build.flows.lane_trial import run_trial, trials
from dgr_build.flows.programs import (
    lane_digest_of,
    program_of,
    reference_of,
    software_device,
    worker_of,
)
from dgr_build.lanes.environment.made import Made
from dgr_build.lanes.lane import Chosen


@pytest.fixture
def matrix(project_root):
    """The project's lanes, with lane cuda on this machine and with a second profile."""
    matrix = load_matrix(project_root / "lanes" / "matrix.toml")
    changes = {
        "environment": "host",
        "profiles": {"quick": ("90-real",), "other": ("80-real",)},
        "run_variables": {"DGR_TEST": "7"},
    }
    changed = matrix.lane["cuda"].model_copy(update=changes)
    return matrix.model_copy(update={"lane": {**matrix.lane, "cuda": changed}})


@pytest.fixture
def built(ws):
    """A maker of programs in build folders, with their age in seconds."""

    def make(folder, name="dgr-shard-worker", *, age=0, script="exit 1"):
        file = ws.build(folder) / "bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        os.utime(file, (1_800_000_000 - age, 1_800_000_000 - age))
        return file

    return make


@pytest.mark.parametrize("newest", ["cuda", "cuda-quick", "cuda-other"])
def test_of_several_profiles_the_one_that_was_built_last_is_taken(ws, matrix, built, newest):
    for folder in ("cuda", "cuda-quick", "cuda-other"):
        built(folder, age=0 if folder == newest else 60)
    built("cuda-unknown", age=-60)  # no profile of the lane
    assert worker_of(ws, matrix, "cuda").path == ws.build(newest) / "bin" / "dgr-shard-worker"


def test_a_profile_alone_will_do(ws, matrix, built):
    path = built("cuda-quick")
    assert worker_of(ws, matrix, "cuda").path == path


def test_a_worker_comes_with_its_lanes_device_and_variables(ws, matrix, built):
    built("cuda")
    program = worker_of(ws, matrix, "cuda")
    assert program.device == "CUDA0"
    assert program.variables["DGR_TEST"] == "7"


def test_a_worker_keeps_the_network_for_its_route(ws, matrix, built):
    path = built("cpu")
    assert worker_of(ws, matrix, "cpu").enter([path, "--x"], read=(path.parent,)) == [str(path), "--x"]


def test_a_lane_that_was_not_built_says_how(ws, matrix):
    for find in (lambda: worker_of(ws, matrix, "cuda"), lambda: reference_of(ws, "cuda")):
        with pytest.raises(HostError) as caught:
            find()
        assert caught.value.remedy == "dgr-build lane cuda"


def test_a_lane_whose_environment_is_gone_says_how_it_is_made_again(ws, project_root, built):
    matrix = load_matrix(project_root / "lanes" / "matrix.toml")
    built("vulkan")
    lock = ws.environment_lock("trixie")
    lock.parent.mkdir(parents=True)
    lock.write_bytes((project_root / "lanes" / "locks" / lock.name).read_bytes())
    with pytest.raises(HostError) as caught:
        worker_of(ws, matrix, "vulkan")
    assert "dgr-build env" in caught.value.remedy


def test_an_unknown_lane_is_a_mistake_in_typing(ws, matrix):
    with pytest.raises(UsageError):
        worker_of(ws, matrix, "gpu")


def test_the_reference_of_a_lane_is_beside_its_worker(ws, built):
    path = built("cpu-reference", "dgr-reference")
    assert reference_of(ws, "cpu") == path


def test_the_lane_digest_is_the_one_that_the_worker_reports_in_its_environment(ws, matrix, built):
    said = json.dumps({"lane_digest": "ab" * 32})
    built("cuda", script=f'[ "$DGR_TEST" = 7 ] && [ "$1" = --version ] && echo \'{said}\'')
    assert lane_digest_of(worker_of(ws, matrix, "cuda")) == "ab" * 32


def test_a_worker_that_cannot_start_here_says_why(ws, matrix, built):
    built("cuda", script="echo 'libcudart.so.13: cannot open' >&2; exit 127")
    with pytest.raises(CheckError) as caught:
        lane_digest_of(worker_of(ws, matrix, "cuda"))
    assert "libcudart.so.13" in caught.value.cause


@pytest.fixture
def listing(ws, project_root, built):
    """A maker of workers for a device, which list what they are told to."""
    lane = load_matrix(project_root / "lanes" / "matrix.toml").lane["vulkan"]
    made = Made(name="host", kind="host", digest="")

    def make(*lines, code=0):
        text = " ".join(f"'{line}'" for line in lines)
        path = built("vulkan", script=f'[ "$1" = --list-devices ] && printf "%s\\n" {text}; exit {code}')
        return program_of(ws, lane, path, made)

    return make


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize(
    ("listed", "software"),
    [
        ("Vulkan0: llvmpipe (LLVM 19.1.7, 256 bits)", True),
        ("Vulkan0: SwiftShader Device (Subzero)", True),
        ("Vulkan0: NVIDIA H200", False),
    ],
)
def test_what_a_worker_lists_decides_whether_it_computes_on_software(listing, listed, software, expected):
    worker = listing("Vulkan1: llvmpipe of another", listed, "CPU: a processor")
    found = software_device(worker, "vulkan", expected=expected)
    assert found == (f"the software device {listed}" if software else "")


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize(("lines", "code"), [(["CPU: a processor"], 0), (["Vulkan0: llvmpipe"], 1)])
def test_a_worker_that_does_not_list_its_device_is_taken_as_the_machine_looks(listing, lines, code, expected):
    assert bool(software_device(listing(*lines, code=code), "vulkan", expected=expected)) == expected


def test_a_lane_that_computes_on_the_processor_is_not_asked(ws, matrix, built):
    built("cpu", script="touch $0.asked")
    assert software_device(worker_of(ws, matrix, "cpu"), "cpu", expected=False) == ""
    assert not list(ws.build("cpu").glob("bin/*.asked"))


def test_a_trial_runs_the_worker_that_was_built_though_another_profile_is_newer(
    ws, matrix, built, monkeypatch
):
    full, quick = built("cuda", age=60), built("cuda-quick")
    chosen = Chosen(name="cuda", matrix=matrix)
    made = Made(name="host", kind="host", digest="")
    here = SimpleNamespace(
        ws=ws, planned=SimpleNamespace(chosen=chosen, made=made), built=SimpleNamespace(worker=full)
    )
    asked = []

    def run_recipe(_, request):
        asked.append(request)
        said = {
            "tokens_per_second": {},
            "token_ids": [],
            "rows_compared": 1,
            "max_abs_diff": 0.0,
            "nmse": 0.0,
        }
        return SimpleNamespace(to_json=lambda: said)

    monkeypatch.setattr(run, "run_recipe", run_recipe)
    assert worker_of(ws, matrix, "cuda").path == quick
    for trial in trials(chosen):
        run_trial(here, trial)
    assert {request.workers["cuda"].path for request in asked} == {full}
    assert {request.workers["cuda"].device for request in asked} == {"CUDA0"}
