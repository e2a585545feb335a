"""The whole stack: proven as one, written only when proven, reversed last in, first out."""

import pytest

from dgr_build.documents.series import Limits, load_series
from dgr_build.errors import PatchError, ProofError
from dgr_build.patches.export import export
from dgr_build.patches.stack import apply_series, verify

pytestmark = pytest.mark.needs_git

START = "".join(f"line {number}\n" for number in range(1, 41)).encode()


def edited(*pairs, content=START):
    for old, new in pairs:
        assert old in content
        content = content.replace(old, new, 1)
    return content


@pytest.fixture
def made(git_repo, tmp_path):
    """A repository with two patches that overlap in one file, and their exported stack."""
    repo = git_repo("upstream")
    repo.commit("base", {"src/a.c": START, "src/b.c": START, "ggml/g.c": START})
    repo.git("tag", "base")
    repo.commit(
        "First", {"src/a.c": edited((b"line 5\n", b"five\n")), "src/b.c": edited((b"line 9\n", b"nine\n"))}
    )
    repo.commit("Second", {"src/a.c": edited((b"line 5\n", b"FIVE\nmore\n"), (b"line 30\n", b""))})
    folder = tmp_path / "patches"
    write(repo, folder)
    return repo, folder


def write(repo, folder, **options):
    pinned = (repo.ask("rev-parse", "base"), repo.tree("base"))
    return export(repo.path, folder, base="base", pinned=pinned, **options)


def load(folder):
    return load_series(folder / "series.toml")


def fresh_store(repo, git_repo, revision="base", name="fresh"):
    """A store that holds one tree only, as a resolved source does."""
    other = git_repo(name)
    tree = repo.tree(revision)
    listing = repo.git("ls-tree", "-r", "-t", "--format=%(objectname)", tree) + tree.encode() + b"\n"
    pack = repo.git("pack-objects", "--stdout", "-q", stdin=listing)
    other.git("unpack-objects", "-q", stdin=pack)
    return other


def test_each_step_forward_and_backward_is_the_tree_that_git_has(made):
    repo, folder = made
    proven = verify(repo.store(), load(folder), folder)
    first, second = (entry.file for entry in load(folder).patches)
    assert proven.applied == ((first, repo.tree("HEAD~1")), (second, repo.tree()))
    assert proven.reversed == ((second, repo.tree("HEAD~1")), (first, repo.tree("base")))
    assert (proven.base_tree, proven.tree) == (repo.tree("base"), repo.tree())
    assert (proven.added, proven.removed, proven.files) == (4, 4, ("src/a.c", "src/b.c"))


def test_overlapping_patches_reverse_where_git_misjudges_the_first(made):
    repo, folder = made
    first = folder / load(folder).patches[0].file
    assert repo.run("apply", "--reverse", "--check", first).returncode != 0  # yet the stack is right
    assert verify(repo.store(), load(folder), folder).reversed[-1][1] == repo.tree("base")


def test_apply_puts_the_patched_tree_into_a_store_that_had_only_the_base(made, git_repo):
    repo, folder = made
    other = fresh_store(repo, git_repo)
    series = load(folder)
    patched = apply_series(other.store(), series.base_tree, series, folder)
    assert patched.tree == repo.tree()
    assert patched.base_tree == repo.tree("base")
    assert other.git("ls-tree", "-r", patched.tree) == repo.git("ls-tree", "-r", "HEAD")
    other.git("fsck", "--strict", "--no-dangling")
    assert apply_series(other.store(), series.base_tree, series, folder) == patched


def test_verify_writes_nothing(made, git_repo):
    repo, folder = made
    other = fresh_store(repo, git_repo)
    before = other.ask("count-objects")
    verify(other.store(), load(folder), folder)
    assert other.ask("count-objects") == before


def tampered(folder, number, old, new):
    """Change a patch and record the change, as someone would who edits by hand and mends the sha256."""
    import hashlib  # noqa: PLC0415

    series = (folder / "series.toml").read_text()
    path = folder / load(folder).patches[number - 1].file
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    for before, after in ((data, path.read_bytes()),):
        series = series.replace(hashlib.sha256(before).hexdigest(), hashlib.sha256(after).hexdigest())
    (folder / "series.toml").write_text(series)


def test_a_patch_that_fails_halfway_leaves_the_store_untouched(made, git_repo):
    repo, folder = made
    tampered(folder, 2, b"-line 30\n", b"-line 31\n")
    other = fresh_store(repo, git_repo)
    before = other.ask("count-objects")
    series = load(folder)
    with pytest.raises(PatchError) as caught:
        apply_series(other.store(), series.base_tree, series, folder)
    assert "0002-second.patch" in caught.value.message
    assert "src/a.c" in caught.value.message
    assert "line 30" in caught.value.cause
    assert "line 31" in caught.value.cause
    assert other.ask("count-objects") == before


