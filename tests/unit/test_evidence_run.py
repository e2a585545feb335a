"""From commands and their reports to results: only what ran, and ran without a failure, passes."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from dgr_build.documents.evidence import Command, Record
from dgr_build.errors import CheckError
from dgr_build.evidence.dgr_051 import CRITERIA
from dgr_build.evidence.record import read
from dgr_build.evidence.run import (
    Case,
    Criterion,
    Plan,
    Ran,
    judge,
    measured,
    mentioned,
    own_command,
    read_report,
    run_plan,
)
from dgr_build.evidence.surroundings import environment, private_folders
from dgr_build.flows import adapter_evidence as flows
from dgr_build.flows.adapter_evidence import plans
from dgr_build.flows.gates import GATES

_REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase name="test_a[1]"><properties><property name="rows" value="7"/><property name="rows" value="8"/>
<property name="cmake_labels" value="x"/>
</properties></testcase>
<testcase name="test_b"><failure message="no"/></testcase>
<testcase name="test_c"><error message="no"/></testcase>
<testcase name="test_d"><skipped message="no"/></testcase>
<testcase name="test_e" status="notrun"/>
<testcase name="test_f" status="run"/>
</testsuite></testsuites>"""


_NAMES = ("equals_the_whole_bit_for_bit", "two_sessions_in_turn", "w10", "describe", "dense", "run_command")
_NAMES += ("ParityV4.EveryCutFrom1To42",)


def _ran(*cases, code=0, key="k"):
    return Ran(key=key, command=Command(argv=("do",), exit_code=code, seconds=1), cases=cases)


def _good(name):
    return Case(name=name, passed=True)


def _bad(name):
    return Case(name=name, passed=False)


def _one(criterion, *ran):
    return judge([criterion], ran)[0]


