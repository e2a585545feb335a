"""The real series on the real pin."""

import stat
import subprocess
from contextlib import closing
from time import process_time

import pytest
from dulwich.objects import ObjectID

from dgr_build.documents.pin import load_pin
from dgr_build.documents.series import load_series
from dgr_build.patches.stack import apply_series, read_patches, verify
from dgr_build.source.resolve import resolve
from dgr_build.source.store import open_store
from dgr_build.workspace import Workspace


@pytest.fixture(scope="module")
def workspace():
    return Workspace.open()


@pytest.fixture(scope="module")
def base(workspace):
    return resolve(workspace, load_pin(workspace.pin_file))


@pytest.fixture(scope="module")
def series(workspace):
    return load_series(workspace.series_file)


@pytest.fixture
def store(base):
    with closing(open_store(base.store)) as opened:
        yield opened


def blobs(store, tree_id, prefix=b""):
    """Yield (path, mode, id) of every file of a tree."""
    for name, mode, object_id in store[ObjectID(tree_id)].items():
        if stat.S_ISDIR(mode):
            yield from blobs(store, object_id, prefix + name + b"/")
        else:
            yield prefix + name, mode, object_id


def git(*arguments, cwd, stdin=b""):
    options = [
        "-c",
        "safe.directory=*",
        "-c",
        "user.name=w",
        "-c",
        "user.email=w@localhost",
        "-c",
        "core.autocrlf=false",
    ]
    done = subprocess.run(
        ["git", *options, *map(str, arguments)], cwd=cwd, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_series_stands_on_the_pin(series, base):
    assert (series.base_commit, series.base_tree) == (base.commit, base.tree)
    assert series.patches


def test_verify_proves_it_in_well_under_a_second_of_work(series, store, workspace):
    start = process_time()
    proven = verify(store, series, workspace.series_file.parent)
    assert process_time() - start < 0.8
    assert proven.tree == series.tree
    assert proven.reversed[-1][1] == series.base_tree


def test_patches_are_authored_as_the_project(series, workspace):
    for patch in read_patches(series, workspace.series_file.parent):
        assert patch.head.split(b"\n")[1] == b"From: dgr-build <dgr-build@localhost>"
        assert patch.message, f"{patch.name} does not say why"


def test_only_the_named_files_differ_between_base_and_patched_tree(series, store, workspace):
    patched = apply_series(store, series.base_tree, series, workspace.series_file.parent)
    before = {path: (mode, name) for path, mode, name in blobs(store, series.base_tree.encode())}
    after = {path: (mode, name) for path, mode, name in blobs(store, patched.tree.encode())}
    differ = {path.decode() for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert differ == {file.path for entry in series.patches for file in entry.files}


@pytest.mark.needs_git
def test_git_am_makes_the_same_trees(series, base, workspace, tmp_path):
    """The witness: a real repository on the pinned tree, patched by real git in its order."""
    git("init", "-q", "-b", "main", cwd=tmp_path)
    alternates = tmp_path / ".git" / "objects" / "info" / "alternates"
    objects = base.store if (base.store / "pack").is_dir() else base.store / "objects"
    alternates.write_text(f"{objects}\n")
    commit = git("commit-tree", base.tree, "-m", "base", cwd=tmp_path).decode().strip()
    git("update-ref", "refs/heads/main", commit, cwd=tmp_path)
    # only the touched files are checked out: the rest is not needed to commit
    git(
        "sparse-checkout",
        "set",
        "--no-cone",
        *sorted({f"/{f.path}" for e in series.patches for f in e.files}),
        cwd=tmp_path,
    )
    git("reset", "-q", "--hard", cwd=tmp_path)
    for entry in series.patches:
        git("am", "-q", "--keep-cr", workspace.series_file.parent / entry.file, cwd=tmp_path)
        assert git("rev-parse", "HEAD^{tree}", cwd=tmp_path).decode().strip() == entry.tree
    for entry in reversed(series.patches):
        git("apply", "--index", "--reverse", workspace.series_file.parent / entry.file, cwd=tmp_path)
    assert git("write-tree", cwd=tmp_path).decode().strip() == series.base_tree


@pytest.mark.needs_git
def test_no_tracked_file_is_a_copy_of_an_upstream_file(series, store, workspace):
    upstream = {name: path for path, _, name in blobs(store, series.base_tree.encode())}
    empty = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    listing = git("ls-files", "-s", "-z", cwd=workspace.project)
    copies = []
    for record in filter(None, listing.split(b"\0")):
        meta, _, path = record.partition(b"\t")
        name = meta.split()[1]
        if name != empty and name in upstream:
            copies.append((path, upstream[name]))
    assert copies == []
