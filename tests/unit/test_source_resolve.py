from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from dulwich.objects import Blob, Tree

from dgr_build.documents.pin import BundleProvider, GitProvider, RepositoryProvider
from dgr_build.errors import HostError, ProofError, SourceUnavailableError
from dgr_build.source import record as records
from dgr_build.source.proof import prove_tree
from dgr_build.source.resolve import open_store, recorded, resolve, verify
from dgr_build.source.store import opened

if TYPE_CHECKING:
    from pathlib import Path

_NOWHERE = {"kind": "git", "url": "http://127.0.0.1:1/nowhere"}


def _repository(path: Path) -> RepositoryProvider:
    return RepositoryProvider(kind="repository", path=str(path))


def _is_whole(base) -> bool:
    with opened(base.store / "objects") as store:
        return prove_tree(store, base.tree).content_sha256 == base.content_sha256


def test_resolved_source_is_proven_and_named_in_full(upstream, pin_of, ws) -> None:
    """B10: ids are full everywhere, never what some clone takes for short enough."""
    pin = pin_of(upstream)
    base = resolve(ws, pin)
    assert (base.commit, base.tree) == (upstream.pinned, upstream.tree())
    assert {len(base.commit), len(base.tree)} == {40}
    assert base.proof == "full"
    assert not base.override
    assert _is_whole(base)
    written = json.loads(records.path_of(ws.store, base.tree).read_text())
    assert {len(written["commit"]), len(written["tree"])} == {40}


def test_store_is_a_repository_that_real_git_finds_sound(upstream, pin_of, ws, git_repo) -> None:
    upstream.commit("child", {"a": b"1"})
    base = resolve(ws, pin_of(upstream))
    git = git_repo("witness")
    assert git.git("--git-dir", base.store, "fsck", "--strict", "--full") == b""
    assert git.ask("--git-dir", base.store, "rev-parse", f"{base.commit}^{{tree}}") == base.tree
    assert git.ask("--git-dir", base.store, "rev-list", "--count", base.commit) == "1"


def test_only_what_the_pin_reaches_comes_into_the_store(upstream, pin_of, ws) -> None:
    pin = pin_of(upstream)
    later = upstream.commit("not pinned", {"secret.txt": b"not for us"})
    base = resolve(ws, pin)
    with opened(base.store / "objects") as store:
        assert later.encode() not in store
        assert upstream.ask("rev-parse", "HEAD:secret.txt").encode() not in store


def test_second_run_asks_no_provider(upstream, pin_of, ws, monkeypatch: pytest.MonkeyPatch) -> None:
    """B30: the state is keyed on tree ids."""
    pin = pin_of(upstream)
    first = resolve(ws, pin)
    monkeypatch.setattr("dgr_build.source.resolve._attempt", lambda *_: pytest.fail("asked"))
    shutil.rmtree(upstream.path)
    assert resolve(ws, pin) == first


def test_provider_that_fails_is_named_with_its_reason_and_the_next_is_tried(upstream, pin_of, ws) -> None:
    pin = pin_of(upstream, providers=(_NOWHERE, {"kind": "repository", "path": str(upstream.path)}))
    base = resolve(ws, pin)
    assert base.provider.startswith("repository")
    ((name, reason),) = base.attempts
    assert "127.0.0.1" in name
    assert "efused" in reason
    assert resolve(ws, pin).attempts == base.attempts


def test_server_that_refuses_the_commit_gives_way_to_the_next(
    upstream, git_repo, git_server, pin_of, ws
) -> None:
    """B13, with the commit on no branch any more (B12)."""
    other = git_repo("kept elsewhere")
    other.git("fetch", "-q", upstream.path, "HEAD")
    pin = pin_of(upstream)
    upstream.git("checkout", "-q", "--orphan", "fresh")
    upstream.git("branch", "-qD", "main")
    upstream.commit("rewritten", {"z": b"z"})
    with git_server(upstream.path.parent, old=True) as url:
        providers = [GitProvider(kind="git", url=url + "/upstream"), _repository(other.path)]
        base = resolve(ws, pin, providers=providers)
    assert base.provider == f"repository {other.path}"
    assert [name for name, _ in base.attempts] == [f"git {url}/upstream"]


