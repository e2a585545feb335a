from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dgr_build import process
from dgr_build.cli import main as cli
from dgr_build.cli import test as test_command
from dgr_build.errors import CheckError, UsageError
from dgr_build.flows import gates, selftest
from dgr_build.flows.gates import Gate, Verdict
from dgr_build.flows.selftest import Tally, judge, run_suite
from dgr_build.workspace import Workspace

_TESTS = """
import pytest
def test_good(): pass
def test_bad(): assert 0
@pytest.mark.skip
def test_left_out(): pass
@pytest.fixture
def broken(): raise OSError
def test_set_up(broken): pass
"""
_CTEST_REPORT = """<testsuite tests="3" failures="1" disabled="1" skipped="0">
<testcase name="a" status="run"/><testcase name="b" status="fail"><failure message=""/></testcase>
<testcase name="c" status="notrun"><skipped message=""/></testcase></testsuite>"""


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    project = tmp_path / "project"
    (project / "tests" / "unit").mkdir(parents=True)
    return Workspace(project=project, root=tmp_path / "dgr", cache=tmp_path / "cache")


def _write_tests(ws: Workspace, text: str) -> None:
    (ws.project / "tests" / "unit" / "test_x.py").write_text(text)


def test_pytest_part_counts_what_ran(ws: Workspace) -> None:
    _write_tests(ws, _TESTS)
    (tally,) = run_suite(ws, ["unit"], ["-p", "no:cacheprovider", "-n", "0"])
    assert (tally.passed, tally.failed, tally.skipped) == (1, 2, 1)
    assert sorted(name.split("::")[-1] for name in tally.failures) == ["test_bad", "test_set_up"]


def test_pytest_part_that_cannot_start_has_failed(ws: Workspace) -> None:
    _write_tests(ws, "def test_good(): pass")
    (tally,) = run_suite(ws, ["unit"], ["--no-such-option"])
    assert (tally.passed, tally.failed) == (0, 1)


def test_a_file_that_does_not_import_has_failed(ws: Workspace) -> None:
    _write_tests(ws, "import no_such_module")
    (tally,) = run_suite(ws, ["unit"], ["-n", "0"])
    assert tally.failed == 1


def test_an_old_report_is_not_counted_again(ws: Workspace) -> None:
    _write_tests(ws, "def test_good(): pass")
    run_suite(ws, ["unit"], ["-n", "0"])
    (tally,) = run_suite(ws, ["unit"], ["--no-such-option"])
    assert tally.passed == 0


def test_ctest_without_a_build_has_failed_and_names_the_command(ws: Workspace) -> None:
    (tally,) = run_suite(ws, ["ctest"], [])
    assert tally.failed == 1
    assert "dgr-build lane cpu" in tally.failures[0]


def test_ctest_report_is_counted(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    ws.build("cpu").mkdir(parents=True)
    (ws.build("cpu") / "CTestTestfile.cmake").touch()

    def fake(command: list[str], _cwd: Path, variables: dict[str, str]) -> int:
        assert variables == {"DGR_TINY_V4": "tiny.gguf"}
        Path(command[-1]).write_text(_CTEST_REPORT)
        return 8

    monkeypatch.setattr(selftest, "_through", fake)
    monkeypatch.setattr(selftest, "ctest_variables", lambda *_: {"DGR_TINY_V4": "tiny.gguf"})
    (tally,) = run_suite(ws, ["ctest"], [])
    assert tally == Tally(part="ctest", passed=1, failed=1, skipped=1, failures=("b",))


def test_gates_are_counted_and_a_gate_that_did_not_run_has_not_passed(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Gate(name=verdict.value, run=lambda _ws, v=verdict: v) for verdict in Verdict]
    monkeypatch.setattr(selftest, "GATES", made)
    (tally,) = run_suite(ws, ["gates"], [])
    assert (tally.passed, tally.failed, tally.skipped, tally.failures) == (1, 1, 1, ("failed",))


def test_judgement() -> None:
    good = Tally(part="unit", passed=3)
    assert judge([good]) is None
    assert isinstance(judge([Tally(part="unit")]), CheckError)
    wrong = judge([good, replace(good, part="ctest", failed=1, failures=("b",))])
    assert wrong is not None
    assert "ctest: b" in wrong.cause
    assert "dgr-build test --integration" in wrong.remedy


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (1, 8)])
def test_the_last_line_is_the_total_and_the_exit_code_says_it_too(
    isolated: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], failed: int, code: int
) -> None:
    tallies = (
        Tally(part="gates", passed=5, skipped=1),
        Tally(part="unit", passed=2, failed=failed, failures=("x",) * failed),
    )
    monkeypatch.setattr(test_command, "run_suite", lambda *_: tallies)
    monkeypatch.setattr(test_command, "Workspace", _AnyWorkspace)
    assert cli.run(["test"]) == code
    assert capfd.readouterr().out.splitlines()[-1] == f"7 passed, {failed} failed, 1 skipped"


