"""One patch on a tree: exact blobs, exact places, exact result, and back again."""

import pytest
from dulwich.object_store import MemoryObjectStore
from dulwich.objects import Blob, Tree
from hypothesis import given, settings
from hypothesis import strategies as st

from dgr_build.errors import PatchError, ProofError
from dgr_build.patches.apply import apply_patch
from dgr_build.patches.model import FilePatch, Hunk, Line, Patch, invert
from dgr_build.patches.parse import parse_patch
from dgr_build.patches.trees import Overlay, edit

FILE, PROGRAM = 0o100644, 0o100755


@pytest.fixture
def store():
    return Overlay(MemoryObjectStore())


def tree_of(store, files):
    changes = {path: (mode, store.add(Blob.from_string(content))) for path, (mode, content) in files.items()}
    made = edit(store, None, changes)
    return (made or store.add(Tree())).decode()


def blob(content):
    return b"0" * 40 if content is None else Blob.from_string(content).id


def patch_of(*files):
    return Patch(name="0001-x.patch", subject="x", message="", head=b"", files=files, tail=b"")


def change(path, old, new, *hunks, mode=FILE):
    return FilePatch(at=8, path=path, mode=mode, before=blob(old), after=blob(new), hunks=hunks)


def hunk(start, lines, new_start=None):
    body = tuple(Line(line[:1], line[1:]) for line in lines)
    return Hunk(
        at=12,
        old_start=start,
        old_count=sum(line.kind != b"+" for line in body),
        new_start=start if new_start is None else new_start,
        new_count=sum(line.kind != b"-" for line in body),
        section=b"",
        lines=body,
    )


def whole(sign, content):
    lines = content.splitlines(keepends=True)
    return hunk(sign == b"-", [sign + line for line in lines], new_start=int(sign == b"+"))


def refused(store, tree, patch):
    with pytest.raises(PatchError) as caught:
        apply_patch(store, tree, patch)
    assert caught.value.message.startswith("0001-x.patch:")
    assert caught.value.remedy
    return caught.value


def test_both_directions_reach_the_exact_trees(store):
    base = {b"a/b/c": (FILE, b"1\n2\n3\n"), b"a/d": (PROGRAM, b"x"), b"z": (FILE, b"")}
    tree = tree_of(store, base)
    after = tree_of(store, {**base, b"a/b/c": (FILE, b"1\nII\n3\n"), b"z": (FILE, b"new\n")})
    patch = patch_of(
        change(b"a/b/c", b"1\n2\n3\n", b"1\nII\n3\n", hunk(1, [b" 1\n", b"-2\n", b"+II\n", b" 3\n"])),
        change(b"z", b"", b"new\n", hunk(0, [b"+new\n"], new_start=1)),
    )
    assert apply_patch(store, tree, patch) == after
    assert apply_patch(store, after, invert(patch)) == tree


def test_folders_come_and_go_with_their_files(store):
    tree = tree_of(store, {b"keep": (FILE, b"k"), b"old/deep/f": (PROGRAM, b"f\n")})
    after = tree_of(store, {b"keep": (FILE, b"k"), b"new/deep/g": (FILE, b"g\n")})
    patch = patch_of(
        change(b"old/deep/f", b"f\n", None, whole(b"-", b"f\n"), mode=PROGRAM),
        change(b"new/deep/g", None, b"g\n", whole(b"+", b"g\n")),
    )
    assert apply_patch(store, tree, patch) == after
    assert apply_patch(store, after, invert(patch)) == tree


def test_file_and_folder_may_trade_places_in_one_patch(store):
    tree = tree_of(store, {b"x": (FILE, b"f\n")})
    after = tree_of(store, {b"x/y": (FILE, b"g\n")})
    patch = patch_of(
        change(b"x", b"f\n", None, whole(b"-", b"f\n")), change(b"x/y", None, b"g\n", whole(b"+", b"g\n"))
    )
    assert apply_patch(store, tree, patch) == after
    assert apply_patch(store, after, invert(patch)) == tree


def test_removing_the_last_file_gives_the_empty_tree(store):
    tree = tree_of(store, {b"a/b": (FILE, b"f\n")})
    patch = patch_of(change(b"a/b", b"f\n", None, whole(b"-", b"f\n")))
    assert apply_patch(store, tree, patch) == Tree().id.decode()


@pytest.mark.parametrize(
    "files",
    [{b"x": (FILE, b"f\n"), b"n": (FILE, b"n\n")}, {b"n/inner": (FILE, b"n\n")}, {b"n": (FILE, b"n\n")}],
)
def test_adding_onto_what_is_there_is_refused(store, files):
    tree = tree_of(store, files)
    refused(store, tree, patch_of(change(b"n", None, b"g\n", whole(b"+", b"g\n"))))


