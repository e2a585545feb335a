from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dulwich.object_store import DiskObjectStore
from dulwich.objects import Blob, Tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dgr_build.errors import HostError, ProofError, UsageError
from dgr_build.source import checkout


def _content(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (stat.S_IMODE(path.lstat().st_mode), path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def _stamps(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


def _folders(folder: Path) -> set[int]:
    return {stat.S_IMODE(p.stat().st_mode) for p in [folder, *folder.rglob("*")] if p.is_dir()}


def _expected(repo, revision="HEAD") -> dict[str, tuple[int, bytes]]:
    found = {}
    for line in repo.git("ls-tree", "-r", "-z", revision).split(b"\0")[:-1]:
        facts, path = line.split(b"\t")
        mode, _, blob = facts.decode().split()
        perm = 0o555 if mode == "100755" else 0o444
        found[path.decode()] = (perm, repo.git("cat-file", "blob", blob))
    return found


def test_checkout_holds_exactly_the_tree_read_only(upstream, tmp_path: Path) -> None:
    dest = tmp_path / "with späce" / "current"
    done = checkout.update(upstream.store(), upstream.tree(), dest)
    assert _content(dest) == _expected(upstream)
    assert _folders(dest) == {0o555}
    assert (done.written, done.removed, done.kept) == (len(_expected(upstream)), 0, 0)
    assert [p.name for p in dest.parent.iterdir() if p.name.startswith(".staging")] == []


def test_second_run_on_the_same_tree_changes_nothing(upstream, tmp_path: Path) -> None:
    """B30: state is keyed on tree ids, not on what may have been done before."""
    dest = tmp_path / "current"
    checkout.update(upstream.store(), upstream.tree(), dest)
    before, stamp = _stamps(dest), checkout.stamp_of(dest).stat()
    done = checkout.update(upstream.store(), upstream.tree(), dest)
    assert (done.written, done.removed) == (0, 0)
    assert _stamps(dest) == before
    assert checkout.stamp_of(dest).stat().st_mtime_ns == stamp.st_mtime_ns


def test_what_the_stamp_of_the_same_tree_knows_is_not_read_from_the_store_again(
    upstream, tmp_path: Path
) -> None:
    dest = tmp_path / "current"
    checkout.update(upstream.store(), upstream.tree(), dest)
    empty = DiskObjectStore.init(str(tmp_path / "nothing"))
    assert checkout.update(empty, upstream.tree(), dest).written == 0
    (dest / "empty").chmod(0o644)
    (dest / "empty").write_bytes(b"not empty")
    with pytest.raises(ProofError):
        checkout.update(empty, upstream.tree(), dest)
    checkout.update(upstream.store(), upstream.tree(), dest)
    assert _content(dest) == _expected(upstream)


def test_unchanged_files_keep_their_time_stamp_when_the_tree_changes(upstream, tmp_path: Path) -> None:
    dest, store = tmp_path / "current", upstream.store()
    first = upstream.tree()
    checkout.update(store, first, dest)
    before = _stamps(dest)
    (upstream.path / "run.sh").chmod(0o644)
    upstream.commit("next", {"src/graph.cpp": b"changed", "src/deep/er/empty.py": None, "new/file": b"new"})
    done = checkout.update(upstream.store(), upstream.tree(), dest)
    assert _content(dest) == _expected(upstream)
    after = _stamps(dest)
    assert {p for p in before if after.get(p) == before[p]} == set(before) - {
        "src/graph.cpp",
        "src/deep/er/empty.py",
    }
    assert (done.written, done.removed) == (2, 1)
    assert not (dest / "src/deep").exists()
    checkout.update(store, first, dest)
    assert _content(dest) == _expected(upstream, "HEAD~1")


@pytest.mark.parametrize("files", [{"a/b": b"1"}, {"a": b"1"}, {"a/b/c": b"1", "d": b""}, {"x": b"1"}])
def test_folder_and_file_take_each_others_place(git_repo, tmp_path: Path, files: dict[str, bytes]) -> None:
    repo = git_repo()
    repo.commit("one", {"a": b"a file"})
    dest = tmp_path / "current"
    checkout.update(repo.store(), repo.tree(), dest)
    repo.commit("gone", {"a": None})
    repo.commit("two", files)
    for revision in ("HEAD", "HEAD~2", "HEAD"):
        checkout.update(repo.store(), repo.tree(revision), dest)
        assert _content(dest) == _expected(repo, revision)
        assert _folders(dest) == {0o555}


def test_what_somebody_changed_or_added_is_put_right(upstream, tmp_path: Path) -> None:
    dest = tmp_path / "current"
    checkout.update(upstream.store(), upstream.tree(), dest)
    before = _stamps(dest)
    for folder in (dest, dest / "src"):
        folder.chmod(0o755)
    (dest / "README.md").unlink()
    (dest / "README.md").write_bytes(b"made upstream!")
    (dest / "run.sh").chmod(0o777)
    (dest / "src/graph.cpp").unlink()
    (dest / "src/build").mkdir()
    (dest / "src/build/made.o").touch()
    (dest / "src/empty").mkdir()
    (dest / "src/link").symlink_to("/")
    (tmp_path / "outside").write_bytes(b"kept")
    (dest / "empty").unlink()
    (dest / "empty").symlink_to(tmp_path / "outside")
    checkout.update(upstream.store(), upstream.tree(), dest)
    assert _content(dest) == _expected(upstream)
    assert not any(p.is_symlink() for p in dest.rglob("*"))
    assert _folders(dest) == {0o555}
    assert (tmp_path / "outside").read_bytes() == b"kept"
    assert _stamps(dest)["src/deep/er/empty.py"] == before["src/deep/er/empty.py"]


def test_same_size_edit_with_the_old_time_stamp_is_noticed(upstream, tmp_path: Path) -> None:
    dest = tmp_path / "current"
    checkout.update(upstream.store(), upstream.tree(), dest)
    file = dest / "README.md"
    times = file.stat()
    file.chmod(0o644)
    file.write_bytes(b"MADE upstream\n")
    file.chmod(0o444)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    checkout.update(upstream.store(), upstream.tree(), dest)
    assert file.read_bytes() == b"made upstream\n"


def test_folder_of_somebody_else_is_left_alone(upstream, tmp_path: Path) -> None:
    dest = tmp_path / "mine"
    dest.mkdir()
    (dest / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError):
        checkout.update(upstream.store(), upstream.tree(), dest)
    assert (dest / "thesis.txt").read_text() == "years of work"
    assert [p.name for p in dest.iterdir()] == ["thesis.txt"]


def test_link_in_the_place_of_the_folder_is_refused(upstream, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError):
        checkout.update(upstream.store(), upstream.tree(), tmp_path / "link")
    assert list((tmp_path / "real").iterdir()) == []


def test_empty_folder_is_taken(upstream, tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    checkout.update(upstream.store(), upstream.tree(), tmp_path / "current")
    assert _content(tmp_path / "current") == _expected(upstream)


def test_damaged_blob_is_never_written_out(upstream, tmp_path: Path) -> None:
    tree, name = upstream.tree(), upstream.ask("rev-parse", "HEAD:README.md")
    file = upstream.objects / name[:2] / name[2:]
    other = upstream.ask("rev-parse", "HEAD:run.sh")
    file.chmod(0o644)
    file.write_bytes((upstream.objects / other[:2] / other[2:]).read_bytes())
    with pytest.raises(ProofError):
        checkout.update(upstream.store(), tree, tmp_path / "current")
    assert not (tmp_path / "current").exists()


def test_unsafe_tree_is_never_written_out(tmp_path: Path) -> None:
    store = DiskObjectStore.init(str(tmp_path / "objects"))
    blob = Blob.from_string(b"x")
    tree = Tree()
    tree.add(b"..", 0o100644, blob.id)
    for one in (blob, tree):
        store.add_object(one)
    with pytest.raises(ProofError):
        checkout.update(store, tree.id.decode(), tmp_path / "current")


def test_place_that_cannot_be_written_is_a_host_error(upstream, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError) as caught:
        checkout.update(upstream.store(), upstream.tree(), tmp_path / "file" / "current")
    assert caught.value.remedy


def test_failure_in_the_middle_is_mended_by_the_next_run(
    upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest = tmp_path / "current"
    checkout.update(upstream.store(), upstream.tree(), dest)
    upstream.commit("next", {"README.md": b"1", "src/graph.cpp": b"2", "empty": None, "more/a": b"3"})
    real, calls = checkout._write, []

    def failing(*arguments) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(checkout, "_write", failing)
    with pytest.raises(KeyboardInterrupt):
        checkout.update(upstream.store(), upstream.tree(), dest)
    assert not checkout._read_stamp(dest).complete
    monkeypatch.undo()
    checkout.update(upstream.store(), upstream.tree(), dest)
    assert _content(dest) == _expected(upstream)
    assert _folders(dest) == {0o555}


_UPDATE = """
import sys
from pathlib import Path
from dgr_build.source import checkout
from dgr_build.source.store import opened
print("started", flush=True)
with opened(Path(sys.argv[1])) as store:
    for tree in sys.argv[3:] * 50:
        checkout.update(store, tree, Path(sys.argv[2]))
"""


def test_kill_at_any_moment_is_mended_by_the_next_run(upstream, tmp_path: Path) -> None:
    dest = tmp_path / "current"
    first = upstream.tree()
    upstream.commit("next", {f"many/{n}": b"%d" % n for n in range(60)} | {"README.md": b"1", "empty": None})
    trees = (upstream.tree(), first)
    for moment in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", _UPDATE, upstream.objects, dest, *trees],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            child.stdout.readline()
            time.sleep(0.01 + 0.023 * moment)
            child.send_signal(signal.SIGKILL)
        checkout.update(upstream.store(), trees[0], dest)
        assert _content(dest) == _expected(upstream), f"killed at moment {moment}"
        assert _folders(dest) == {0o555}
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".staging") and p.is_dir()] == []


def test_two_processes_at_once_leave_one_good_folder(upstream, tmp_path: Path) -> None:
    dest, tree = tmp_path / "current", upstream.tree()
    commands = [sys.executable, "-c", _UPDATE.replace("* 50", ""), upstream.objects, dest, tree]
    children = [subprocess.Popen(commands, stderr=subprocess.PIPE) for _ in range(2)]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors.decode()
    assert _content(dest) == _expected(upstream)


_PATHS = st.lists(st.sampled_from(["a", "b", "ü", "c c", "x.h"]), min_size=1, max_size=3).map("/".join)
_TREES = st.dictionaries(_PATHS, st.tuples(st.booleans(), st.binary(max_size=20)), max_size=6)


def _tree_of(store: DiskObjectStore, files: dict[str, tuple[bool, bytes]]) -> str:
    tree, below = Tree(), {}
    for path, entry in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = entry
        else:
            blob = Blob.from_string(entry[1])
            store.add_object(blob)
            tree.add(name.encode(), 0o100755 if entry[0] else 0o100644, blob.id)
    for name, inner in below.items():
        tree.add(name.encode(), 0o040000, _tree_of(store, inner).encode())
    store.add_object(tree)
    return tree.id.decode()


def _possible(files: dict[str, tuple[bool, bytes]]) -> bool:
    return not any(other.startswith(path + "/") for path in files for other in files)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees=st.lists(_TREES.filter(_possible), min_size=1, max_size=4))
def test_any_sequence_of_trees_is_written_out_faithfully(tmp_path_factory, trees) -> None:
    root = tmp_path_factory.mktemp("any")
    store = DiskObjectStore.init(str(root / "objects"))
    for files in trees:
        checkout.update(store, _tree_of(store, files), root / "current")
        wanted = {p: (0o555 if executable else 0o444, content) for p, (executable, content) in files.items()}
        assert _content(root / "current") == wanted
    store.close()


def test_neighbours_of_the_folder_are_left_alone(upstream, tmp_path: Path) -> None:
    others = tmp_path / ".staging-other-1"
    others.mkdir()
    ours = tmp_path / ".staging-current-1"
    ours.mkdir()
    checkout.update(upstream.store(), upstream.tree(), tmp_path / "current")
    assert others.exists()
    assert not ours.exists()


@pytest.mark.parametrize("dest", ["/", "."])
def test_root_and_a_folder_in_use_are_refused(
    upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dest: str
) -> None:
    monkeypatch.chdir(upstream.path)
    with pytest.raises(UsageError):
        checkout.update(upstream.store(), upstream.tree(), Path(dest))
    assert not (tmp_path / ".upstream.lock").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tree": "x"}', b"\xff"])
def test_damaged_stamp_costs_a_closer_look_only(upstream, tmp_path: Path, content: bytes) -> None:
    dest = tmp_path / "current"
    checkout.update(upstream.store(), upstream.tree(), dest)
    before = _stamps(dest)
    checkout.stamp_of(dest).write_bytes(content)
    done = checkout.update(upstream.store(), upstream.tree(), dest)
    assert (done.written, _stamps(dest)) == (0, before)
