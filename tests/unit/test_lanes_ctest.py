"""Running CTest: every test counted, every failure named."""

import os

import pytest

from dgr_build.errors import CheckError
from dgr_build.lanes import ctest
from dgr_build.lanes.ctest import run_ctest, test_variables

test_variables.__test__ = False

_CASE = '<testcase name="{name}" status="{status}"/>'


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A program in CTest's place that writes a report of given cases."""

    def make(cases, code, *, report=True):
        text = "".join(_CASE.format(name=name, status=status) for name, status in cases)
        (tmp_path / "text").write_text(f"<testsuite>{text}</testsuite>")
        program = tmp_path / "ctest"
        copy = f"cp '{tmp_path}/text' \"$last\"" if report else "true"
        lines = ["#!/bin/sh", "for last; do true; done", copy, f"env > '{tmp_path}/env'"]
        lines += ["echo '1/2 Test  #1: one ... Passed'", "echo 'assertion of two'", f"exit {code}"]
        program.write_text("\n".join(lines))
        program.chmod(0o755)
        monkeypatch.setattr(ctest, "own_program", lambda _: program)

    return make


def test_tests_that_all_pass_are_counted(fake, tmp_path):
    fake([("one", "run"), ("two", "run")], 0)
    done = run_ctest(tmp_path, tmp_path / "logs" / "ctest.xml", {})
    assert done.passed == 2
    assert done.report.is_file()


@pytest.mark.parametrize("status", ["fail", "notrun", "disabled"])
def test_a_test_that_failed_or_did_not_run_is_named(fake, tmp_path, status):
    fake([("one", "run"), ("two", status)], 8 if status == "fail" else 0)
    with pytest.raises(CheckError) as caught:
        run_ctest(tmp_path, tmp_path / "ctest.xml", {})
    assert "two" in caught.value.message
    assert "one" not in caught.value.message.replace("C++ tests did not", "")
    assert "assertion of two" in caught.value.cause


def test_no_test_is_a_failure(fake, tmp_path):
    fake([], 0)
    with pytest.raises(CheckError):
        run_ctest(tmp_path, tmp_path / "ctest.xml", {})


def test_a_runner_that_fails_without_a_failed_test_is_a_failure(fake, tmp_path):
    fake([("one", "run")], 1)
    with pytest.raises(CheckError):
        run_ctest(tmp_path, tmp_path / "ctest.xml", {})


def test_a_report_of_an_earlier_run_does_not_count(fake, tmp_path):
    (tmp_path / "ctest.xml").write_text('<testsuite><testcase name="old" status="run"/></testsuite>')
    fake([], 0, report=False)
    with pytest.raises(CheckError):
        run_ctest(tmp_path, tmp_path / "ctest.xml", {})


def test_tests_find_models_and_reference_in_their_environment(fake, tmp_path):
    fake([("one", "run")], 0)
    variables = test_variables(
        tiny_v4=tmp_path / "v4.gguf", tiny_llama=tmp_path / "l.gguf", reference=tmp_path / "ref"
    )
    run_ctest(tmp_path, tmp_path / "ctest.xml", variables)
    seen = (tmp_path / "env").read_text().splitlines()
    assert [f"{name}={value}" for name, value in variables.items() if f"{name}={value}" not in seen] == []
    assert f"PATH={os.environ['PATH']}" in seen
