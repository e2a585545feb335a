"""What a patch may not do even when it applies: untidy added lines, and going beyond the stack's limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dgr_build.errors import PatchError
from dgr_build.patches.model import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dgr_build.documents.series import Limits
    from dgr_build.patches.model import FilePatch, Patch
    from dgr_build.patches.trees import Overlay

_BLANKS = (b" ", b"\t", b"\r")
_CONFLICT = re.compile(rb"(?:<{7}|={7}|>{7}|\|{7})(?:\s|$)")
_SPACE_BEFORE_TAB = re.compile(rb"\t* +\t")


def check_lines(store: Overlay, patch: Patch) -> None:
    """Check the lines that a patch adds: the rules of `git diff --check`, and carriage returns.

    Refused are trailing blanks, a space before a tab in the indent, conflict markers, new blank lines at the
    end of a file, and a carriage return unless the file has some already.

    Args:
        store: holds the blobs from before and after the patch.
        patch: a patch that has been applied.

    Raises:
        PatchError: a line breaks a rule; it is named.
    """
    for file in patch.files:
        old = b"" if file.adds else store.blob(file.before)
        returns = b"\r" in old
        for at, text in _added(file):
            if problem := _problem(text, returns=returns):
                raise PatchError(
                    f"{patch.name}:{at}: {file.path.decode()}: {problem}",
                    cause=f"the added line is {text[:120]!r}",
                    remedy="mend the line in the commit, then dgr-build patch export --from THE-WORK-TREE",
                )
        if not file.deletes and _blank_tail(store.blob(file.after)) > _blank_tail(old):
            raise PatchError(
                f"{patch.name}:{file.at}: {file.path.decode()}: a new blank line at the end of the file",
                remedy="remove it in the commit, then dgr-build patch export --from THE-WORK-TREE",
            )


def _added(file: FilePatch) -> Iterator[tuple[int, bytes]]:
    for hunk in file.hunks:
        for at, line in numbered(hunk):
            if line.kind == b"+":
                yield at, line.text


def _problem(text: bytes, *, returns: bool) -> str:
    line = text.removesuffix(b"\n")
    if b"\r" in line:
        if not returns:
            return "a carriage return in a file that has none"
        line = line.removesuffix(b"\r")
    if line.endswith(_BLANKS):
        return "trailing blanks"
    if _SPACE_BEFORE_TAB.match(line):
        return "a space before a tab in the indent"
    return "a conflict marker" if _CONFLICT.match(line) else ""


def _blank_tail(content: bytes) -> int:
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    count = 0
    while lines and not lines.pop().strip(b" \t\r"):
        count += 1
    return count


def check_limits(limits: Limits, patches: Sequence[Patch]) -> None:
    """Check that the whole stack stays as small as it promised to be.

    Raises:
        PatchError: it touches what it may not, adds files, or is too large.
    """
    for patch in patches:
        for file in patch.files:
            path = file.path.decode()
            where = f"{patch.name}:{file.at}: {path}"
            if any(path == barred.rstrip("/") or path.startswith(barred) for barred in limits.untouched):
                raise PatchError(
                    f"{where}: the stack must not touch {', '.join(limits.untouched)}",
                    cause="[limits] untouched in series.toml",
                    remedy="find a place outside of it for the change",
                )
            if file.adds and not limits.new_files:
                raise PatchError(
                    f"{where}: the stack must not add files",
                    cause="[limits] new_files in series.toml",
                    remedy="new code belongs to native/; a patch only hooks it in",
                )
    added = sum(patch.added for patch in patches)
    files = {file.path for patch in patches for file in patch.files}
    for what, is_now, allowed in (("lines", added, limits.added), ("files", len(files), limits.files)):
        if is_now > allowed:
            verb = "adds" if what == "lines" else "touches"
            raise PatchError(
                f"the stack {verb} {is_now} {what}, {allowed} are allowed",
                cause=f"[limits] {'added' if what == 'lines' else 'files'} in series.toml; "
                + ", ".join(f"{patch.name} +{patch.added} in {len(patch.files)}" for patch in patches),
                remedy="make the patches smaller; dgr-build patch status shows where the lines are",
            )