def test_every_provider_failing_is_an_error_of_its_own_kind(upstream, pin_of, git_repo, ws) -> None:
    """B12: none has it."""
    other = git_repo("other")
    other.commit("something else", {"a": b"1"})
    pin = pin_of(upstream, providers=(_NOWHERE, {"kind": "repository", "path": str(other.path)}))
    with pytest.raises(SourceUnavailableError) as caught:
        resolve(ws, pin)
    assert caught.value.exit_code == 4
    assert "127.0.0.1" in caught.value.cause
    assert str(other.path) in caught.value.cause
    assert "--repository" in caught.value.remedy


def test_no_provider_at_all_is_told_with_what_to_do(upstream, pin_of, ws) -> None:
    with pytest.raises(SourceUnavailableError) as caught:
        resolve(ws, pin_of(upstream, providers=()))
    assert "--bundle" in caught.value.remedy


def test_tree_without_commit_proves_with_the_manifests_commit_object(upstream, git_repo, pin_of, ws) -> None:
    """B12: a squashed copy holds the same tree under another commit."""
    squashed = git_repo("squashed")
    shutil.copytree(upstream.path, squashed.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    squashed.commit("squashed")
    base = resolve(ws, pin_of(upstream), providers=[_repository(squashed.path)])
    assert base.proof == "full"
    assert _is_whole(base)


def test_tree_without_any_commit_object_can_be_tried_but_never_passes_for_the_pin(
    upstream, git_repo, pin_of, ws
) -> None:
    squashed = git_repo("squashed")
    shutil.copytree(upstream.path, squashed.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    squashed.commit("squashed")
    providers = [{"kind": "repository", "path": str(squashed.path)}]
    pin = pin_of(upstream, commit_object=None, providers=providers)
    with pytest.raises(ProofError) as caught:
        resolve(ws, pin)
    assert "--allow-tree-proof" in caught.value.remedy
    base = resolve(ws, pin, allow_tree_proof=True)
    assert base.proof == "tree"
    assert not (base.store / "refs" / "pins" / pin.commit).exists()
    assert resolve(ws, pin, allow_tree_proof=True) == base
    with pytest.raises(ProofError):
        resolve(ws, pin)


@pytest.mark.parametrize("damage", ["missing", "other content"])
def test_damaged_source_is_a_proof_error_and_leaves_no_record(upstream, pin_of, ws, damage: str) -> None:
    pin = pin_of(upstream)
    name = upstream.ask("rev-parse", "HEAD:README.md")
    file = upstream.objects / name[:2] / name[2:]
    other = upstream.ask("rev-parse", "HEAD:run.sh")
    file.unlink()
    if damage == "other content":
        shutil.copy(upstream.objects / other[:2] / other[2:], file)
    with pytest.raises(ProofError) as caught:
        resolve(ws, pin)
    assert caught.value.exit_code == 5
    assert "README.md" in caught.value.cause
    assert recorded(ws, pin) is None
    assert list(ws.root.glob(".staging-*")) == []


def test_damaged_source_gives_way_to_a_sound_one(upstream, git_repo, pin_of, ws) -> None:
    sound = git_repo("sound")
    sound.git("fetch", "-q", upstream.path, "HEAD")
    name = upstream.ask("rev-parse", "HEAD:README.md")
    pin = pin_of(upstream)
    (upstream.objects / name[:2] / name[2:]).unlink()
    base = resolve(ws, pin, providers=[_repository(upstream.path), _repository(sound.path)])
    assert name in base.attempts[0][1]
    assert _is_whole(base)


def _with_tree(repo, *entries: tuple[bytes, int, bytes]) -> None:
    """Commit a tree that git itself would not write."""
    tree = Tree()
    for entry in entries:
        tree.add(*entry)
    store = repo.store()
    store.add_object(tree)
    repo.git("update-ref", "HEAD", repo.ask("commit-tree", tree.id.decode(), "-m", "odd"))


@pytest.mark.parametrize("kind", ["gitlink", "link", "case", "dot git"])
def test_source_with_an_unsafe_tree_is_refused(upstream, pin_of, ws, kind: str) -> None:
    blob = Blob.from_string(b"x")
    upstream.store().add_object(blob)
    entries = {
        "gitlink": [(b"vendor", 0o160000, upstream.pinned.encode())],
        "link": [(b"link", 0o120000, blob.id)],
        "case": [(b"A", 0o100644, blob.id), (b"a", 0o100644, blob.id)],
        "dot git": [(b".GIT", 0o100644, blob.id)],
    }
    _with_tree(upstream, *entries[kind])
    with pytest.raises(ProofError):
        resolve(ws, pin_of(upstream))


def test_wrong_tree_in_the_pin_is_refused(upstream, pin_of, ws) -> None:
    other = upstream.ask("rev-parse", "HEAD:src")
    for commit_object in ("pin.commit", None):
        with pytest.raises(ProofError):
            resolve(ws, pin_of(upstream, tree=other, commit_object=commit_object))


def test_content_that_is_not_the_pinned_one_is_refused(upstream, pin_of, ws) -> None:
    good = resolve(ws, pin_of(upstream)).content_sha256
    assert resolve(ws, pin_of(upstream, content_sha256=good)).content_sha256 == good
    with pytest.raises(ProofError) as caught:
        resolve(ws, pin_of(upstream, content_sha256="0" * 64))
    assert good in caught.value.cause


def test_commit_object_beside_the_manifest_must_be_the_pins(upstream, pin_of, ws) -> None:
    pin = pin_of(upstream)
    for content in (b"", b"tree " + pin.tree.encode() + b"\n"):
        (pin.folder / "pin.commit").write_bytes(content)
        with pytest.raises(ProofError):
            resolve(ws, pin)
    (pin.folder / "pin.commit").unlink()
    with pytest.raises(ProofError) as caught:
        resolve(ws, pin)
    assert "git checkout" in caught.value.remedy


def test_source_named_by_hand_is_proven_and_remembered_as_such(upstream, git_repo, pin_of, ws) -> None:
    """B8: an override is verified like any source, and what builds on it can tell."""
    other = git_repo("by hand")
    other.git("fetch", "-q", upstream.path, "HEAD")
    pin = pin_of(upstream)
    resolve(ws, pin)
    base = resolve(ws, pin, providers=[_repository(other.path)])
    assert base.override
    assert base.provider == f"repository {other.path}"
    assert resolve(ws, pin) == base
    wrong = git_repo("wrong")
    wrong.commit("else", {"a": b"1"})
    with pytest.raises(SourceUnavailableError):
        resolve(ws, pin, providers=[_repository(wrong.path)])


@pytest.mark.parametrize("kind", ["work tree", "linked work tree", "bare", ".git itself", "alternates"])
def test_any_kind_of_local_repository_will_do(upstream, pin_of, ws, tmp_path: Path, kind: str) -> None:
    paths = {"work tree": upstream.path, ".git itself": upstream.path / ".git"}
    if kind == "linked work tree":
        upstream.git("worktree", "add", "-q", tmp_path / "linked")
    if kind in {"bare", "alternates"}:
        upstream.git(
            "clone", "-q", "--bare", *(["-s"] if kind == "alternates" else []), ".", tmp_path / "bare"
        )
    path = paths.get(kind) or tmp_path / ("linked" if "linked" in kind else "bare")
    assert _is_whole(resolve(ws, pin_of(upstream), providers=[_repository(path)]))


def test_path_in_the_manifest_starts_at_the_manifest(upstream, pin_of, ws) -> None:
    providers = ({"kind": "repository", "path": "../upstream"},)
    assert _is_whole(resolve(ws, pin_of(upstream, providers=providers)))


def _bundle(repo, path: Path, *revisions: str) -> BundleProvider:
    repo.git("bundle", "create", "-q", path, *revisions)
    return BundleProvider(kind="bundle", path=str(path))


def test_bundle_will_do(upstream, pin_of, ws, tmp_path: Path) -> None:
    assert _is_whole(resolve(ws, pin_of(upstream), providers=[_bundle(upstream, tmp_path / "b", "HEAD")]))


def test_bundle_on_top_of_other_commits_is_refused_with_the_reason(
    upstream, pin_of, ws, tmp_path: Path
) -> None:
    upstream.commit("second", {"src/graph.cpp": b"int graph();\n" * 41})
    bundle = _bundle(upstream, tmp_path / "b", "HEAD~1..HEAD", "HEAD")
    with pytest.raises((ProofError, SourceUnavailableError)) as caught:
        resolve(ws, pin_of(upstream), providers=[bundle])
    assert caught.value.remedy


@pytest.mark.parametrize("content", [b"", b"hello", b"# v2 git bundle\n", b"# v2 git bundle\n\nPACK", None])
def test_what_is_no_bundle_is_refused(upstream, pin_of, ws, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "b").write_bytes(content)
    with pytest.raises((ProofError, SourceUnavailableError)):
        resolve(ws, pin_of(upstream), providers=[BundleProvider(kind="bundle", path=str(tmp_path / "b"))])


@pytest.mark.parametrize("make", [lambda _: None, lambda p: p.mkdir(), lambda p: p.touch()])
def test_what_is_no_repository_is_refused(upstream, pin_of, ws, tmp_path: Path, make) -> None:
    make(tmp_path / "none")
    with pytest.raises(SourceUnavailableError):
        resolve(ws, pin_of(upstream), providers=[_repository(tmp_path / "none")])


def test_empty_repository_is_refused(git_repo, upstream, pin_of, ws) -> None:
    with pytest.raises(SourceUnavailableError):
        resolve(ws, pin_of(upstream), providers=[_repository(git_repo("empty").path)])


def test_repository_of_another_owner_and_settings_of_git_do_not_matter(
    upstream, pin_of, ws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B26: no setting of git, global or local, is read or written."""
    home = tmp_path / "home"
    home.mkdir()
    broken = "[safe]\n\tdirectory = /nowhere\n[core]\n\tfsmonitor = false\nthis is no setting\n"
    (home / ".gitconfig").write_text(broken)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    pin = pin_of(upstream)
    (upstream.path / ".git" / "config").write_text(broken)
    if os.getuid() == 0:
        for path in (upstream.path, *upstream.path.rglob("*")):
            os.chown(path, 12345, 12345)
    before = sorted(home.rglob("*"))
    assert _is_whole(resolve(ws, pin))
    assert sorted(home.rglob("*")) == before
    assert (home / ".gitconfig").read_text() == broken


def test_workspace_inside_another_repository_is_not_confused_by_it(upstream, pin_of, git_repo, ws) -> None:
    outer = git_repo("outer")
    outer.commit("outer", {"README.md": b"outer\n"})
    inner = replace(ws, root=outer.path / "clone" / ".dgr")
    assert _is_whole(resolve(inner, pin_of(upstream)))


@pytest.mark.parametrize(
    "damage",
    [
        "record cut",
        "record gone",
        "pack cut",
        "pack gone",
        "index gone",
        "pack flipped",
        "index flipped",
        "store gone",
    ],
)
def test_damaged_store_is_mended_by_the_next_run(upstream, pin_of, ws, damage: str) -> None:
    pin = pin_of(upstream)
    base = resolve(ws, pin)
    pack, index = (next(ws.store.glob(f"objects/pack/*.{end}")) for end in ("pack", "idx"))
    record = records.path_of(ws.store, pin.tree)
    if damage == "record cut":
        record.write_bytes(record.read_bytes()[:100])
    elif damage == "store gone":
        shutil.rmtree(ws.store)
    elif damage.endswith("gone"):
        {"record": record, "pack": pack, "index": index}[damage.split(maxsplit=1)[0]].unlink()
    else:
        file = index if damage == "index flipped" else pack
        data = bytearray(file.read_bytes())
        for position in range(1100, len(data) - 20) if file is index else [len(data) // 2]:
            data[position] ^= 1
        file.chmod(0o644)
        file.write_bytes(data[:-30] if damage == "pack cut" else data)
    if damage.endswith("flipped"):  # the quick look may see size and checksum only; verify sees everything
        with pytest.raises(ProofError):
            verify(ws, pin)
    again = resolve(ws, pin)
    assert again == base
    assert _is_whole(again)
    assert verify(ws, pin) == base


def test_verify_before_resolve_says_what_to_do(upstream, pin_of, ws) -> None:
    with pytest.raises(SourceUnavailableError) as caught:
        verify(ws, pin_of(upstream))
    assert "source resolve" in caught.value.remedy


def test_two_pins_share_one_store(upstream, pin_of, ws) -> None:
    first = pin_of(upstream)
    one = resolve(ws, first)
    upstream.commit("second", {"a": b"1"})
    two = resolve(ws, pin_of(upstream))
    assert one.store == two.store
    assert _is_whole(one)
    assert _is_whole(two)
    (first.folder / "pin.commit").write_bytes(upstream.git("cat-file", "commit", first.commit))
    assert resolve(ws, first) == one
    assert verify(ws, first) == one


def test_what_a_killed_run_left_is_swept(upstream, pin_of, ws) -> None:
    """B23."""
    left = ws.root / ".staging-source-dead"
    (left / "pack").mkdir(parents=True)
    (left / "pack" / "fetched").write_bytes(b"half a pack")
    resolve(ws, pin_of(upstream))
    assert list(ws.root.glob(".staging-*")) == []


def test_half_made_store_is_completed(upstream, pin_of, ws) -> None:
    (ws.store / "objects" / "pack").mkdir(parents=True)
    (ws.store / "objects" / "pack" / "pack-1.pack").write_bytes(b"")
    assert _is_whole(resolve(ws, pin_of(upstream)))


def test_place_that_cannot_be_written_is_a_host_error(upstream, pin_of, ws) -> None:
    ws.root.parent.mkdir()
    ws.root.write_text("a file in the way")
    with pytest.raises(HostError) as caught:
        resolve(ws, pin_of(upstream))
    assert "DGR_WORKSPACE" in caught.value.remedy


_RESOLVE = """
import sys
from pathlib import Path
from dgr_build.documents.pin import Pin
from dgr_build.source.resolve import resolve
from dgr_build.workspace import Workspace
root = Path(sys.argv[1])
pin = Pin.model_validate_json(sys.argv[2]).model_copy(update={"folder": Path(sys.argv[3])})
print(resolve(Workspace(project=root, root=root, cache=root / "cache"), pin).content_sha256)
"""


def test_two_processes_at_once_both_get_it(upstream, pin_of, ws) -> None:
    """B25: one lock; the second waits, says for whom, and finds it done."""
    pin = pin_of(upstream)
    command = [sys.executable, "-c", _RESOLVE, ws.root, pin.model_dump_json(), pin.folder]
    children = [subprocess.Popen(command, stdout=-1, stderr=-1, text=True) for _ in range(3)]
    ends = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], ends
    assert len({out for out, _ in ends}) == 1
    assert sum("==> source from" in err for _, err in ends) == 1
    assert len(list(ws.store.glob("objects/pack/*.pack"))) == 1


def test_the_one_who_waits_finds_it_done(upstream, pin_of, ws, capsys: pytest.CaptureFixture[str]) -> None:
    pin = pin_of(upstream)
    done = []
    with ws.lock("source"):
        waiter = threading.Thread(target=lambda: done.append(resolve(ws, pin)))
        waiter.start()
        waiter.join(0.5)
        assert done == []
    waiter.join(30)
    assert _is_whole(done[0])
    assert f"process {os.getpid()}" in capsys.readouterr().err


def test_store_stays_usable_for_objects_of_patched_trees(upstream, pin_of, ws) -> None:
    base = resolve(ws, pin_of(upstream))
    store = open_store(base.store)
    blob = Blob.from_string(b"patched")
    store.add_object(blob)
    store.close()
    resolve(ws, pin_of(upstream), providers=[_repository(upstream.path)])
    with opened(base.store / "objects") as again:
        assert again[blob.id].data == b"patched"
