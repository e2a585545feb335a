from __future__ import annotations

import hashlib
import zlib

import pytest
from dulwich.object_store import MemoryObjectStore
from dulwich.objects import Blob, Tree, hex_to_sha

from dgr_build.errors import ProofError
from dgr_build.source import proof


def _raw_tree(*entries: tuple[bytes, bytes, bytes]) -> Tree:
    return Tree.from_string(b"".join(m + b" " + n + b"\0" + hex_to_sha(i) for m, n, i in entries))


@pytest.fixture
def store() -> MemoryObjectStore:
    made = MemoryObjectStore()
    made.add_object(Blob.from_string(b"content"))
    return made


_BLOB = Blob.from_string(b"content").id


def _put(store: MemoryObjectStore, *entries: tuple[bytes, bytes, bytes]) -> str:
    tree = _raw_tree(*entries)
    store.add_object(tree)
    return tree.id.decode()


def test_whole_tree_is_proven_and_its_digest_is_what_git_and_sha256_say(upstream) -> None:
    proven = proof.prove_tree(upstream.store(), upstream.tree())
    whole = hashlib.sha256()
    listing = upstream.git("ls-tree", "-r", "-z", "HEAD").split(b"\0")[:-1]
    for line in sorted(listing, key=lambda one: one.split(b"\t")[1]):
        facts, path = line.split(b"\t")
        mode, _, blob = facts.split(b" ")
        content = upstream.git("cat-file", "blob", blob.decode())
        whole.update(mode + b" " + hashlib.sha256(content).hexdigest().encode() + b" " + path + b"\0")
    assert proven.content_sha256 == whole.hexdigest()
    assert proven.files == len(listing)
    assert proven.blobs == len({line.split()[2] for line in listing})


def test_digest_changes_with_mode_path_and_content(store: MemoryObjectStore) -> None:
    other = Blob.from_string(b"other")
    store.add_object(other)
    trees = [
        _put(store, (b"100644", b"a", _BLOB)),
        _put(store, (b"100755", b"a", _BLOB)),
        _put(store, (b"100644", b"b", _BLOB)),
        _put(store, (b"100644", b"a", other.id)),
    ]
    assert len({proof.prove_tree(store, tree).content_sha256 for tree in trees}) == len(trees)


@pytest.mark.parametrize("kind", ["blob", "tree"])
def test_missing_object_is_named_with_its_path(upstream, kind: str) -> None:
    name = upstream.ask("rev-parse", "HEAD:src/graph.cpp" if kind == "blob" else "HEAD:src")
    (upstream.objects / name[:2] / name[2:]).unlink()
    with pytest.raises(ProofError) as caught:
        proof.prove_tree(upstream.store(), upstream.tree())
    assert name in caught.value.message
    assert "src" in caught.value.message
    assert "source resolve" in caught.value.remedy


@pytest.mark.parametrize("damage", ["other content", "not zlib", "cut", "empty"])
def test_damaged_object_is_refused(upstream, damage: str) -> None:
    name = upstream.ask("rev-parse", "HEAD:src/graph.cpp")
    file = upstream.objects / name[:2] / name[2:]
    whole = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(
        {
            "other content": zlib.compress(b"blob 5\0wrong"),
            "not zlib": b"\xff" * 40,
            "cut": whole[: len(whole) // 2],
            "empty": b"",
        }[damage]
    )
    with pytest.raises(ProofError) as caught:
        proof.prove_tree(upstream.store(), upstream.tree())
    assert caught.value.exit_code == 5
    assert name in caught.value.message


def test_damaged_pack_is_refused(upstream) -> None:
    tree = upstream.tree()
    upstream.git("repack", "-adq")
    pack = next(upstream.objects.glob("pack/*.pack"))
    data = bytearray(pack.read_bytes())
    for position in range(20, len(data) - 20, 7):
        data[position] ^= 0x55
    pack.chmod(0o644)
    pack.write_bytes(data)
    with pytest.raises(ProofError):
        proof.prove_tree(upstream.store(), tree)


def test_blob_where_a_folder_is_named_is_refused(store: MemoryObjectStore) -> None:
    tree = _put(store, (b"40000", b"a", _BLOB))
    with pytest.raises(ProofError):
        proof.prove_tree(store, tree)


@pytest.mark.parametrize(
    "entries",
    [
        [(b"160000", b"vendor", b"1" * 40)],
        [(b"120000", b"link", _BLOB)],
        [(b"100644", b"A", _BLOB), (b"100644", b"a", _BLOB)],
        [(b"100644", b".GIT", _BLOB)],
        [(b"100644", b"git~1", _BLOB)],
        [(b"100644", ".g\u200cit".encode(), _BLOB)],
        [(b"100644", b"a\\b", _BLOB)],
        [(b"100644", b"..", _BLOB)],
        [(b"100644", b"a/b", _BLOB)],
        [(b"100644", b"b", _BLOB), (b"100644", b"a", _BLOB)],
        [(b"100644", b"a", _BLOB), (b"100644", b"a", _BLOB)],
        [(b"100664", b"a", _BLOB)],
        [(b"0100644", b"a", _BLOB)],
    ],
    ids=lambda entries: repr([(m, n) for m, n, _ in entries]),
)
def test_unsafe_or_malformed_tree_is_refused(store: MemoryObjectStore, entries) -> None:
    tree = _put(store, *entries)
    with pytest.raises(ProofError) as caught:
        proof.prove_tree(store, tree)
    assert caught.value.cause or "git" in caught.value.message


def test_unsafe_entry_deep_in_the_tree_is_named_by_its_path(store: MemoryObjectStore) -> None:
    inner = _put(store, (b"100644", b".Git", _BLOB))
    outer = _put(store, (b"40000", b"deep", inner.encode()))
    with pytest.raises(ProofError) as caught:
        proof.prove_tree(store, outer)
    assert "deep/.Git" in caught.value.message


def test_tree_that_unfolds_without_end_is_refused(store: MemoryObjectStore) -> None:
    tree = _put(store, *((b"100644", b"f%d" % n, _BLOB) for n in range(10)))
    for _ in range(8):
        tree = _put(store, *((b"40000", b"d%d" % n, tree.encode()) for n in range(10)))
    with pytest.raises(ProofError):
        proof.prove_tree(store, tree)


def test_tree_that_is_too_deep_is_refused(store: MemoryObjectStore) -> None:
    tree = _put(store, (b"100644", b"f", _BLOB))
    for _ in range(200):
        tree = _put(store, (b"40000", b"d", tree.encode()))
    with pytest.raises(ProofError):
        proof.prove_tree(store, tree)


def test_commit_must_hash_to_the_pin_and_name_its_tree(upstream) -> None:
    content = upstream.git("cat-file", "commit", "HEAD")
    proof.check_commit(content, upstream.pinned, upstream.tree(), "it")
    with pytest.raises(ProofError):
        proof.check_commit(content + b"\n", upstream.pinned, upstream.tree(), "it")
    with pytest.raises(ProofError):
        proof.check_commit(content, upstream.pinned, "0" * 40, "it")


def test_descent_is_shown_only_by_commits_that_are_there(upstream) -> None:
    first = upstream.pinned
    upstream.commit("second", {"a": b"1"})
    last = upstream.commit("third", {"a": b"2"})
    assert proof.descends(upstream.store(), last, first)
    assert not proof.descends(upstream.store(), first, last)
    middle = upstream.ask("rev-parse", "HEAD~1")
    (upstream.objects / middle[:2] / middle[2:]).unlink()
    assert not proof.descends(upstream.store(), last, first)
