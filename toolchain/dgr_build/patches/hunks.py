"""Parsing the hunks of one file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dgr_build.patches.model import NO_NEWLINE, Hunk, Line, render_hunk_header

if TYPE_CHECKING:
    from dgr_build.patches.lines import Lines

_HEADER = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: ([^\r\n]+))?\n")


def parse_hunks(lines: Lines) -> tuple[Hunk, ...]:
    """Parse the hunks at the cursor, up to the first line that begins none.

    Hunks must follow each other without overlap, in order, and their places in the new file must be those of
    the old file moved by what the hunks before added and removed.

    Raises:
        PatchError: a hunk is malformed or misplaced.
    """
    hunks: list[Hunk] = []
    old_end = 0
    shift = 0
    ended = _Ended()
    while lines.peek().startswith(b"@@ "):
        hunk = _parse_hunk(lines, ended)
        # a side without lines names the line before it, so its first line would be one later
        old_first = hunk.old_start + (hunk.old_count == 0)
        new_first = hunk.new_start + (hunk.new_count == 0)
        if old_first <= old_end:
            lines.at = hunk.at - 1
            lines.fail(
                "hunks overlap or go backwards",
                cause=f"old line {old_first} comes after old line {old_end}",
            )
        if new_first != old_first + shift:
            lines.at = hunk.at - 1
            lines.fail(
                "the places of the hunk in the old and the new file disagree",
                cause=f"old line {old_first} and the hunks before give new line {old_first + shift}, "
                f"the header says {new_first}",
            )
        old_end = old_first + hunk.old_count - 1
        shift += hunk.new_count - hunk.old_count
        hunks.append(hunk)
    if len(hunks) > 1 and any(0 in {hunk.old_count, hunk.new_count} for hunk in hunks):
        lines.at = hunks[1].at - 1
        lines.fail("a hunk that fills or empties the whole file cannot have neighbours")
    return tuple(hunks)


class _Ended:
    """Which side of the file has had its last line, known from a missing line end."""

    def __init__(self) -> None:
        self.sides: set[bytes] = set()

    def forbids(self, kind: bytes) -> bool:
        return kind in self.sides or (kind == b" " and bool(self.sides))


def _parse_hunk(lines: Lines, ended: _Ended) -> Hunk:
    at = lines.at + 1
    raw = lines.take()
    match = _HEADER.fullmatch(raw)
    if match is None:
        lines.fail("a malformed hunk header", cause=f"found {raw[:60]!r}", back=1)
    old_start, old_count, new_start, new_count = (
        int(match[1]), int(match[2] or 1), int(match[3]), int(match[4] or 1)
    )  # fmt: skip
    header = Hunk(
        at=at, old_start=old_start, old_count=old_count, new_start=new_start, new_count=new_count,
        section=match[5] or b"", lines=(),
    )  # fmt: skip
    if render_hunk_header(header) != raw:
        lines.fail("a hunk header that git does not write", cause=f"found {raw[:60]!r}", back=1)
    for start, count in ((old_start, old_count), (new_start, new_count)):
        if (start == 0) != (count == 0):
            lines.fail(
                "a hunk side without lines begins at 0, and only such a side does",
                cause="without context it cannot be checked against its place",
                back=1,
            )
    body = _parse_lines(lines, old_count, new_count, ended)
    if all(line.kind == b" " for line in body):
        lines.at = at - 1
        lines.fail("a hunk that changes nothing")
    return Hunk(
        at=at, old_start=old_start, old_count=old_count, new_start=new_start, new_count=new_count,
        section=header.section, lines=body,
    )  # fmt: skip


def _parse_lines(lines: Lines, old_left: int, new_left: int, ended: _Ended) -> tuple[Line, ...]:
    body: list[Line] = []
    while old_left or new_left:
        raw = lines.take()
        kind = raw[:1]
        if kind not in {b" ", b"-", b"+"}:
            lines.fail(
                "the hunk ends before its counts are used up",
                cause=_cut_off(raw, old_left, new_left),
                back=1,
            )
        old_left -= kind in {b" ", b"-"}
        new_left -= kind in {b" ", b"+"}
        if old_left < 0 or new_left < 0:
            lines.fail(
                "the hunk has more lines than its header counts",
                cause=f"the {'old' if old_left < 0 else 'new'} side is full, and then follows {raw[:60]!r}",
                back=1,
            )
        if ended.forbids(kind):
            lines.fail("a line follows the last line of the file", back=1)
        text = raw[1:]
        if lines.peek().startswith(b"\\"):
            if lines.take() != NO_NEWLINE:
                lines.fail(f"only `{NO_NEWLINE.decode().strip()}` may begin with a backslash", back=1)
            text = text[:-1]
            if not text:
                lines.fail("a last line without text and without a line end is no line", back=2)
            ended.sides |= {b"-", b"+"} if kind == b" " else {kind}
        body.append(Line(kind, text))
    return tuple(body)


def _cut_off(raw: bytes, old_left: int, new_left: int) -> str:
    missing = f"{old_left} old and {new_left} new lines are missing"
    if raw == b"\n":
        return f"{missing}; this blank line lost its leading space (an editor or mail program stripped it)"
    return f"{missing}; found {raw[:60]!r}" if raw else f"{missing} at the end of the file"
