"""Evidence records: no claim beyond what ran, no credit for another digest, no name of the machine."""

from __future__ import annotations

import datetime as dt
import json
import socket

import pytest

from dgr_build.documents.base import parse
from dgr_build.documents.evidence import Record
from dgr_build.errors import CheckError, UsageError
from dgr_build.evidence import record as records
from dgr_build.evidence.readme import render

_A, _B, _C = ("a" * 64, "b" * 64, "c" * 64)
_TREE = "d" * 40


def _data(**changes):
    data = {
        "subject": "parity",
        "ran_at": dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC),
        "commands": [
            {"argv": ["dgr-build", "test", "--integration"], "exit_code": 0, "seconds": 12.34},
            {"argv": ["dgr-build", "test", "--unit"], "exit_code": 8, "seconds": 1},
        ],
        "digests": {
            "pin_commit": _TREE, "pin_tree": _TREE, "proof": "full", "patched_tree": "e" * 40,
            "series_sha256": _A, "lane": "cpu", "lane_digest": _B, "worker_sha256": _C,
            "artifacts": [
                {"name": "tiny V4", "digest": "1" * 64, "arch": "deepseek4", "n_layer": 43, "synthetic": True,
                 "parts": [{"file": "m.gguf", "size": 7, "sha256": "2" * 64}]},
            ],
        },
        "environment": {
            "cpu": "a processor", "cores": 2, "memory_bytes": 8 << 30, "os": "Debian 12", "kernel": "6.1",
            "compiler": "g++ 12.2", "backend": "CPU (x86-64-v3)",
        },
        "metrics": {"max_abs_diff": 0.0, "whole|split": [1, 2]},
        "results": [
            {"criterion": "equal bits", "command": 0, "verdict": "passed", "shown": "7 of 7", "passes": True},
            {"criterion": "on the real model", "command": 0, "verdict": "passed", "needs": "real weights",
             "passes": False},
        ],
        "changed_files": [{"path": "src/llama-model.cpp", "before": _TREE, "after": "f" * 40}],
        "limitations": ["weights are synthetic"],
        "next": ["the real model"],
    }  # fmt: skip
    return data | changes


def _record(**changes) -> Record:
    return parse(_data(**changes), Record, "the test")


def test_a_record_is_named_by_its_content_and_reads_back_equal(tmp_path):
    path = records.write(tmp_path, _record())
    assert path.name == f"{_record().id}.json"
    assert records.read(path) == _record()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("field", ["subject", "limitations", "metrics"])
def test_another_content_is_another_record(field):
    changed = {"subject": "other", "limitations": [], "metrics": {}}[field]
    assert _record(**{field: changed}).id != _record().id


def test_a_record_that_was_changed_is_refused(tmp_path):
    path = records.write(tmp_path, _record())
    data = json.loads(path.read_text())
    data["metrics"]["max_abs_diff"] = 0.5
    path.write_text(json.dumps(data))
    with pytest.raises(CheckError):
        records.read(path)


def test_a_record_gives_credit_to_its_own_worker_and_model(tmp_path):
    path = records.write(tmp_path, _record())
    assert records.read_for(path, lane_digest=_B, artifact="1" * 64) == _record()


@pytest.mark.parametrize(
    "asked",
    [
        {"lane_digest": _A},
        {"lane_digest": _A, "artifact": "1" * 64},
        {"lane_digest": _B, "artifact": "2" * 64},
        {"lane_digest": ""},
    ],
)
def test_a_record_gives_no_credit_to_another_worker_or_model(tmp_path, asked):
    path = records.write(tmp_path, _record())
    with pytest.raises(CheckError) as raised:
        records.read_for(path, **asked)
    assert "dgr-build lane" in raised.value.remedy


@pytest.mark.parametrize(
    "claim",
    [
        {"verdict": "failed"},
        {"verdict": "not run"},
        {"needs": "real weights"},
        {"command": None},
        {"command": 1},
        {"command": 2},
    ],
)
def test_a_claim_beyond_what_ran_is_no_record(claim):
    honest = {"criterion": "equal bits", "command": 0, "verdict": "passed", "passes": True}
    assert _record(results=[honest]).passes
    with pytest.raises(UsageError):
        _record(results=[honest | claim])


def test_a_record_passes_only_when_every_criterion_does():
    assert not _record().passes
    assert _record().sound
    failed = {"criterion": "c", "command": 1, "verdict": "failed", "passes": False}
    assert not _record(results=[failed]).sound


def test_a_record_that_names_a_folder_of_the_machine_is_not_written(tmp_path):
    private = {"/home/someone/clone": "."}
    leaking = _record(metrics={"worker": "/home/someone/clone/.dgr/build/worker"})
    with pytest.raises(CheckError):
        records.write(tmp_path, leaking, private)
    assert list(tmp_path.iterdir()) == []
    records.write(tmp_path, _record(metrics={"worker": "/home/someone/clones"}), private)


def test_a_record_that_names_the_host_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "builder-17")
    with pytest.raises(CheckError):
        records.write(tmp_path, _record(metrics={"where": "on builder-17, say"}))


def test_folders_are_told_by_their_public_names():
    private = {"/x/clone": ".", "/x/clone/.dgr": ".dgr", "/x": "~"}
    told = records.public("--model=/x/clone/.dgr/a /x/clone /x/cloned /x/y /xy", private)
    assert told == "--model=.dgr/a . ~/cloned ~/y /xy"


def test_a_record_is_found_by_the_beginning_of_its_id(tmp_path):
    path = records.write(tmp_path, _record())
    assert records.find(tmp_path, path.stem[:8]) == path
    for name in ("0" * 8 if path.stem[0] != "0" else "f" * 8, path.stem[:3], "../" + path.stem, ""):
        with pytest.raises(UsageError) as raised:
            records.find(tmp_path, name)
        assert "evidence list" in raised.value.remedy


def test_records_come_oldest_first(tmp_path):
    late = _record(ran_at=dt.datetime(2027, 1, 1, tzinfo=dt.UTC))
    for record in (late, _record()):
        records.write(tmp_path, record)
    assert records.read_all(tmp_path) == (_record(), late)


def test_the_page_tells_every_fact_of_the_record():
    page = render(_record(), "DGR-1", "What this is.")
    known = _record().digests
    facts = [
        known.pin_commit,
        known.patched_tree,
        known.lane_digest,
        known.worker_sha256,
        known.series_sha256,
    ]
    facts += [known.artifacts[0].digest, known.artifacts[0].parts[0].sha256, "a processor", "g++ 12.2"]
    facts += ["loopback", "src/llama-model.cpp", "weights are synthetic", "the real model", _record().id]
    facts += ["dgr-build test --integration", "12.3", "max_abs_diff", "0.0", "7 of 7", "synthetic weights"]
    assert [fact for fact in facts if fact not in page] == []


def test_the_page_claims_nothing_that_needs_more_than_was_run():
    rows = [line for line in render(_record(), "t", "s").splitlines() if line.startswith("| on the real")]
    assert len(rows) == 1
    assert "passes: false" in rows[0]
    assert "real weights" in rows[0]
    assert "passes: true" not in rows[0]


def test_the_page_says_of_each_claim_what_the_record_says():
    page = render(_record(), "t", "s")
    claims = [result.passes for result in _record().results] + [_record().passes]
    assert page.count("passes: true") == sum(claims)
    assert page.count("passes: false") == len(claims) - sum(claims)


def test_a_bar_in_a_fact_does_not_break_the_table():
    page = render(_record(), "t", "s")
    assert "whole\\|split" in page
