from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dgr_build.cli.main import run
from dgr_build.documents.base import save_toml

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(upstream, pin_of, isolated: Path, monkeypatch: pytest.MonkeyPatch):
    """A project folder with a pin of the made upstream, and a workspace of its own."""
    pin = pin_of(upstream, lineage=None)
    save_toml(pin.folder / "llama.cpp.toml", pin)
    monkeypatch.setenv("DGR_PROJECT", str(pin.folder.parent))
    return pin


def _json(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_resolve_show_and_verify_tell_the_same_story(project, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["source", "show", "--json"]) == 0
    assert _json(capsys)["resolved"] is None
    assert run(["source", "resolve", "--json"]) == 0
    resolved = _json(capsys)
    assert (resolved["commit"], resolved["tree"]) == (project.commit, project.tree)
    assert run(["source", "verify", "--json"]) == 0
    assert _json(capsys) == resolved
    assert run(["source", "show", "--json"]) == 0
    shown = _json(capsys)
    assert shown["pin"]["commit"] == shown["resolved"]["commit"] == project.commit


def test_people_read_full_ids_too(project, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("resolve", "show", "verify"):
        assert run(["source", command]) == 0
        out = capsys.readouterr().out
        assert project.commit in out
        assert project.tree in out


def test_verify_before_resolve_exits_4(project, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["source", "verify", "--json"]) == 4
    assert _json(capsys)["remedy"].startswith("dgr-build source resolve")


def test_repository_and_bundle_by_hand_are_marked(
    project, upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.git("bundle", "create", "-q", tmp_path / "a bundle", "HEAD")
    monkeypatch.chdir(tmp_path)
    for option, value in (("--bundle", "a bundle"), ("--repository", "upstream")):
        assert run(["source", "resolve", option, value, "--json"]) == 0
        told = _json(capsys)
        assert told["override"] is (option == "--bundle")  # the repository is what the manifest names too
        assert value in told["provider"]


def test_damage_exits_5_and_resolve_mends_it(project, isolated: Path, capsys) -> None:
    assert run(["source", "resolve"]) == 0
    pack = next(isolated.glob("workspace/store/objects/pack/*.pack"))
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    assert run(["source", "verify"]) == 5
    assert run(["source", "resolve"]) == 0
    assert run(["source", "verify"]) == 0


def test_source_that_is_nowhere_exits_4(project, tmp_path: Path, capsys) -> None:
    assert run(["source", "resolve", "--repository", str(tmp_path / "nothing")]) == 4


def test_unknown_provider_exits_2_and_names_those_that_there_are(project, capsys) -> None:
    assert run(["source", "resolve", "--provider", "npm", "--json"]) == 2
    assert "repository" in _json(capsys)["cause"]


@pytest.mark.parametrize("path", ["a\nb", "a\udcffb"])
def test_path_that_no_manifest_could_hold_is_a_usage_error(project, path: str, capsys) -> None:
    assert run(["source", "resolve", "--bundle", path]) == 2
