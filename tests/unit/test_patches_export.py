"""Export: byte-stable files from commits, and back through `git am` to the same bytes."""

import pytest

from dgr_build.documents.base import load_toml, save_toml
from dgr_build.documents.series import Limits, Series, load_series
from dgr_build.errors import PatchError, UsageError
from dgr_build.patches.export import AUTHOR, export, slug
from dgr_build.patches.stack import apply_series

pytestmark = pytest.mark.needs_git


def body(count, **changes):
    lines = [f"line {number}" for number in range(1, count + 1)]
    for where, text in changes.items():
        lines[int(where[1:]) - 1] = text
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture
def upstream(git_repo):
    repo = git_repo("upstream")
    repo.commit(
        "base",
        {"a.txt": body(30), "deep/er/b.c": body(40), "run.sh": b"#!/bin/sh\n", "dos.txt": b"a\r\nb\r\n"},
    )
    repo.git("tag", "base")
    return repo


def stack_two(repo):
    repo.commit(
        "Own a range of layers at load\n\nIt holds a part.\n\nUpstream-Status: not submitted, local",
        {"a.txt": body(30, l5="five"), "deep/er/b.c": body(40, l20="twenty")},
    )
    repo.commit(
        "deepseek4: leave early \N{LATIN SMALL LETTER U WITH DIAERESIS}ber",
        {"a.txt": body(30, l5="FIVE", l25="x")},
    )


def write(repo, folder, **options):
    return export(
        repo.path, folder, base="base", pinned=(repo.ask("rev-parse", "base"), repo.tree("base")), **options
    )


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_writes_numbered_patches_with_purpose_status_trees_and_project_author(upstream, tmp_path):
    stack_two(upstream)
    done = write(upstream, tmp_path / "patches")
    series = load_series(tmp_path / "patches" / "series.toml")
    assert series == done.series
    first, second = series.patches
    assert first.file == "0001-own-a-range-of-layers-at-load.patch"
    assert (first.purpose, first.upstream) == ("Own a range of layers at load", "not submitted, local")
    assert (first.added, first.removed, len(first.files)) == (2, 2, 2)
    assert second.upstream == "not submitted"
    assert (first.tree, second.tree) == (upstream.tree("HEAD~1"), upstream.tree())
    head = (tmp_path / "patches" / first.file).read_bytes().split(b"\n")
    assert head[0] == b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001"
    assert head[1].decode() == f"From: {AUTHOR}"


def test_apply_then_git_am_then_export_gives_the_same_bytes(upstream, tmp_path):
    stack_two(upstream)
    folder, again = tmp_path / "patches", tmp_path / "again"
    series = write(upstream, folder).series
    patched = apply_series(upstream.store(), series.base_tree, series, folder)
    upstream.git("checkout", "-q", "-b", "second", "base")
    upstream.git("am", "-q", "--keep-cr", *sorted(folder.glob("*.patch")))
    assert upstream.tree() == patched.tree == series.tree
    write(upstream, again)
    assert contents(again) == contents(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true"), ("diff.algorithm", "patience"),
        ("diff.context", "9"), ("diff.interHunkContext", "50"), ("diff.suppressBlankEmpty", "true"),
        ("core.abbrev", "7"), ("format.signature", "me"), ("format.numbered", "true"),
        ("format.pretty", "oneline"),
        ("format.subjectPrefix", "RFC"), ("format.signOff", "true"), ("format.attach", "true"),
        ("format.from", "true"), ("format.useAutoBase", "true"), ("format.notes", "true"),
        ("format.headers", "X-A: b"), ("format.filenameMaxLength", "8"), ("diff.orderFile", "order"),
        ("color.ui", "always"), ("core.autocrlf", "true"), ("i18n.logOutputEncoding", "latin1"),
        ("diff.external", "/bin/false"), ("core.hooksPath", "/nowhere"), ("diff.indentHeuristic", "false"),
    ],
)  # fmt: skip
def test_settings_of_the_repository_change_no_byte(upstream, tmp_path, name, value):
    stack_two(upstream)
    write(upstream, tmp_path / "plain")
    upstream.git("config", name, value)
    (upstream.path / "order").write_text("deep/er/b.c\n")
    (upstream.path / ".git" / "info" / "attributes").write_text("*.txt diff=cpp\n*.c -diff\n")
    upstream.git("config", "diff.cpp.xfuncname", "^(line 1.*)$")
    write(upstream, tmp_path / "set")
    assert contents(tmp_path / "set") == contents(tmp_path / "plain")


def test_settings_of_the_user_change_no_byte(upstream, tmp_path, monkeypatch):
    stack_two(upstream)
    write(upstream, tmp_path / "plain")
    (tmp_path / "config").write_text("[diff]\n\tnoprefix = true\n[format]\n\tsignOff = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_DIFF_OPTS", "-U0")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    write(upstream, tmp_path / "set")
    assert contents(tmp_path / "set") == contents(tmp_path / "plain")


def test_author_of_the_commit_leaves_no_trace(upstream, tmp_path):
    stack_two(upstream)
    write(upstream, tmp_path / "plain")
    upstream.git("checkout", "-q", "-b", "other", "base")
    for revision in ("main~1", "main"):
        upstream.git("cherry-pick", revision)
        upstream.git(
            "commit",
            "-q",
            "--amend",
            "--no-edit",
            "--author=J\N{LATIN SMALL LETTER O WITH DIAERESIS}rg <j@x>",
        )
    write(upstream, tmp_path / "other")
    assert contents(tmp_path / "other") == contents(tmp_path / "plain")


