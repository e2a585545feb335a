from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dgr_build.cli import fuzz as command
from dgr_build.cli import main as cli
from dgr_build.errors import CheckError, UsageError
from dgr_build.flows import fuzz as flow
from dgr_build.flows.fuzz import Fuzzed, chosen_targets, fuzz, judge
from dgr_build.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SAYS = """#!/bin/sh
for word in "$@"; do
    case $word in -artifact_prefix=*) findings=${word#-artifact_prefix=} ;; esac
done
echo '#24	INITED cov: 90 ft: 95 corp: 3/100b exec/s: 0 rss: 30Mb'
echo '#4096	pulse  cov: 1200 ft: 3400 corp: 30/9000b lim: 1024 exec/s: 300 rss: 90Mb'
%s
"""
_GOOD = "echo 'stat::number_of_executed_units: 5000'"
_BAD = 'touch "$findings/crash-1"; echo "Test unit written to $findings/crash-1"; exit 77'
_MUTE = "echo 'cannot start'; exit 1"


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    return Workspace(project=tmp_path / "project", root=tmp_path / "dgr", cache=tmp_path / "cache")


def _with(monkeypatch: pytest.MonkeyPatch, ws: Workspace, ending: str) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = []

    def build(_: Workspace, sanitizer: str, targets: Sequence[str], **options: Any) -> Path:
        asked.append({"sanitizer": sanitizer, "targets": tuple(targets), **options})
        folder = ws.build("asan")
        (folder / "fuzz").mkdir(parents=True, exist_ok=True)
        for target in targets:
            program = folder / "fuzz" / target
            program.write_text(_SAYS % ending)
            program.chmod(0o755)
        return folder

    monkeypatch.setattr(flow, "build_sanitized", build)
    monkeypatch.setattr(flow, "ctest_variables", lambda *_: {"DGR_TINY_V4": "a model"})
    return asked


def test_what_libfuzzer_says_is_counted(monkeypatch: pytest.MonkeyPatch, ws: Workspace) -> None:
    asked = _with(monkeypatch, ws, _GOOD)
    (one,) = fuzz(ws, ["messages"], 1, jobs=1)
    assert (one.executions, one.coverage, one.features, one.findings) == (5000, 1200, 3400, ())
    assert one.corpus > 10  # the first inputs
    assert judge([one]) is None
    assert asked == [
        {"sanitizer": "address", "targets": ("dgr-fuzz-messages",), "engine": False, "jobs": 1},
    ]


def test_first_inputs_are_the_same_everywhere_and_are_not_sown_twice(
    monkeypatch: pytest.MonkeyPatch, ws: Workspace, tmp_path: Path
) -> None:
    _with(monkeypatch, ws, _GOOD)
    fuzz(ws, ["messages"], 1)
    corpus = ws.fuzz("messages") / "corpus"
    first = {path.name: path.read_bytes() for path in corpus.iterdir()}
    for path in corpus.iterdir():
        path.unlink()
    (corpus / "mine").write_bytes(b"x")
    fuzz(ws, ["messages"], 1)
    assert [path.name for path in corpus.iterdir()] == ["mine"]
    other = Workspace(project=ws.project, root=tmp_path / "other", cache=ws.cache)
    _with(monkeypatch, other, _GOOD)
    fuzz(other, ["messages"], 1)
    assert {p.name: p.read_bytes() for p in (other.fuzz("messages") / "corpus").iterdir()} == first


def test_a_finding_is_kept_and_the_command_that_repeats_it_is_named(
    monkeypatch: pytest.MonkeyPatch, ws: Workspace
) -> None:
    asked = _with(monkeypatch, ws, _BAD)
    (one,) = fuzz(ws, ["engine"], 1)
    wrong = judge([one])
    assert wrong is not None
    assert wrong.exit_code == CheckError.exit_code
    assert str(ws.fuzz("engine") / "findings" / "crash-1") in wrong.cause
    assert "dgr-fuzz-engine" in wrong.remedy
    assert "DGR_TINY_V4='a model'" in wrong.remedy
    assert asked[0]["engine"] is True


def test_a_target_that_cannot_start_is_no_finding(monkeypatch: pytest.MonkeyPatch, ws: Workspace) -> None:
    _with(monkeypatch, ws, _MUTE)
    with pytest.raises(CheckError) as raised:
        fuzz(ws, ["messages"], 1)
    assert "cannot start" in raised.value.cause


def test_an_unknown_target_is_refused_before_anything_is_built() -> None:
    with pytest.raises(UsageError):
        chosen_targets(["nothing"])
    assert chosen_targets([]) == ("messages", "sequences", "engine")


def test_the_command_ends_with_the_code_of_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(_: Workspace, names: Sequence[str], seconds: int, *, jobs: int | None) -> tuple[Fuzzed, ...]:
        assert (tuple(names), seconds, jobs) == (("sequences",), 5, None)
        return (
            Fuzzed(
                target="sequences", executions=7, seconds=5.0, coverage=1, features=2, corpus=3,
                findings=("crash-1",), again="program crash-1",
            ),
        )  # fmt: skip

    monkeypatch.setattr(command, "fuzz", found)
    assert cli.run(["fuzz", "sequences", "--seconds", "5", "--json"]) == CheckError.exit_code
    assert '"executions": 7' in capsys.readouterr().out
    assert cli.run(["fuzz", "--list"]) == 0
    assert cli.run(["fuzz", "nothing"]) == UsageError.exit_code
