"""What is read from upstream's test of every architecture, when it fails and when it loses its last lines."""

from __future__ import annotations

import stat

import pytest

from dgr_build.errors import CheckError
from dgr_build.lanes.upstream_tests import run_built

_ROWS = (
    r"|  llama|   CPU| Dense|\033[1;32mOK\033[0m (0.00e+00)|\033[1;32mOK\033[0m|",
    r"|  llama|   CPU|   MoE|\033[1;32mOK\033[0m (0.00e+00)|\033[1;33mSKIP\033[0m|",
)
_LAST = r"|   rwkv|   CPU| Dense|\033[1;32mOK\033[0m (0.00e+00)|\033[1;32mOK\033[0m|"
_FAILS = r"|   rwkv|   CPU| Dense|\033[1;31mFAIL\033[0m (1.00e+00)|\033[1;32mOK\033[0m|"


@pytest.fixture
def program(tmp_path):
    """A program that loses its last two lines the first `lost` times that it runs."""

    def write(*, lost: int = 0, last: str = _LAST, code: int = 0):
        runs = tmp_path / "runs"
        path = tmp_path / "test-llama-archs"
        script = [
            "#!/bin/sh",
            f"echo run >> '{runs}'",
            *(f"printf '{row}\\n'" for row in _ROWS),
            f"[ $(wc -l < '{runs}') -gt {lost} ] || exit {code}",
            f"printf '{last}\\n'",
            "echo 'Summary: all 3 test(s) passed'",
            f"exit {code}",
        ]
        path.write_text("\n".join(script) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path, runs

    return write


def test_a_whole_table_is_read_once(program, tmp_path):
    path, runs = program()
    verdict = run_built(path, "base", tmp_path / "errors")
    assert (verdict.passed, verdict.architectures) == (3, {"llama", "rwkv"})
    assert runs.read_text() == "run\n"


def test_a_table_without_its_end_is_asked_for_again(program, tmp_path):
    path, runs = program(lost=2)
    assert run_built(path, "base", tmp_path / "errors").passed == 3
    assert runs.read_text() == "run\n" * 3


def test_a_table_that_never_comes_whole_is_no_verdict(program, tmp_path):
    path, _ = program(lost=1000)
    with pytest.raises(CheckError, match="before it had written its summary"):
        run_built(path, "patched", tmp_path / "errors")


def test_an_architecture_that_fails_is_named(program, tmp_path):
    path, _ = program(last=_FAILS, code=1)
    with pytest.raises(CheckError, match="fails on the patched tree") as caught:
        run_built(path, "patched", tmp_path / "errors")
    assert "failing: rwkv" in str(caught.value.cause)


def test_a_failure_whose_rows_were_lost_fails_at_once(program, tmp_path):
    path, runs = program(lost=1000, code=3)
    with pytest.raises(CheckError, match="fails on the base tree") as caught:
        run_built(path, "base", tmp_path / "errors")
    assert "exit code 3" in str(caught.value.cause)
    assert runs.read_text() == "run\n"
