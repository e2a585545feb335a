"""The gate on added lines says what `git diff --check` says."""

import pytest
from dulwich.object_store import MemoryObjectStore
from dulwich.objects import Blob
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dgr_build.errors import PatchError
from dgr_build.patches.apply import apply_patch
from dgr_build.patches.gate import check_lines
from dgr_build.patches.parse import parse_patch
from dgr_build.patches.trees import Overlay, edit

pytestmark = pytest.mark.needs_git

HEAD = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\nFrom: a <b>\nDate: c\nSubject: [PATCH] d\n\n"


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    import subprocess  # noqa: PLC0415

    path = tmp_path_factory.mktemp("gate")

    def git(*arguments, stdin=b""):
        return subprocess.run(
            ["git", "-c", "core.autocrlf=false", *arguments],
            cwd=path,
            input=stdin,
            capture_output=True,
            check=False,
        )

    git("init", "-q")
    return git


def refusal(repo, old, new):
    """Return our reason (empty: passes) and whether git objects, for one file that goes from old to new."""
    ids = [
        repo("hash-object", "-w", "--stdin", stdin=content).stdout.strip().decode() for content in (old, new)
    ]
    trees = [repo("mktree", stdin=f"100644 blob {i}\tf\n".encode()).stdout.strip().decode() for i in ids]
    diff = repo("diff-tree", "-p", "--full-index", *trees).stdout
    objects = repo("diff-tree", "--check", *trees).returncode != 0
    store = Overlay(MemoryObjectStore())
    tree = edit(store, None, {b"f": (0o100644, store.add(Blob.from_string(old)))}).decode()
    patch = parse_patch(HEAD + diff, "0001-x.patch")
    apply_patch(store, tree, patch)
    error = None
    try:
        check_lines(store, patch)
    except PatchError as caught:
        error = caught
    if error is None:
        return "", objects
    assert error.message.startswith("0001-x.patch:")
    assert "export" in error.remedy
    return error.message, objects


@pytest.mark.parametrize(
    "line",
    [
        b"trailing ", b"trailing\t", b" \tindent", b"\t \tindent", b"<<<<<<< HEAD", b"=======", b">>>>>>> x",
        b"||||||| base", b" ", b"\t",
    ],
)  # fmt: skip
def test_untidy_lines_are_refused_as_git_does(repo, line):
    reason, objects = refusal(repo, b"a\nb\n", b"a\n" + line + b"\nb\n")
    assert objects
    assert reason


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\tindent",
        b"    indent",
        b"\t    indent",
        b"a \tb",
        b"<<<<<<",
        b"<<<<<<<<",
        b"======== x",
        b"-- .",
    ],
)
def test_tidy_lines_pass_as_with_git(repo, line):
    assert refusal(repo, b"a\nb\n", b"a\n" + line + b"\nb\n") == ("", False)


def test_new_blank_lines_at_the_end_are_refused(repo):
    assert refusal(repo, b"a\n", b"a\n\n")[0]
    assert refusal(repo, b"a\n\n", b"a\n\n\n")[0]
    assert refusal(repo, b"a\n\n", b"b\n\n") == ("", False)


def test_untidy_lines_that_were_there_do_not_matter(repo):
    assert refusal(repo, b"a \nb\n", b"a \nB\n") == ("", False)


def test_carriage_returns_pass_only_where_the_file_has_them(repo):
    assert refusal(repo, b"a\nb\n", b"a\nB\r\n")[0]
    assert refusal(repo, b"a\r\nb\r\n", b"a\r\nB\r\n")[0] == ""
    assert refusal(repo, b"a\r\nb\r\n", b"a\r\nB \r\n")[0]


_LINES = st.lists(
    st.sampled_from([b"a", b"b", b"", b" ", b"\t", b" \tx", b"\tx", b"x ", b"=======", b"\x0c"]), max_size=5
)


@settings(max_examples=60, deadline=None)
@given(old=_LINES, new=_LINES, old_end=st.booleans(), new_end=st.booleans())
@example(old=[b"a", b""], new=[b"a", b"", b""], old_end=True, new_end=True)
def test_agrees_with_git(repo, old, new, old_end, new_end):
    before = b"\n".join(old) + (b"\n" if old and old_end else b"")
    after = b"\n".join(new) + (b"\n" if new and new_end else b"")
    if before == after or not before.strip() or not after.strip():
        return  # git does not count blank lines in a file that has nothing else
    reason, objects = refusal(repo, before, after)
    assert bool(reason) == objects, (before, after, reason)
