"""dgr-build patch ...: from a work tree to a verified stack, with results on stdout and exit codes."""

import json
from types import SimpleNamespace

import pytest

from dgr_build.cli.main import run
from dgr_build.patches import project

pytestmark = pytest.mark.needs_git


@pytest.fixture
def repo(git_repo, isolated, monkeypatch):
    """A repository with one patch on its base, which is the resolved source of an empty project too."""
    made = git_repo("upstream")
    base = made.commit("base", {"src/a.c": b"one\ntwo\nthree\n"})
    made.commit("Do one thing\n\nFor a reason.", {"src/a.c": b"one\n2\nthree\n"})
    (isolated / "project" / "manifests").mkdir(parents=True)
    (isolated / "project" / "manifests" / "llama.cpp.toml").touch()
    monkeypatch.setenv("DGR_PROJECT", str(isolated / "project"))
    source = SimpleNamespace(commit=base, tree=made.tree(base), store=made.objects)
    monkeypatch.setattr(project, "load_pin", lambda *_: source)
    monkeypatch.setattr(project, "resolve", lambda *_: source)
    monkeypatch.setattr(project, "open_store", lambda *_: made.store())
    made.folder = isolated / "project" / "patches"
    return made


@pytest.fixture
def exported(repo, capsys):
    assert run(["patch", "export", "--from", str(repo.path)]) == 0
    assert "0001-do-one-thing.patch" in capsys.readouterr().out
    return repo


def test_verify_apply_and_reverse_name_the_same_trees(exported, capsys):
    base, patched = exported.tree("HEAD~1"), exported.tree()
    for command in ("verify", "apply", "reverse"):
        assert run(["patch", command]) == 0
        out = capsys.readouterr().out
        assert base in out
        assert patched in out


def test_json_is_data(exported, capsys):
    name = "0001-do-one-thing.patch"
    for command, steps in (("verify", "applied"), ("apply", "steps")):
        assert run(["patch", command, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["base_tree"], data["tree"]) == (exported.tree("HEAD~1"), exported.tree())
        assert data[steps] == [[name, exported.tree()]]
    assert run(["patch", "reverse", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == [[name, exported.tree("HEAD~1")]]
    assert run(["patch", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["patches"][0]["purpose"] == "Do one thing"


def test_checkout_publishes_the_patched_tree(exported, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(project.checkout, "update", lambda _, tree, dest: asked.append((tree, dest)))
    assert run(["patch", "apply", "--checkout", str(tmp_path / "out")]) == 0
    assert asked == [(exported.tree(), tmp_path / "out")]


@pytest.mark.parametrize("name", ["1", "0001", "one-thing", "0001-do-one-thing", "0001-do-one-thing.patch"])
def test_show_prints_the_very_bytes_of_a_patch_named_in_any_way(exported, capsys, name):
    assert run(["patch", "show", name]) == 0
    assert capsys.readouterr().out.encode() == (exported.folder / "0001-do-one-thing.patch").read_bytes()


def test_show_of_nothing_lists_what_there_is(exported, capsys):
    assert run(["patch", "show", "7", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)
    assert "0001-do-one-thing.patch" in error["cause"]
    assert "patch status" in error["remedy"]


def test_status_shows_purpose_and_what_is_left_of_the_limits(exported, capsys):
    assert run(["patch", "status"]) == 0
    out = capsys.readouterr().out
    assert "1 of 130 added lines, 1 of 15 files" in out


def test_a_damaged_patch_ends_with_exit_6_and_a_command(exported, capsys):
    (exported.folder / "0001-do-one-thing.patch").write_bytes(b"x\n")
    for command in ("verify", "apply", "reverse"):
        assert run(["patch", command, "--json"]) == 6
        error = json.loads(capsys.readouterr().out)
        assert error["error"] == "patch"
        assert "git checkout" in error["remedy"]


def test_limits_edited_by_hand_survive_an_export_and_bind(exported, capsys):
    series = exported.folder / "series.toml"
    series.write_text(series.read_text().replace("added = 130", "added = 2"))
    exported.commit("Do another", {"src/a.c": b"one\n2\n3\n"})
    assert run(["patch", "export", "--from", str(exported.path)]) == 0
    assert "added = 2\n" in series.read_text()
    exported.commit("Do too much", {"src/a.c": b"one\n2\n3\n4\n"})
    assert run(["patch", "export", "--from", str(exported.path)]) == 6
    assert "2 are allowed" in capsys.readouterr().err
    assert not list(exported.folder.glob("0003*"))


def test_export_of_a_hopeless_commit_names_it(repo, capsys):
    commit = repo.commit("Add a picture", {"src/x.png": b"\x89PNG\x00\x01"})
    assert run(["patch", "export", "--from", str(repo.path), "--json"]) == 6
    error = json.loads(capsys.readouterr().out)
    assert f"show {commit}" in error["remedy"]
    assert not repo.folder.exists()
