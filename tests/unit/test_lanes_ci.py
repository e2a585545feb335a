"""The lanes as jobs: what every job holds, in every format, and what is refused."""

import json
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dgr_build.cli.main import run
from dgr_build.documents.base import parse
from dgr_build.documents.matrix import Matrix, load_matrix
from dgr_build.errors import UsageError
from dgr_build.lanes.ci import include_list, jobs
from dgr_build.lanes.ci_gitlab import gitlab_jobs
from dgr_build.lanes.ci_workflow import workflow

_FILE = Path(__file__).resolve().parents[2] / "lanes" / "matrix.toml"


@pytest.fixture(scope="module")
def matrix():
    return load_matrix(_FILE)


@pytest.fixture
def data():
    """The project's matrix as plain data, to be spoilt."""
    return tomllib.loads(_FILE.read_text())


def _changed(data):
    return parse(data, Matrix, "matrix.toml")


def test_every_lane_has_a_job_on_each_kind_of_event(matrix):
    started = {name: set() for name in matrix.lane}
    for job in jobs(matrix):
        started[job.lane] |= set(job.events)
    assert started == {name: {"pull_request", "push", "schedule"} for name in matrix.lane}


def test_a_job_types_one_command_that_names_lane_profile_and_packages(matrix):
    for job in jobs(matrix):
        profile = ["--profile", job.profile] if job.profile else []
        wanted = ["./dgr-build", "lane", job.lane, *profile, "--package", "wheel", "--package", "tar"]
        assert list(job.command) == wanted


def test_a_lane_without_an_entry_gets_one_plain_job_on_the_runner_of_its_processor(data):
    data["lane"]["cpu-arm"] = data["lane"]["cpu"] | {"isa": "arm"}
    data["isa"]["arm"] = data["isa"]["apple-m1"] | {"machine": "aarch64"}
    (job,) = jobs(_changed(data), "cpu-arm")
    assert (job.name, job.runs_on, job.profile) == ("cpu-arm", "ubuntu-24.04-arm", "")
    assert job.events == ("pull_request", "push", "schedule")


def test_a_debian_root_is_prepared_for_and_a_plain_host_is_not(matrix):
    by_lane = {job.lane: job for job in jobs(matrix)}
    assert {"mmdebstrap", "bubblewrap"} <= set(by_lane["vulkan"].install)
    assert by_lane["vulkan"].settings
    assert not {"mmdebstrap", "bubblewrap"} & set(by_lane["cpu"].install)
    assert by_lane["cpu"].settings == ()


def test_the_metal_lane_is_built_on_a_mac(matrix):
    (job,) = jobs(matrix, "metal")
    assert job.runs_on.startswith("macos-")
    assert job.manager == "brew"


@pytest.mark.parametrize(
    ("pattern", "lanes"), [("cu*", {"cuda"}), ("*-quick", {"cuda", "rocm"}), ("[vm]*", {"vulkan", "metal"})]
)
def test_a_glob_chooses_by_lane_or_job(matrix, pattern, lanes):
    assert {job.lane for job in jobs(matrix, pattern)} == lanes


@given(pattern=st.text(max_size=8))
def test_any_glob_yields_jobs_in_their_order_or_names_the_lanes(matrix, pattern):
    every = jobs(matrix)
    if any(fnmatchcase(name, pattern) for job in every for name in (job.lane, job.name)):
        chosen = jobs(matrix, pattern)
        assert chosen == tuple(job for job in every if job in chosen)
        return
    with pytest.raises(UsageError) as caught:
        jobs(matrix, pattern)
    assert [name for name in matrix.lane if name not in caught.value.cause] == []


