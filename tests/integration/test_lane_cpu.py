"""The CPU lane as a person gets it: one command, then seconds; what it builds is what it says."""

import dataclasses
import json
import os
import subprocess
import sys
import time

import pytest
from elftools.elf.elffile import ELFFile

from dgr_build.documents.evidence import Record
from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import CheckError, HostError
from dgr_build.flows.lane_source import publish_source
from dgr_build.lanes import doctor
from dgr_build.lanes.build import Job, Options, build_plan
from dgr_build.lanes.environment.manage import enter
from dgr_build.lanes.inspect import Limits, ask_version, inspect_worker
from dgr_build.lanes.isolation import without_network
from dgr_build.lanes.lane import Chosen, inspect_lane, plan_lane, worker_places
from dgr_build.workspace import remove


@pytest.fixture(scope="module")
def planned(project_workspace, built_cpu_lane):
    ws = project_workspace
    matrix = load_matrix(ws.matrix_file)
    chosen = Chosen(name="cpu", matrix=matrix)
    return plan_lane(ws, chosen, publish_source(ws).facts, enter(ws, matrix, chosen.lane.environment))


def _lane(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-P", "-m", "dgr_build", "lane", "cpu", *arguments, "--json"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def outcome(built_cpu_lane):
    """What `dgr-build lane cpu` prints; tests and smoke run count when they passed on this worker before."""
    done = _lane()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_worker_says_what_it_was_built_from(built_cpu_lane, planned):
    said = ask_version(built_cpu_lane.worker)
    source = planned.worker.source
    assert said["lane"] == "cpu"
    assert said["lane_digest"] == planned.worker.digest
    assert (said["commit"], said["base_tree"]) == (source.commit, source.base_tree)
    assert said["patched_tree"] == source.patched_tree
    assert said["backends"] == ["CPU"]


def test_one_command_builds_tests_and_tries_the_lane(outcome, built_cpu_lane):
    assert outcome["digest"] == built_cpu_lane.digest
    assert outcome["test"]["passed"] > 0
    assert outcome["smoke"]["max_abs_diff"] == 0
    assert outcome["smoke"]["logits_equal"] is True
    assert outcome["smoke"]["token_ids"] == outcome["smoke"]["whole_token_ids"]
    assert set(outcome["smoke"]["tokens_per_second"]) == {"route", "whole"}


def test_the_evidence_of_the_lane_is_about_this_worker(outcome, built_cpu_lane):
    with open(outcome["evidence"], "rb") as file:  # noqa: PTH123 - a path as printed
        record = Record.model_validate_json(file.read())
    assert record.digests.lane_digest == built_cpu_lane.digest
    assert record.digests.worker_sha256 == built_cpu_lane.sha256
    (twice,) = (result for result in record.results if "--reproduce" in result.needs)
    assert twice.verdict == "not run"
    assert {result.verdict for result in record.results if result is not twice} == {"passed"}


def test_the_second_run_takes_seconds_and_builds_nothing(outcome):
    started = time.monotonic()
    again = json.loads(_lane().stdout)
    assert time.monotonic() - started < 20
    assert again["steps"] == 0
    assert again["evidence"] == outcome["evidence"]
    assert again["seconds"]["test"] < 1


def test_variables_of_the_caller_do_not_change_the_lane(outcome):
    foreign = {
        "CFLAGS": "-march=native",
        "CXXFLAGS": "-O0",
        "CC": "false",
        "SOURCE_DATE_EPOCH": "1",
        "CPATH": "/x",
    }
    again = json.loads(_lane("--only", "inspect", **foreign).stdout)
    assert again["digest"] == outcome["digest"]
    assert again["steps"] == 0


def test_the_dry_run_names_the_digest_that_the_worker_reports(built_cpu_lane):
    assert json.loads(_lane("--dry-run").stdout)["digest"] == built_cpu_lane.digest


def test_the_worker_needs_nothing_but_the_c_and_c_plus_plus_runtime(built_cpu_lane):
    with built_cpu_lane.worker.open("rb") as file:
        needed = {tag.needed for tag in ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
    assert needed <= {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}


@pytest.mark.parametrize("backend", ["CUDA", "Vulkan"])
def test_a_backend_that_is_not_really_inside_fails_the_inspection(built_cpu_lane, planned, backend):
    limits = Limits(
        libraries={*planned.matrix.defaults.needed_libraries, "ld-linux-x86-64.so.2"},
        run_path=planned.chosen.lane.run_path,
        glibc=planned.toolchain.libc.removeprefix("glibc "),
        private=[],
    )
    with pytest.raises(CheckError) as caught:
        inspect_worker(
            built_cpu_lane.worker, planned.worker, limits, made=planned.made, must_contain=["CPU", backend]
        )
    assert backend in caught.value.message


def test_a_processor_that_lacks_the_instructions_never_starts_the_worker(
    project_workspace, built_cpu_lane, planned, tmp_path, monkeypatch
):
    poor = tmp_path / "cpuinfo"
    poor.write_text("flags\t\t: fpu sse4_2 avx\n")
    lacking = doctor.missing_cpu_flags
    monkeypatch.setattr(doctor, "missing_cpu_flags", lambda isa, _=None: lacking(isa, poor))
    built = build_plan(_job(project_workspace, planned, worker_places(project_workspace, "cpu")), Options())
    trap = dataclasses.replace(built, program=tmp_path / "must-not-run")
    with pytest.raises(HostError) as caught:
        inspect_lane(project_workspace, planned, trap, None)
    assert "avx2" in caught.value.cause


def _job(ws, planned, places):
    return Job(ws=ws, matrix=planned.matrix, plan=planned.worker, places=places, toolchain=planned.toolchain)


def test_the_whole_worker_builds_without_a_network_from_a_source_that_cannot_be_written(
    project_workspace, built_cpu_lane, planned
):
    if not without_network():
        pytest.skip("this machine lets nobody unshare its network")
    ws = project_workspace
    before = _snapshot(ws.source)
    # Beside the lane's own folder, so that the compiler cache knows the files.
    places = dataclasses.replace(worker_places(ws, "cpu"), build=ws.build("cpu-offline"))
    with ws.lock("lanes"):
        remove(places.build)
        built = build_plan(_job(ws, planned, places), Options())
    assert built.steps > 0
    assert built.network_cut
    assert built.digest == built_cpu_lane.digest
    assert built.program.read_bytes() == built_cpu_lane.worker.read_bytes()
    assert _snapshot(ws.source) == before


def _snapshot(folder):
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.lstat().st_mode)
        for path in folder.rglob("*")
    }
