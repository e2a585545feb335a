"""Running CTest: every test counted, every failure named."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dgr_build.errors import CheckError
from dgr_build.lanes.ctest import TestRun, run_ctest, test_variables
from dgr_build.lanes.environment.made import Made

test_variables.__test__ = False

_TINY = {arch: Path(f"{arch}.gguf") for arch in ("deepseek4", "llama", "qwen3", "gemma3")}
_CASE = '<testcase name="{name}" status="{status}"/>'


@pytest.fixture
def fake(tmp_path):
    """A maker of runs with a program in CTest's place that writes a report of given cases."""

    def make(cases, code, *, report=True):
        text = "".join(_CASE.format(name=name, status=status) for name, status in cases)
        (tmp_path / "text").write_text(f"<testsuite>{text}</testsuite>")
        program = tmp_path / "ctest"
        copy = f"cp '{tmp_path}/text' \"$last\"" if report else "true"
        lines = ["#!/bin/sh", f"echo \"$@\" > '{tmp_path}/words'"]
        lines += [
            'while [ "$1" != --output-junit ]; do shift; done; last=$2',
            copy,
            f"env > '{tmp_path}/env'",
        ]
        lines += ["echo '1/2 Test  #1: one ... Passed'", "echo 'assertion of two'", f"exit {code}"]
        program.write_text("\n".join(lines))
        program.chmod(0o755)
        report_file = tmp_path / "logs" / "ctest.xml"
        return TestRun(build=tmp_path, report=report_file, variables={}, ctest=program)

    return make


def test_tests_that_all_pass_are_counted(fake, tmp_path):
    done = run_ctest(fake([("one", "run"), ("two", "run")], 0))
    assert done.passed == 2
    assert done.report.is_file()


@pytest.mark.parametrize("status", ["fail", "notrun", "disabled"])
def test_a_test_that_failed_or_did_not_run_is_named(fake, tmp_path, status):
    asked = fake([("one", "run"), ("two", status)], 8 if status == "fail" else 0)
    with pytest.raises(CheckError) as caught:
        run_ctest(asked)
    assert "two" in caught.value.message
    assert "one" not in caught.value.message.replace("C++ tests did not", "")
    assert "assertion of two" in caught.value.cause


def test_no_test_is_a_failure(fake, tmp_path):
    asked = fake([], 0)
    with pytest.raises(CheckError):
        run_ctest(asked)


def test_a_runner_that_fails_without_a_failed_test_is_a_failure(fake, tmp_path):
    asked = fake([("one", "run")], 1)
    with pytest.raises(CheckError):
        run_ctest(asked)


def test_a_report_of_an_earlier_run_does_not_count(fake, tmp_path):
    asked = fake([], 0, report=False)
    asked.report.parent.mkdir()
    asked.report.write_text('<testsuite><testcase name="old" status="run"/></testsuite>')
    with pytest.raises(CheckError):
        run_ctest(asked)


def test_tests_find_models_and_reference_in_their_environment(fake, tmp_path):
    asked = fake([("one", "run")], 0)
    variables = test_variables(_TINY, reference=tmp_path / "ref")
    run_ctest(replace(asked, variables=variables))
    seen = (tmp_path / "env").read_text().splitlines()
    assert [f"{name}={value}" for name, value in variables.items() if f"{name}={value}" not in seen] == []
    assert f"PATH={os.environ['PATH']}" in seen


def test_without_a_reference_program_none_is_named():
    found = test_variables(_TINY, reference=None)
    assert sorted(found.values()) == sorted(str(path) for path in _TINY.values())
    assert {"DGR_TINY_V4", "DGR_TINY_LLAMA", "DGR_TINY_QWEN3", "DGR_TINY_GEMMA3"} == set(found)


@pytest.mark.parametrize("pattern", ["", "^Reference[.]"])
def test_tests_are_left_out_only_by_the_pattern_that_is_asked_for(fake, tmp_path, pattern):
    run_ctest(replace(fake([("one", "run")], 0), exclude=pattern), jobs=3)
    words = (tmp_path / "words").read_text().split()
    assert words[words.index("-j") + 1] == "3"
    assert [words[at + 1] for at, word in enumerate(words) if word == "-E"] == ([pattern] if pattern else [])


def test_tests_run_in_their_environment_with_the_network_and_may_write_build_and_report(fake, tmp_path):
    """Loopback sockets are what half of them are about."""
    entering = tmp_path / "bwrap"
    entering.write_text(
        f"#!/bin/sh\necho \"$@\" > '{tmp_path}/entered'\n"
        'while [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    )
    entering.chmod(0o755)
    root = tmp_path / "root"
    root.mkdir()
    made = Made(name="r", kind="sysroot", digest="0" * 64, root=root, entering=entering)
    asked = replace(fake([("one", "run")], 0), made=made, read=(tmp_path / "models",))
    assert run_ctest(asked).passed == 1
    words = (tmp_path / "entered").read_text()
    assert "--unshare-net" not in words
    assert f"--ro-bind {tmp_path}/models {tmp_path}/models" in words
    assert f"--bind {asked.build} {asked.build}" in words
    assert f"--bind {asked.report.parent} {asked.report.parent}" in words
