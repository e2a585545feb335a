"""Applying one patch: a function (tree, patch) -> tree on objects. Undoing it is applying its inverse."""

from __future__ import annotations

import stat

from dulwich.objects import Blob, Tree

from dgr_build.errors import PatchError
from dgr_build.patches.model import EXPORT, FilePatch, Patch, numbered
from dgr_build.patches.trees import Entry, Overlay, edit, lookup


def apply_patch(store: Overlay, tree_id: str, patch: Patch) -> str:
    """Return the id of the tree after the patch; new objects stay in the overlay.

    Each file's blob must be the one that the patch was written against, each hunk must fit at its exact lines
    with its exact text, and each result must be the blob that the patch names. Nothing is searched for.

    Raises:
        PatchError: the patch does not fit; patch, file, hunk and line are named.
        ProofError: the store is not complete.
    """
    changes: dict[bytes, Entry | None] = {}
    for file in patch.files:
        changes[file.path] = _apply_file(store, tree_id.encode(), patch, file)
    try:
        after = edit(store, tree_id.encode(), changes)
    except FileExistsError as error:
        raise PatchError(
            f"{patch.name}: a file would take the place of a folder, or a folder that of a file, at {error}",
            cause="what is there now is not removed by the same patch",
            remedy=f"dgr-build patch show {patch.name}",
        ) from error
    return (store.add(Tree()) if after is None else after).decode()


def _apply_file(store: Overlay, tree_id: bytes, patch: Patch, file: FilePatch) -> Entry | None:
    old = _preimage(store, tree_id, patch, file)
    new = _patched(old, patch, file)
    where = _where(patch, file, file.at)
    if file.deletes:
        if new:
            raise _error(where, "the patch deletes the file but leaves lines in it")
        return None
    blob = Blob.from_string(new)
    if blob.id != file.after:
        raise _error(
            where,
            "the result is not the blob that the patch names",
            cause=f"expected {file.after.decode()}, the hunks give {blob.id.decode()}: edited by hand?",
            remedy=EXPORT,
        )
    return file.mode, store.add(blob)


def _preimage(store: Overlay, tree_id: bytes, patch: Patch, file: FilePatch) -> bytes:
    """Return the content that the patch was written against, after checking that it is what is there."""
    where = _where(patch, file, file.at)
    there = lookup(store, tree_id, file.path)
    if file.adds:
        if there is not None and not stat.S_ISDIR(there[0]):  # a folder may go by the same patch
            raise _error(where, "the patch adds the file, but it is there already")
        return b""
    if there is None:
        raise _error(where, "there is no such file", cause=f"the tree is {tree_id.decode()}")
    mode, blob_id = there
    if blob_id != file.before:
        again = ": it looks applied already" if blob_id == file.after else ""
        raise _error(
            where,
            "the file is not the one that the patch was written against",
            cause=f"the tree has blob {blob_id.decode()}, the patch wants {file.before.decode()}{again}",
            remedy=f"dgr-build patch show {patch.name}; redo the change on this source, then {EXPORT}",
        )
    if mode != file.mode:
        raise _error(where, f"the mode is {mode:o} in the tree, {file.mode:o} in the patch")
    return store.blob(blob_id)


def _patched(old: bytes, patch: Patch, file: FilePatch) -> bytes:
    """Return the content after all hunks."""
    lines = old.split(b"\n")
    tail = lines.pop()
    source = [line + b"\n" for line in lines] + ([tail] if tail else [])
    result: list[bytes] = []
    done = 0
    for number, hunk in enumerate(file.hunks, start=1):
        start = max(hunk.old_start - 1, 0)
        if (hunk.old_count == 0 and source) or start < done or start > len(source):
            raise _error(
                _where(patch, file, hunk.at),
                f"hunk {number} does not fit",
                cause=f"it begins at line {hunk.old_start}, the file has {len(source)} lines",
            )
        result += source[done:start]
        done = start
        for at, line in numbered(hunk):
            if line.kind != b"+":
                found = source[done] if done < len(source) else b""
                if found != line.text:
                    raise _error(
                        _where(patch, file, at),
                        f"hunk {number} does not fit at line {done + 1}",
                        cause=f"expected {line.text[:120]!r}, "
                        + (f"found {found[:120]!r}" if found else "found the end of the file"),
                    )
                done += 1
            if line.kind != b"-":
                result.append(line.text)
    result += source[done:]
    # a line without end is the last of its file; anything after it would be glued to it
    if any(not line.endswith(b"\n") for line in result[:-1]):
        raise _error(_where(patch, file, file.at), "a line without line end is not the last of the file")
    return b"".join(result)


def _where(patch: Patch, file: FilePatch, at: int) -> str:
    return f"{patch.name}:{at}: {file.path.decode()}"


def _error(where: str, what: str, *, cause: str = "", remedy: str = "") -> PatchError:
    name = where.partition(":")[0]
    return PatchError(f"{where}: {what}", cause=cause, remedy=remedy or f"dgr-build patch show {name}")