class _AnyWorkspace:
    @staticmethod
    def open() -> None:
        """No workspace is needed where nothing runs."""


@pytest.mark.parametrize(
    ("arguments", "parts", "rest"),
    [
        ([], ["gates", "unit", "integration", "ctest"], []),
        (["--unit", "-k", "publish", "-x"], ["unit"], ["-k", "publish", "-x"]),
        (["--gates", "--unit"], ["gates", "unit"], []),
        (["--integration"], ["integration", "ctest"], []),
    ],
)
def test_parts_are_chosen_and_the_rest_goes_to_pytest(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], parts: list[str], rest: list[str]
) -> None:
    seen = []

    def fake(_ws: object, chosen: list[str], others: list[str]) -> tuple[Tally, ...]:
        seen.append((list(chosen), list(others)))
        return (Tally(part="unit", passed=1),)

    monkeypatch.setattr(test_command, "run_suite", fake)
    monkeypatch.setattr(test_command, "Workspace", _AnyWorkspace)
    assert cli.run(["test", *arguments]) == 0
    assert seen == [(parts, rest)]


def test_json_prints_nothing_else_on_stdout(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setattr(test_command, "run_suite", lambda *_: (Tally(part="unit", passed=1),))
    monkeypatch.setattr(test_command, "Workspace", _AnyWorkspace)
    assert cli.run(["test", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["passed"] == 1


def _commit(ws: Workspace, files: dict[str, str]) -> None:
    for name, text in files.items():
        (ws.project / name).write_text(text)
    for arguments in (["init", "-q"], ["add", "-A", "."]):
        subprocess.run(["git", "-C", ws.project, *arguments], check=True)


@pytest.mark.needs_git
def test_whitespace_gate_sees_a_trailing_space_but_leaves_patches_alone(ws: Workspace) -> None:
    attributes = {".gitattributes": "*.patch -text -whitespace\n"}
    _commit(ws, {**attributes, "a.patch": "context \n", "good.txt": "fine\n"})
    assert gates._whitespace(ws) is Verdict.PASSED
    (ws.project / "good.txt").write_text("not fine \n")
    assert gates._whitespace(ws) is Verdict.FAILED


@pytest.mark.needs_git
def test_whitespace_gate_does_not_run_outside_a_repository_of_its_own(
    ws: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert gates._whitespace(ws) is Verdict.NOT_RUN
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
    assert gates._whitespace(ws) is Verdict.NOT_RUN


_SLOW_TEST = """
import os, time
def test_slow():
    print("\\npid", os.getpid(), flush=True)
    time.sleep(60)
"""
_RUN_SLOW = """
import sys
from pathlib import Path
from dgr_build.flows.selftest import run_suite
from dgr_build.workspace import Workspace
root = Path(sys.argv[1])
run_suite(Workspace(project=root / "project", root=root / "dgr", cache=root), ["unit"], ["-s", "-n", "0"])
"""


def test_interrupting_a_run_leaves_no_test_process(ws: Workspace) -> None:
    _write_tests(ws, _SLOW_TEST)
    command = [sys.executable, "-c", _RUN_SLOW, ws.project.parent]
    child = process.Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert child.stdout is not None
    pid = next(int(line.split()[1]) for line in child.stdout if line.startswith(b"pid "))
    os.kill(child.pid, signal.SIGINT)  # the toolchain alone, as a supervisor would
    child.wait(20)
    child.stdout.close()
    assert not Path(f"/proc/{pid}").exists()


def test_only_the_tests_under_a_sanitizer_run_when_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sanitized(_: Workspace, name: str) -> Tally:
        return Tally(part=f"ctest-{name}", passed=3)

    monkeypatch.setattr(test_command, "run_sanitized", sanitized)
    assert cli.run(["test", "--sanitize", "thread", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] == 3


def test_an_unknown_sanitizer_is_refused() -> None:
    assert cli.run(["test", "--sanitize", "memory"]) == UsageError.exit_code