def test_an_unknown_glob_is_a_usage_error_that_names_the_lanes(capsys, matrix):
    assert run(["matrix", "--only", "cudda*"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert all(name in told.err for name in matrix.lane)


def test_a_job_for_no_lane_is_refused_by_name(data):
    data["ci"]["lane"]["cudda"] = {"jobs": [{}]}
    with pytest.raises(UsageError) as caught:
        jobs(_changed(data))
    assert "ci.lane.cudda" in caught.value.message
    assert caught.value.remedy


def test_a_job_for_no_profile_of_its_lane_is_refused(data):
    data["ci"]["lane"]["cuda"] = {"jobs": [{"profile": "quikc"}]}
    with pytest.raises(UsageError) as caught:
        jobs(_changed(data))
    assert "quikc" in caught.value.message
    assert "quick" in caught.value.cause


def test_two_jobs_of_one_name_are_refused(data):
    data["ci"]["lane"]["cpu"] = {"jobs": [{}, {"events": ["push"]}]}
    with pytest.raises(UsageError) as caught:
        jobs(_changed(data))
    assert "cpu" in caught.value.cause


def test_a_lane_that_no_runner_fits_is_refused_by_name(data):
    del data["ci"]["runner"]["macos-arm64"]
    with pytest.raises(UsageError) as caught:
        jobs(_changed(data))
    assert "metal" in caught.value.cause


def test_a_matrix_without_ci_says_so(data):
    del data["ci"]
    with pytest.raises(UsageError) as caught:
        jobs(_changed(data))
    assert "[ci]" in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (("runner", "linux-x86_64", "packages"), ["g++; true"], "packages"),
        (("environment", "sysroot", "settings"), ["a=$(id)"], "settings"),
        (("artifacts",), ["../out"], "artifacts"),
        (("artifacts",), ["/etc"], "artifacts"),
        (("cache_folder",), "${{ github.token }}", "cache_folder"),
        (("lane", "cuda", "jobs"), [{"profile": "quick two"}], "profile"),
        (("lane", "cuda", "jobs"), [{"timeout_minutes": 361}], "timeout_minutes"),
        (("lane", "cuda", "jobs"), [{"events": ["push", "push"]}], "events"),
        (("action", "checkout", "version"), "v6", "version"),
        (("action", "checkout", "commit"), "de0fac2", "commit"),
        (("action",), {}, "action"),
    ],
)
def test_what_would_trouble_a_shell_a_path_or_a_runner_is_refused(data, place, value, field):
    *folders, last = place
    spot = data["ci"]
    for name in folders:
        spot = spot[name]
    spot[last] = value
    with pytest.raises(UsageError) as caught:
        _changed(data)
    assert field in caught.value.cause


def test_an_action_without_a_commit_says_what_is_open_and_is_used_by_its_exact_version(data):
    del data["ci"]["action"]["cache"]["commit"]
    assert "uses: actions/cache@v5.0.1\n" in workflow(_changed(data))
    data["ci"]["action"]["cache"]["open"] = ""
    with pytest.raises(UsageError) as caught:
        _changed(data)
    assert "open" in caught.value.cause


def test_the_github_format_is_one_line_of_flat_values(capsys):
    assert run(["matrix", "--format", "github"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    entries = json.loads(out)["include"]
    assert entries
    assert all(isinstance(value, str | int) for entry in entries for value in entry.values())


def test_all_formats_hold_the_same_jobs_and_commands(matrix, capsys):
    wanted = {job.name: job.command_line for job in jobs(matrix)}
    assert {entry["name"]: entry["command"] for entry in include_list(jobs(matrix))["include"]} == wanted
    gitlab = YAML(typ="safe").load(gitlab_jobs(matrix))
    assert {name: job["script"] for name, job in gitlab.items()} == {n: [line] for n, line in wanted.items()}
    assert run(["matrix"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {job["name"]: " ".join(job["command"]) for job in told} == wanted


def test_one_matrix_gives_one_text(data):
    assert workflow(_changed(data)) == workflow(load_matrix(_FILE))
    assert gitlab_jobs(_changed(data)) == gitlab_jobs(load_matrix(_FILE))


def test_different_tasks_at_once_are_refused():
    assert run(["matrix", "--check", "--write"]) == 2
    assert run(["matrix", "--format", "json", "--workflow"]) == 2
    assert run(["matrix", "--write", "--only", "cpu"]) == 2
    assert run(["matrix", "--format", "jenkins"]) == 2