def test_adding_below_a_file_is_refused(store):
    tree = tree_of(store, {b"n": (FILE, b"n\n")})
    refused(store, tree, patch_of(change(b"n/x", None, b"g\n", whole(b"+", b"g\n"))))


def test_wrong_one_of_two_identical_blocks_is_never_patched(store):
    block = b"void f() {\n    run();\n}\n"
    written_for = block + b"//\n" + block
    moved = b"void f() {\n    run();\n}\n" + b"//\n" + written_for
    edited = hunk(5, [b" void f() {\n", b"-    run();\n", b"+    stop();\n", b" }\n"])
    patch = patch_of(change(b"f", written_for, block + b"//\nvoid f() {\n    stop();\n}\n", edited))
    apply_patch(store, tree_of(store, {b"f": (FILE, written_for)}), patch)
    error = refused(store, tree_of(store, {b"f": (FILE, moved)}), patch)
    assert blob(moved).decode() in error.cause
    assert blob(written_for).decode() in error.cause
    assert "patch show 0001-x.patch" in error.remedy


@pytest.mark.parametrize("start", [1, 3, 4, 90])
def test_no_offset_a_hunk_fits_at_its_line_or_not_at_all(store, start):
    old, new = b"a\nb\nb\na\n", b"a\nB\nb\na\n"
    tree = tree_of(store, {b"f": (FILE, old)})
    apply_patch(store, tree, patch_of(change(b"f", old, new, hunk(2, [b"-b\n", b"+B\n"]))))
    refused(store, tree, patch_of(change(b"f", old, new, hunk(start, [b"-b\n", b"+B\n"]))))


def test_no_fuzz_context_must_be_exact(store):
    old, new = b"a\nb\nc\n", b"a\nB\nc\n"
    tree = tree_of(store, {b"f": (FILE, old)})
    bad = patch_of(change(b"f", old, new, hunk(1, [b" a \n", b"-b\n", b"+B\n", b" c\n"])))
    error = refused(store, tree, bad)
    assert error.message.startswith("0001-x.patch:13: f: hunk 1")
    assert "'a \\n'" in error.cause
    assert "'a\\n'" in error.cause


def test_line_ends_are_content(store):
    tree = tree_of(store, {b"f": (FILE, b"a\r\nb\r\n")})
    lf = patch_of(change(b"f", b"a\r\nb\r\n", b"a\r\nB\r\n", hunk(2, [b"-b\n", b"+B\n"])))
    refused(store, tree, lf)
    crlf = patch_of(change(b"f", b"a\r\nb\r\n", b"a\r\nB\r\n", hunk(2, [b"-b\r\n", b"+B\r\n"])))
    apply_patch(store, tree, crlf)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (b"a", b"b\n", [b"-a", b"+b\n"]),
        (b"a\n", b"b", [b"-a\n", b"+b"]),
        (b"a", b"a\nb", [b"-a", b"+a\n", b"+b"]),
        (b"x\na", b"y\na", [b"-x\n", b"+y\n", b" a"]),
    ],
)
def test_missing_end_of_the_last_line_is_exact(store, old, new, lines):
    tree, after = tree_of(store, {b"f": (FILE, old)}), tree_of(store, {b"f": (FILE, new)})
    patch = patch_of(change(b"f", old, new, hunk(1, lines)))
    assert apply_patch(store, tree, patch) == after
    assert apply_patch(store, after, invert(patch)) == tree


def test_a_line_without_end_in_mid_file_is_refused(store):
    tree = tree_of(store, {b"f": (FILE, b"a\nb\n")})
    refused(store, tree, patch_of(change(b"f", b"a\nb\n", b"Xb\n", hunk(1, [b"-a\n", b"+X"]))))


def test_hunks_that_do_not_give_the_named_blob_are_refused(store):
    tree = tree_of(store, {b"f": (FILE, b"a\n")})
    error = refused(store, tree, patch_of(change(b"f", b"a\n", b"wanted\n", hunk(1, [b"-a\n", b"+given\n"]))))
    assert "export" in error.remedy


def test_other_mode_missing_file_and_leftover_lines_are_refused(store):
    tree = tree_of(store, {b"f": (PROGRAM, b"a\nb\n"), b"d/x": (FILE, b"a\n")})
    edit_it = hunk(1, [b"-a\n", b"+A\n"])
    refused(store, tree, patch_of(change(b"f", b"a\nb\n", b"A\nb\n", edit_it)))
    refused(store, tree, patch_of(change(b"g", b"a\nb\n", b"A\nb\n", edit_it)))
    refused(store, tree, patch_of(change(b"d", b"a\nb\n", b"A\nb\n", edit_it)))
    refused(store, tree, patch_of(change(b"f/x", b"a\nb\n", b"A\nb\n", edit_it)))
    leftover = hunk(1, [b"-a\n"], new_start=0)
    refused(store, tree, patch_of(change(b"f", b"a\nb\n", None, leftover, mode=PROGRAM)))