def test_only_tests_that_ran_and_passed_count(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(_REPORT)
    assert [case.name for case in read_report(report) if case.passed] == ["test_a[1]", "test_f"]
    assert len(read_report(report)) == 6


def test_measurements_keep_every_value(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(_REPORT)
    found = measured([_ran(*read_report(report))])
    assert found == {"test_a[1]: rows": ["7", "8"]}
    assert mentioned(found, "rows") == ("7", "8")
    assert mentioned(found, "ows") == ()


def test_a_missing_report_has_no_tests(tmp_path):
    assert read_report(tmp_path / "none.xml") == ()


def test_a_criterion_passes_when_its_tests_passed():
    result = _one(Criterion(text="t", command="k", cases="parity"), _ran(_good("parity_1"), _good("other")))
    assert (result.verdict, result.passes, result.shown) == ("passed", True, "1 of 1 tests passed")


@pytest.mark.parametrize(
    ("ran", "why"),
    [
        (_ran(_good("parity_1"), _bad("parity_2"), code=1), "a test failed"),
        (_ran(_good("parity_1"), code=1), "the command failed otherwise"),
        (_ran(_good("other")), "none of the named tests ran"),
        (_ran(), "there is no report"),
    ],
)
def test_a_criterion_fails_otherwise(ran, why):
    result = _one(Criterion(text="t", command="k", cases="parity"), ran)
    assert (result.verdict, result.passes) == ("failed", False), why


def test_a_criterion_that_needs_more_does_not_pass_though_its_tests_did():
    result = _one(Criterion(text="t", command="k", needs="more"), _ran(_good("a")))
    assert (result.verdict, result.passes, result.needs) == ("passed", False, "more")


def test_a_criterion_without_a_command_was_not_run():
    for criterion in (Criterion(text="t"), Criterion(text="t", command="another")):
        result = _one(criterion, _ran(_good("a")))
        assert (result.verdict, result.passes, result.command) == ("not run", False, None)


def test_a_command_without_a_report_is_judged_by_its_exit_code():
    criterion = Criterion(text="t", command="k")
    assert _one(criterion, _ran()).passes
    assert _one(criterion, _ran(code=8)).verdict == "failed"


def test_an_old_report_is_not_taken_for_a_new_one(ws, tmp_path):
    ws.project.mkdir(parents=True)
    report = tmp_path / "report.xml"
    report.write_text(_REPORT)
    plan = Plan(key="k", typed=("do",), argv=(sys.executable, "-c", "raise SystemExit(3)"), report=report)
    ran = run_plan(ws, plan)
    assert ran.command.exit_code == 3
    assert ran.cases == ()


def test_what_is_recorded_of_a_command_is_what_a_person_types(ws):
    for plan in (own_command("k", "patch", "verify"), *plans(ws)):
        assert plan.typed[0] in {"dgr-build", ".venv/bin/python"}
        assert not [word for word in plan.typed if str(ws.project) in word or sys.executable in word]


def test_every_criterion_names_a_command_of_the_flow_or_says_what_it_needs(ws):
    known = {plan.key for plan in plans(ws)}
    assert all(one.command in known or (not one.command and one.needs) for one in CRITERIA)
    assert known == {one.command for one in CRITERIA if one.command}


def test_nothing_of_the_adapter_passes_without_the_real_weights():
    assert all(one.needs for one in CRITERIA if not one.text.startswith("Gate:"))


def test_every_test_file_of_the_flow_exists(ws, project_root):
    files = [word for plan in plans(ws) for word in plan.typed if word.endswith(".py")]
    assert len(files) == 4
    assert [name for name in files if not (project_root / name).is_file()] == []


def test_the_gates_are_those_that_the_page_names():
    assert len(GATES) == 6


def test_the_machine_is_described_without_its_names(ws):
    here = environment("g++ 12", "CPU").model_dump_json()
    assert here
    assert [folder for folder in private_folders(ws) if len(folder) > 1 and folder in here] == []


@pytest.fixture
def flow(ws, monkeypatch):
    """The flow with nothing real behind it: outcomes of commands, and the worker before and after."""
    said = {plan.key: (0, [_good(name) for name in _NAMES]) for plan in plans(ws)}
    workers = ["1" * 64, "1" * 64]
    monkeypatch.setattr(flows, "_built", lambda _: SimpleNamespace(sha256=workers.pop(0)))
    monkeypatch.setattr(
        flows, "run_plan", lambda _, plan: _ran(*said[plan.key][1], code=said[plan.key][0], key=plan.key)
    )
    monkeypatch.setattr(flows, "_record", lambda _ws, _built, ran, began: _record_of(ran, began))
    return SimpleNamespace(ws=ws, said=said, workers=workers)


def _record_of(ran, began):
    data = {"subject": "DGR-051", "ran_at": began, "commands": [one.command for one in ran]}
    data["digests"] = dict.fromkeys(("pin_commit", "pin_tree", "patched_tree"), "d" * 40) | dict.fromkeys(
        ("series_sha256", "lane_digest", "worker_sha256"), "a" * 64
    )
    data["digests"] |= {"proof": "full", "lane": "cpu"}
    data["environment"] = environment("g++ 12", "CPU")
    return Record.model_validate(data | {"results": judge(CRITERIA, ran)})


def test_a_flow_without_a_failure_is_published_where_it_is_asked_for(flow):
    written = flows.prove_adapter(flow.ws, publish=True)
    assert written.folder == flow.ws.published_evidence / "DGR-051"
    assert sorted(file.name for file in written.folder.iterdir()) == ["README.md", "record.json"]
    assert read(written.folder / "record.json") == written.record
    assert written.record.sound
    assert not written.record.passes


def test_a_failure_is_written_down_and_not_published(flow):
    flow.said["rules"] = (1, [_bad("w10")])
    with pytest.raises(CheckError) as raised:
        flows.prove_adapter(flow.ws, publish=True)
    assert "README.md" in raised.value.remedy
    assert not flow.ws.published_evidence.exists()
    assert not read(flow.ws.evidence / "DGR-051" / "record.json").sound


def test_a_worker_that_changed_meanwhile_gets_no_record(flow):
    flow.workers[1] = "2" * 64
    with pytest.raises(CheckError):
        flows.prove_adapter(flow.ws, publish=True)
    assert not flow.ws.evidence.exists()


@pytest.mark.parametrize(
    ("release", "told"),
    [("6.1.0-18-amd64", "6.1.0"), ("6.18.44-somewhere-v8", "6.18.44"), ("odd", "unknown")],
)
def test_of_the_kernel_only_the_version_is_told(monkeypatch, release, told):
    monkeypatch.setattr("platform.release", lambda: release)
    assert environment("g++ 12", "CPU").kernel == told


def test_a_system_that_binds_no_process_to_cores_can_be_described_too(monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    assert environment("clang 15", "MTL").cores >= 1