def test_untidy_message_still_comes_back_byte_for_byte_through_git_am(upstream, tmp_path):
    message = b"\n\nFix it\non two lines   \n\n\n\nbody  \n\n\ttab\n\n\nUpstream-Status: a\n\n\n"
    upstream.write({"a.txt": body(30, l3="x")})
    upstream.git("commit", "-q", "-a", "--cleanup=verbatim", "-F", "-", stdin=message)
    write(upstream, tmp_path / "one")
    upstream.git("checkout", "-q", "-b", "second", "base")
    upstream.git("am", "-q", *sorted((tmp_path / "one").glob("*.patch")))
    write(upstream, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_carriage_returns_of_a_file_survive(upstream, tmp_path):
    upstream.commit("Change a DOS file", {"dos.txt": b"a\r\nB\r\nc\r\n"})
    series = write(upstream, tmp_path / "p").series
    patched = apply_series(upstream.store(), series.base_tree, series, tmp_path / "p")
    assert upstream.git("cat-file", "blob", f"{patched.tree}:dos.txt") == b"a\r\nB\r\nc\r\n"
    upstream.git("checkout", "-q", "-b", "second", "base")
    upstream.git("am", "-q", "--keep-cr", *(tmp_path / "p").glob("*.patch"))
    assert upstream.tree() == patched.tree


def test_other_files_of_the_folder_and_the_limits_stay_and_old_patches_go(upstream, tmp_path):
    folder = tmp_path / "patches"
    stack_two(upstream)
    write(upstream, folder)
    (folder / "README.md").write_text("how the stack is kept\n")
    upstream.git("reset", "-q", "--hard", "HEAD~1")
    done = write(upstream, folder, limits=Limits(added=7))
    assert done.removed == ("0002-deepseek4-leave-early-ber.patch",)
    assert (folder / "README.md").read_text() == "how the stack is kept\n"
    assert load_series(folder / "series.toml").limits.added == 7
    assert sorted(file.name for file in tmp_path.iterdir()) == ["patches", "upstream"]


def test_a_stack_that_does_not_verify_leaves_what_was_there(upstream, tmp_path):
    folder = tmp_path / "patches"
    stack_two(upstream)
    write(upstream, folder)
    before = contents(folder)
    upstream.commit("Add trailing blanks", {"a.txt": body(30, l9="nine ")})
    with pytest.raises(PatchError) as caught:
        write(upstream, folder)
    assert "patch export" in caught.value.remedy
    assert contents(folder) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["patches", "upstream"]


def test_second_export_changes_nothing(upstream, tmp_path):
    stack_two(upstream)
    write(upstream, tmp_path / "p")
    stamp = (tmp_path / "p").stat().st_ino
    done = write(upstream, tmp_path / "p")
    assert (done.changed, done.removed) == ((), ())
    assert (tmp_path / "p").stat().st_ino == stamp


def test_uncommitted_changes_are_refused(upstream, tmp_path):
    stack_two(upstream)
    upstream.write({"a.txt": b"half done\n"})
    with pytest.raises(UsageError) as caught:
        write(upstream, tmp_path / "p")
    assert "a.txt" in caught.value.cause
    assert "commit" in caught.value.remedy


def test_merges_are_refused(upstream, tmp_path):
    stack_two(upstream)
    upstream.git("checkout", "-q", "-b", "side", "base")
    upstream.commit("side", {"run.sh": b"#!/bin/bash\n"})
    upstream.git("merge", "-q", "-m", "merge", "main")
    with pytest.raises(UsageError) as caught:
        write(upstream, tmp_path / "p")
    assert "rebase" in caught.value.remedy


def test_empty_commits_are_refused(upstream, tmp_path):
    upstream.commit("Do nothing")
    with pytest.raises(PatchError):
        write(upstream, tmp_path / "p")


@pytest.mark.parametrize("base", ["nowhere", "HEAD", "--all"])
def test_wrong_base_is_refused_with_the_option_that_mends_it(upstream, tmp_path, base):
    stack_two(upstream)
    with pytest.raises(UsageError) as caught:
        export(upstream.path, tmp_path / "p", base=base, pinned=("1" * 40, upstream.tree("base")))
    assert "--base" in caught.value.remedy
    assert not (tmp_path / "p").exists()


def test_what_is_no_repository_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError):
            export(path, tmp_path / "p", base="x", pinned=("1" * 40, "1" * 40))


def test_bare_repositories_and_linked_work_trees_export_too(upstream, tmp_path):
    stack_two(upstream)
    write(upstream, tmp_path / "plain")
    upstream.git("clone", "-q", "--bare", upstream.path, tmp_path / "bare.git")
    upstream.git("worktree", "add", "-q", tmp_path / "linked tree", "--detach", "HEAD")
    for path in (tmp_path / "bare.git", tmp_path / "linked tree"):
        pinned = (upstream.ask("rev-parse", "base"), upstream.tree("base"))
        export(path, tmp_path / "out" / path.stem, base="base", pinned=pinned)
        assert contents(tmp_path / "out" / path.stem) == contents(tmp_path / "plain")


def test_series_written_and_read_again_is_the_same(upstream, tmp_path):
    stack_two(upstream)
    series = write(upstream, tmp_path / "p").series
    save_toml(tmp_path / "again.toml", series)
    assert load_toml(tmp_path / "again.toml", Series) == series


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("Own a range", "own-a-range"),
        ("deepseek4: leave early", "deepseek4-leave-early"),
        ("  !! ", "patch"),
        ("a" * 80, "a" * 52),
        (" ".join(["word"] * 30), "-".join(["word"] * 10)),
    ],
)
def test_slug_is_short_lower_case_words(subject, expected):
    assert slug(subject) == expected
