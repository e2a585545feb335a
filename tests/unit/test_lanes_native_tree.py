"""The id of the C++ sources: git's own, of the files as they lie there."""

import pytest

from dgr_build.lanes.native_tree import tree_id

_FILES = {
    "b.txt": b"b",
    "a/x.cpp": b"int x;\n",
    "a.b/y": b"",
    "a0": b"after a.b, before a/",
    "run": b"#!/bin/sh\n",
}


@pytest.mark.needs_git
def test_the_id_is_the_one_git_gives(git_repo):
    repo = git_repo()
    repo.write(_FILES)
    (repo.path / "run").chmod(0o755)
    (repo.path / "link").symlink_to("b.txt")
    repo.commit("everything")
    assert tree_id(repo.path) == repo.tree()


@pytest.fixture
def folder(tmp_path):
    for name, content in _FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    return tmp_path


def test_caches_editor_files_and_empty_folders_do_not_count(folder):
    before = tree_id(folder)
    (folder / "a" / "__pycache__").mkdir()
    (folder / "a" / "__pycache__" / "x.pyc").touch()
    (folder / "b.txt~").touch()
    (folder / "empty" / "inner").mkdir(parents=True)
    assert tree_id(folder) == before


def _edit(folder):
    (folder / "a" / "x.cpp").write_bytes(b"int y;\n")


def _rename(folder):
    (folder / "b.txt").rename(folder / "c.txt")


def _allow_running(folder):
    (folder / "run").chmod(0o755)


def _add(folder):
    (folder / "a" / "z.cpp").touch()


@pytest.mark.parametrize("change", [_edit, _rename, _allow_running, _add])
def test_content_name_mode_and_new_files_count(folder, change):
    before = tree_id(folder)
    change(folder)
    assert tree_id(folder) != before
