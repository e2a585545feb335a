"""Random trees and edits: what git diffs, our engine turns into exactly git's tree, and back."""

import os
import subprocess

import pytest
from dulwich.object_store import DiskObjectStore
from dulwich.objects import Blob
from hypothesis import given, settings
from hypothesis import strategies as st

from dgr_build.patches.apply import apply_patch
from dgr_build.patches.model import invert, render
from dgr_build.patches.parse import parse_patch
from dgr_build.patches.trees import Overlay, edit

pytestmark = pytest.mark.needs_git

HEAD = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\nFrom: a <b>\nDate: c\nSubject: [PATCH] d\n\n"

_PATHS = st.sampled_from(
    [b"a", b"b", b"dir/a", b"dir/b", b"dir/sub/c", b"dir.c", b"dir-x/y", b"with space/f g", b"z/z/z/z"]
)
_LINES = st.sampled_from(
    [b"", b"a", b"b", b" ", b"-- ", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"\\ No newline at end of file",
     b"\r", b"x\r", b"diff --git a/a b/a", b"int main() {", b"}", b"\tx", b"\xff\xfe", b"From x", b"2.39.5"]
)  # fmt: skip
_FILES = st.tuples(st.sampled_from([0o100644, 0o100755]), st.lists(_LINES, max_size=30), st.booleans())
_TREES = st.dictionaries(_PATHS, _FILES, min_size=1, max_size=5)


@pytest.fixture(scope="module")
def git(tmp_path_factory):
    path = tmp_path_factory.mktemp("witness")

    def run(*arguments, stdin=b"", index=None):
        done = subprocess.run(
            ["git", *arguments],
            cwd=path,
            input=stdin,
            capture_output=True,
            check=False,
            env={
                "PATH": os.environ["PATH"],
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": "/dev/null",
            }
            | ({"GIT_INDEX_FILE": index} if index else {}),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("init", "-q")
    run.store = DiskObjectStore(str(path / ".git" / "objects"))
    return run


def content(lines, *, ended):
    data = b"\n".join(lines)
    return data + b"\n" if lines and ended else data


def tree_of(store, files):
    changes = {}
    for path, (mode, lines, ended) in files.items():
        changes[path] = (mode, store.add(Blob.from_string(content(lines, ended=ended))))
    return edit(store, None, changes).decode()


@st.composite
def edits(draw):
    """Two trees, the second an edit of the first: lines changed, files added and removed."""
    old = draw(_TREES)
    new = dict(old)
    for path in draw(st.lists(st.sampled_from(sorted(old)), max_size=3)):
        mode, lines, _ = old[path]
        if draw(st.booleans()):
            at = draw(st.integers(0, len(lines)))
            cut = draw(st.integers(0, 3))
            put = draw(st.lists(_LINES, max_size=3))
            new[path] = (mode, [*lines[:at], *put, *lines[at + cut :]], draw(st.booleans()))
        else:
            new.pop(path, None)
    more = draw(st.dictionaries(_PATHS, _FILES, max_size=2))
    # one that was there might come back with another mode, and a changed mode is refused
    new.update({path: file for path, file in more.items() if path not in old})
    # a file cannot be where another has its folder
    for files in (old, new):
        for path in list(files):
            if any(other.startswith(path + b"/") for other in files):
                del files[path]
    return old, new


@settings(max_examples=250, deadline=None)
@given(pair=edits())
def test_engine_gives_exactly_the_tree_that_git_has_and_back(git, tmp_path_factory, pair):
    old, new = pair
    layer = git.store
    store = Overlay(layer)
    if not old or not new:
        return
    before, after = tree_of(store, old), tree_of(store, new)
    store.flush()
    if before == after:
        return
    diff = git("diff-tree", "-p", "-r", "--full-index", "--no-renames", "--text", before, after)
    patch = parse_patch(HEAD + diff, "0001-x.patch")
    assert render(patch) == HEAD + diff
    assert apply_patch(Overlay(layer), before, patch) == after
    assert apply_patch(Overlay(layer), after, invert(patch)) == before
    # git's own apply, asked for the tree and not for its exit code
    index = str(tmp_path_factory.mktemp("index") / "index")
    git("read-tree", before, index=index)
    git("apply", "--cached", "--whitespace=nowarn", stdin=diff, index=index)
    assert git("write-tree", index=index).strip().decode() == after
