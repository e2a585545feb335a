"""A parsed patch as data, its inverse, and its exact bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_BLOB = b"0" * 40
EMPTY_BLOB = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
NO_NEWLINE = b"\\ No newline at end of file\n"
ZERO_FROM = b"From " + NO_BLOB + b" Mon Sep 17 00:00:00 2001\n"

EXPORT = "write it anew: dgr-build patch export --from THE-WORK-TREE"
"""The remedy for a patch that is not what export writes."""

_INVERSE = {b" ": b" ", b"-": b"+", b"+": b"-"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a hunk: its kind (space, minus or plus) and its text with the line end, if it has one."""

    kind: bytes
    text: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """A run of lines at exact places; `at` is the line of its header in the patch file (1 is the first)."""

    at: int
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: bytes
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePatch:
    """What a patch does to one file: blob ids (forty zeros: not there), mode, hunks."""

    at: int
    path: bytes
    mode: int
    before: bytes
    after: bytes
    hunks: tuple[Hunk, ...]

    @property
    def adds(self) -> bool:
        """Whether the file is new."""
        return self.before == NO_BLOB

    @property
    def deletes(self) -> bool:
        """Whether the file is removed."""
        return self.after == NO_BLOB

    @property
    def added(self) -> int:
        """The number of added lines."""
        return sum(line.kind == b"+" for hunk in self.hunks for line in hunk.lines)

    @property
    def removed(self) -> int:
        """The number of removed lines."""
        return sum(line.kind == b"-" for hunk in self.hunks for line in hunk.lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """One patch file.

    `head` are the bytes before the first file (mail header, message, statistics) and `tail` those after the
    last (an optional mail signature), both kept as they were.
    """

    name: str
    subject: str
    message: str
    head: bytes
    files: tuple[FilePatch, ...]
    tail: bytes

    @property
    def added(self) -> int:
        """The number of added lines."""
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        """The number of removed lines."""
        return sum(file.removed for file in self.files)


def numbered(hunk: Hunk) -> Iterator[tuple[int, Line]]:
    """Yield the lines of a hunk with their line numbers in the patch file."""
    at = hunk.at
    for line in hunk.lines:
        at += 1
        yield at, line
        at += not line.text.endswith(b"\n")  # the remark that the line end is missing


def invert(patch: Patch) -> Patch:
    """Return the patch that undoes this one; inverting twice gives the first back."""
    return replace(patch, files=tuple(_invert_file(file) for file in patch.files))


def _invert_file(file: FilePatch) -> FilePatch:
    return replace(
        file, before=file.after, after=file.before, hunks=tuple(_invert_hunk(hunk) for hunk in file.hunks)
    )


def _invert_hunk(hunk: Hunk) -> Hunk:
    return replace(
        hunk,
        old_start=hunk.new_start,
        old_count=hunk.new_count,
        new_start=hunk.old_start,
        new_count=hunk.old_count,
        lines=tuple(Line(_INVERSE[line.kind], line.text) for line in hunk.lines),
    )


def render(patch: Patch) -> bytes:
    """Return the bytes of the patch file; `render(parse(x)) == x` for every x that the parser accepts."""
    return patch.head + b"".join(render_file(file) for file in patch.files) + patch.tail


def render_file(file: FilePatch) -> bytes:
    """Return the bytes of one file's part, as git writes them."""
    tab = b"\t" if b" " in file.path else b""
    out = [b"diff --git a/%s b/%s\n" % (file.path, file.path)]
    if file.adds:
        out.append(b"new file mode %o\n" % file.mode)
    if file.deletes:
        out.append(b"deleted file mode %o\n" % file.mode)
    mode = b"" if file.adds or file.deletes else b" %o" % file.mode
    out.append(b"index %s..%s%s\n" % (file.before, file.after, mode))
    if file.hunks:
        out.append(b"--- /dev/null\n" if file.adds else b"--- a/%s%s\n" % (file.path, tab))
        out.append(b"+++ /dev/null\n" if file.deletes else b"+++ b/%s%s\n" % (file.path, tab))
    for hunk in file.hunks:
        out.append(render_hunk_header(hunk))
        for line in hunk.lines:
            out.append(line.kind + line.text)
            if not line.text.endswith(b"\n"):
                out.append(b"\n" + NO_NEWLINE)
    return b"".join(out)


def render_hunk_header(hunk: Hunk) -> bytes:
    """Return the `@@` line of a hunk."""
    section = b" " + hunk.section if hunk.section else b""
    old, new = _span(hunk.old_start, hunk.old_count), _span(hunk.new_start, hunk.new_count)
    return b"@@ -%s +%s @@%s\n" % (old, new, section)


def _span(start: int, count: int) -> bytes:
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)
