"""The committed workflow: up to date, safe, valid by its schema, and clean for an auditor of workflows."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dgr_build.cli.main import run
from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import CheckError
from dgr_build.lanes.ci import jobs
from dgr_build.lanes.ci_gitlab import gitlab_jobs
from dgr_build.lanes.ci_workflow import RENEW, check_workflow, workflow, write_workflow

_ROOT = Path(__file__).resolve().parents[2]
_COMMITTED = _ROOT / ".github" / "workflows" / "lanes.yml"
_PREPARATIONS = ("sudo apt-get ", "brew install ", "sudo sysctl ")


@pytest.fixture(scope="module")
def matrix():
    return load_matrix(_ROOT / "lanes" / "matrix.toml")


@pytest.fixture(scope="module")
def document():
    return YAML(typ="safe").load(_COMMITTED.read_text())


def _program(name, *arguments):
    program = Path(sys.executable).parent / name
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def _valid(schema, file):
    return _program("check-jsonschema", "--builtin-schema", schema, file)


def _audited(file):
    return _program("zizmor", "--offline", "--no-config", "--persona", "pedantic", file)


def _steps(document):
    return [(name, step) for name, job in document["jobs"].items() for step in job["steps"]]


def test_the_committed_workflow_is_the_one_that_the_matrix_gives(matrix):
    assert _COMMITTED.read_text() == workflow(matrix), RENEW
    assert run(["matrix", "--check"]) == 0


@pytest.mark.parametrize("left", [None, "", "# another\n"])
def test_an_out_of_date_workflow_fails_the_check_with_the_command_that_renews_it(matrix, tmp_path, left):
    file = tmp_path / "lanes.yml"
    if left is not None:
        file.write_text(left)
    with pytest.raises(CheckError) as caught:
        check_workflow(matrix, file)
    assert RENEW in caught.value.remedy
    assert write_workflow(matrix, file)
    check_workflow(matrix, file)
    assert not write_workflow(matrix, file)


def test_a_changed_matrix_makes_the_check_fail(matrix, tmp_path, monkeypatch, isolated):
    project = tmp_path / "project"
    for name in ("lanes/matrix.toml", "manifests/llama.cpp.toml", ".github/workflows/lanes.yml"):
        copy = project / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((_ROOT / name).read_bytes())
    monkeypatch.setenv("DGR_PROJECT", str(project))
    assert run(["matrix", "--check"]) == 0
    file = project / "lanes" / "matrix.toml"
    file.write_text(file.read_text().replace("retention_days = 14", "retention_days = 15"))
    assert run(["matrix", "--check"]) == CheckError.exit_code
    assert run(["matrix", "--write"]) == 0
    assert run(["matrix", "--check"]) == 0


def test_every_job_of_the_matrix_is_a_job_of_the_workflow(matrix, document):
    assert list(document["jobs"]) == [job.name for job in jobs(matrix)]
    assert {job.lane for job in jobs(matrix)} == set(matrix.lane)


def test_jobs_prepare_their_runner_and_call_the_lane_and_nothing_else(matrix, document):
    lines = {job.name: job.command_line for job in jobs(matrix)}
    for name, step in _steps(document):
        run_lines = step.get("run", "").splitlines()
        assert bool(run_lines) != ("uses" in step)
        for line in run_lines:
            assert line == lines[name] or line.startswith(_PREPARATIONS)
    built = [(name, step["run"]) for name, step in _steps(document) if step.get("run") == lines[name]]
    assert built == list(lines.items())


def test_a_job_starts_on_its_events_and_by_hand(matrix, document):
    started_by = set(document["on"])
    assert started_by == {"pull_request", "push", "schedule", "workflow_dispatch"}
    for job in jobs(matrix):
        condition = document["jobs"][job.name].get("if")
        listed = set(json.loads(condition.split("'")[1])) if condition else started_by
        assert listed == {*job.events, "workflow_dispatch"}


def test_scripts_hold_no_template(document):
    assert [step["run"] for _, step in _steps(document) if "${{" in step.get("run", "")] == []


def test_every_action_is_pinned_by_commit_or_listed_as_open(matrix, document):
    open_points = {action.uses for action in matrix.ci.action.values() if action.open}
    used = {step["uses"] for _, step in _steps(document) if "uses" in step}
    assert used
    for reference in used:
        name, at = reference.split("@")
        assert re.fullmatch(r"[0-9a-f]{40}", at) or name in open_points
    heading = _COMMITTED.read_text().split("\nname:")[0]
    assert all(name in heading for name in open_points)


def test_rights_are_few_and_times_are_bounded(document):
    assert document["permissions"] == {}
    assert document["concurrency"]["group"]
    for job in document["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert 0 < job["timeout-minutes"] <= 360
        (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert checkout["with"]["persist-credentials"] is False


def test_no_job_takes_up_the_cache_of_another(document):
    for name, step in _steps(document):
        prefix = step.get("with", {}).get("restore-keys")
        if prefix is None:
            continue
        assert step["with"]["key"].startswith(prefix)
        kept = {
            other
            for other, others in _steps(document)
            if others.get("with", {}).get("key", "").startswith(prefix)
        }
        lane = name.removesuffix("-quick")
        assert {other.removesuffix("-quick") for other in kept} == {lane}


def test_hidden_folders_are_handed_out(document):
    uploads = [step for _, step in _steps(document) if "upload-artifact" in step.get("uses", "")]
    assert uploads
    assert all(step["with"]["include-hidden-files"] is True for step in uploads)


def test_the_committed_workflow_is_valid_by_its_schema():
    done = _valid("vendor.github-workflows", _COMMITTED)
    assert done.returncode == 0, done.stdout


def test_the_jobs_for_gitlab_are_valid_by_their_schema(matrix, tmp_path):
    file = tmp_path / "jobs.yml"
    file.write_text(gitlab_jobs(matrix))
    done = _valid("vendor.gitlab-ci", file)
    assert done.returncode == 0, done.stdout


def test_the_schema_check_sees_a_wrong_field(tmp_path):
    file = tmp_path / "spoilt.yml"
    file.write_text(_COMMITTED.read_text().replace("runs-on:", "runs_on:", 1))
    assert _valid("vendor.github-workflows", file).returncode != 0


def test_the_auditor_finds_nothing_in_the_committed_workflow():
    done = _audited(_COMMITTED)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("        with:\n          persist-credentials: false\n", ""),
        ("permissions: {}", "permissions: write-all"),
        ("run: ./dgr-build lane cpu", "run: ./dgr-build lane ${{ github.head_ref }}"),
        ("@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0", "@v7"),
    ],
)
def test_the_auditor_sees_what_it_is_there_for(tmp_path, good, bad):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    text = _COMMITTED.read_text()
    assert good in text
    (folder / "lanes.yml").write_text(text.replace(good, bad))
    assert _audited(folder / "lanes.yml").returncode != 0