def test_another_source_is_verified_like_any_and_never_silently_unpatched(made, git_repo):
    repo, folder = made
    series = load(folder)
    repo.git("checkout", "-q", "-b", "other", "base")
    repo.commit("another source", {"src/a.c": b"moved\n" + START})
    with pytest.raises(PatchError) as caught:
        apply_series(repo.store(), repo.tree(), series, folder)
    assert repo.tree() in caught.value.cause
    assert "source show" in caught.value.remedy
    override = series.model_copy(update={"base_tree": repo.tree()})
    with pytest.raises(PatchError) as caught:
        verify(repo.store(), override, folder)
    assert caught.value.message.startswith("0001-first.patch")


def test_a_source_that_is_not_complete_is_a_failed_proof(made, git_repo):
    _, folder = made
    with pytest.raises(ProofError) as caught:
        verify(git_repo("empty").store(), load(folder), folder)
    assert "source resolve" in caught.value.remedy


def test_changed_patch_file_is_refused_with_the_command_that_mends_it(made):
    repo, folder = made
    path = folder / "0001-first.patch"
    good = path.read_bytes()
    for bad, cause in ((good + b"\n", "sha256"), (good.replace(b"\n", b"\r\n"), "autocrlf")):
        path.write_bytes(bad)
        with pytest.raises(PatchError) as caught:
            verify(repo.store(), load(folder), folder)
        assert cause in caught.value.cause
        assert f"git checkout -- {path}" in caught.value.remedy


@pytest.mark.parametrize(
    ("field", "value"),
    [("tree", "a" * 40), ("added", 1), ("removed", 1), ("files", ())],
)
def test_a_series_that_records_something_else_is_refused(made, field, value):
    repo, folder = made
    series = load(folder)
    wrong = series.patches[0].model_copy(update={field: value})
    with pytest.raises(PatchError) as caught:
        verify(repo.store(), series.model_copy(update={"patches": (wrong, series.patches[1])}), folder)
    assert "0001-first.patch" in caught.value.message
    assert "export" in caught.value.remedy


def test_swapped_patches_are_refused(made):
    repo, folder = made
    series = load(folder)
    with pytest.raises(PatchError) as caught:
        verify(repo.store(), series.model_copy(update={"patches": series.patches[::-1]}), folder)
    assert caught.value.message.startswith("0002-second.patch")


@pytest.mark.parametrize(
    ("files", "limits", "said"),
    [
        ({"ggml/g.c": START + b"x\n"}, Limits(), "ggml/g.c"),
        ({"src/new.c": b"x\n"}, Limits(), "src/new.c"),
        ({"src/b.c": START + b"x\n" * 127}, Limits(), "130"),
        ({"src/b.c": START + b"x\n"}, Limits(added=4), "4 are allowed"),
        ({"src/b.c": START + b"x\n"}, Limits(files=1), "1 are allowed"),
    ],
)
def test_beyond_the_limits_is_refused(made, tmp_path, files, limits, said):
    repo, _ = made
    repo.commit("Third", files)
    with pytest.raises(PatchError) as caught:
        write(repo, tmp_path / "new", limits=limits)
    assert said in caught.value.message
    assert caught.value.remedy


def test_limits_that_allow_it_let_it_pass(made, tmp_path):
    repo, _ = made
    repo.commit("Third", {"src/b.c": START + b"x\n" * 127, "src/new.c": b"x\n"})
    done = write(repo, tmp_path / "new", limits=Limits(added=150, new_files=True))
    assert done.proof.tree == repo.tree()


def test_an_outer_repository_makes_git_skip_silently_but_not_us(made, git_repo, tmp_path):
    repo, folder = made
    outer = git_repo("outer")
    outer.commit("outer", {"README": b"x\n"})
    inner = outer.path / "vendor" / "src"
    inner.mkdir(parents=True)
    (inner / "a.c").write_bytes(START)
    (inner / "b.c").write_bytes(START)
    done = outer.run("apply", "--verbose", folder / "0001-first.patch", cwd=inner.parent)
    assert done.returncode == 0
    assert b"Skipped" in done.stderr
    assert (inner / "a.c").read_bytes() == START
    check = outer.run("apply", "--reverse", "--check", folder / "0001-first.patch", cwd=inner.parent)
    assert check.returncode == 0  # a false "already applied"
    store = fresh_store(repo, git_repo, name="outer/vendor/store")
    series = load(folder)
    assert apply_series(store.store(), series.base_tree, series, folder).tree == repo.tree()


def test_lock_files_of_a_killed_process_do_not_stop_the_next(made, git_repo, monkeypatch):
    repo, folder = made
    monkeypatch.setattr("dgr_build.patches.trees._LOCK_PATIENCE_S", 0.1)
    other = fresh_store(repo, git_repo)
    series = load(folder)
    for name in (series.tree, series.patches[0].files[0].after):
        lock = other.objects / name[:2] / f"{name[2:]}.lock"
        lock.parent.mkdir(exist_ok=True)
        lock.write_bytes(b"half")
    assert apply_series(other.store(), series.base_tree, series, folder).tree == repo.tree()
    other.git("fsck", "--strict", "--no-dangling")