def test_applied_twice_says_so(store):
    tree = tree_of(store, {b"f": (FILE, b"a\n")})
    patch = patch_of(change(b"f", b"a\n", b"b\n", hunk(1, [b"-a\n", b"+b\n"])))
    assert "already" in refused(store, apply_patch(store, tree, patch), patch).cause


def test_links_and_folders_are_not_patched(store):
    link = store.add(Blob.from_string(b"a\n"))
    tree = edit(store, None, {b"f": (0o120000, link)}).decode()
    refused(store, tree, patch_of(change(b"f", b"a\n", b"b\n", hunk(1, [b"-a\n", b"+b\n"]))))


def test_a_store_that_lacks_a_blob_is_a_failed_proof():
    made = Overlay(MemoryObjectStore())
    tree = tree_of(made, {b"f": (FILE, b"a\n")})
    half = MemoryObjectStore()
    half.add_object(made.tree(tree.encode()))
    with pytest.raises(ProofError) as caught:
        apply_patch(Overlay(half), tree, patch_of(change(b"f", b"a\n", b"b\n", hunk(1, [b"-a\n", b"+b\n"]))))
    assert "source resolve" in caught.value.remedy


def test_nothing_reaches_the_store_before_flush():
    below = MemoryObjectStore()
    store = Overlay(below)
    tree = tree_of(store, {b"f": (FILE, b"a\n")})
    assert list(below) == []
    assert store.flush() == 2
    assert sorted(below) == sorted([tree.encode(), blob(b"a\n")])
    assert store.flush() == 0


_HEAD = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\nFrom: a <b>\nDate: c\nSubject: [PATCH] d\n\n"
_OLD = b"a\n\nb\n-- x\n--- y\n\n\tc\nd"
_NEW = b"a\n\nB\n-- x\n--- y\n\n\tc\nd\n"
_PATCH = (
    _HEAD
    + b"diff --git a/f b/f\nindex %s..%s 100644\n--- a/f\n+++ b/f\n" % (blob(_OLD), blob(_NEW))
    + b"@@ -1,8 +1,8 @@\n a\n \n-b\n+B\n -- x\n --- y\n \n \tc\n-d\n\\ No newline at end of file\n+d\n"
    + b"diff --git a/n b/n\nnew file mode 100644\nindex %s..%s\n" % (b"0" * 40, blob(b"n\n"))
    + b"--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+n\n-- \n2.39.5\n\n"
)


@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_no_damage_to_a_patch_leads_to_a_wrong_tree(data):
    """Bytes are changed, dropped, doubled or swapped: the patch is refused or gives the one right tree."""
    damaged = bytearray(_PATCH)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(len(_HEAD), len(damaged) - 1))
        kind = data.draw(st.sampled_from(["set", "drop", "insert", "drop line", "double line"]))
        end = damaged.find(b"\n", at) + 1
        if kind == "set":
            damaged[at] = data.draw(st.sampled_from(b" -+@\\\n\rab0129/,."))
        elif kind == "drop":
            del damaged[at]
        elif kind == "insert":
            damaged[at:at] = data.draw(st.sampled_from([b" ", b"\n", b"+", b"-", b"\r", b"\n \n", b"\n+x\n"]))
        elif kind == "drop line":
            del damaged[at:end]
        else:
            damaged[at:at] = damaged[at:end]
    store = Overlay(MemoryObjectStore())
    tree = tree_of(store, {b"f": (FILE, _OLD), b"k": (FILE, b"k")})
    right = {
        tree_of(store, {b"f": (FILE, _NEW), b"k": (FILE, b"k"), b"n": (FILE, b"n\n")}),
        # a part after the first file cut off as a whole is what the recorded sha256 of the file is for
        tree_of(store, {b"f": (FILE, _NEW), b"k": (FILE, b"k")}),
        tree_of(store, {b"f": (FILE, _OLD), b"k": (FILE, b"k"), b"n": (FILE, b"n\n")}),
    }
    try:
        patch = parse_patch(bytes(damaged), "0001-x.patch")
        after = apply_patch(store, tree, patch)
    except PatchError:
        return
    paths = {file.path: file for file in patch.files}
    if paths.keys() == {b"f", b"n"} and paths[b"n"].mode == FILE:
        assert after in right
    assert apply_patch(store, after, invert(patch)) == tree
