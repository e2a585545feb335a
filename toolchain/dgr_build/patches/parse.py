"""The strict parser of patch files: `git format-patch` output, byte for byte.

Strict means that whatever is accepted renders to the same bytes again, so nothing is skipped, guessed or
mended: the ids are full, the counts are exact, and the only thing that may follow the last hunk is a mail
signature.
"""

from __future__ import annotations

import re
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import NoReturn

from dgr_build.patches.hunks import parse_hunks
from dgr_build.patches.lines import Lines
from dgr_build.patches.model import EMPTY_BLOB, NO_BLOB, ZERO_FROM, FilePatch, Patch
from dgr_build.patches.paths import why_unsafe

_MODES = {b"100644": 0o100644, b"100755": 0o100755}
_ID = re.compile(rb"[0-9a-f]{40}")
_DIFF = b"diff --git "
_SIGNATURE = b"-- \n"
_MIME = (
    b"MIME-Version: 1.0\n",
    b"Content-Type: text/plain; charset=UTF-8\n",
    b"Content-Transfer-Encoding: 8bit\n",
)
# what makes `git am` or `git apply` believe that the message has ended and a patch begins
_BODY_TRAPS = re.compile(rb"diff -|Index: |---\s|\+\+\+ |@@ -|\\ |GIT binary patch|From .*:")
# what `git am` cuts off the front of a subject, and what it takes out of the front of a message
_SUBJECT_TRAPS = re.compile(r"\s|\[|:|re:", re.IGNORECASE)
_IN_BODY_TRAPS = re.compile(rb">?From[: ]|Date:|Subject:|\[PATCH", re.IGNORECASE)
_STATISTICS = re.compile(
    rb" (?:\S.* \| +(?:\d+ [-+]*|0)|\d+ files? changed.*|(?:create|delete) mode \d{6} .*)\n"
)

_EXTENDED = {
    b"old mode": "mode changes",
    b"new mode": "mode changes",
    b"similarity index": "renames and copies",
    b"dissimilarity index": "rewrites",
    b"rename ": "renames",
    b"copy ": "copies",
}
_REWRITE = "change the content of existing text files only, commit, and export again"


def parse_patch(data: bytes, name: str) -> Patch:
    """Parse one patch file.

    Args:
        data: the bytes of the file.
        name: what to call it in errors.

    Raises:
        PatchError: it is not what `dgr-build patch export` writes; file and line are named.
    """
    lines = Lines(data, name)
    if data.count(b"\r\n") and data.count(b"\r\n") == data.count(b"\n"):
        lines.fail(
            "every line ends with CR LF",
            cause="a mail program or autocrlf rewrote the file",
            remedy="git checkout -- patches, with the project's .gitattributes, which keep *.patch as bytes",
        )
    subject, message = _parse_head(lines)
    head = lines.taken()
    if b"\r" in head:
        lines.at = head[: head.index(b"\r")].count(b"\n")
        lines.fail("a carriage return before the first hunk", cause="a mail program or autocrlf put it there")
    files: list[FilePatch] = []
    while (line := lines.peek()).startswith(_DIFF):
        file = _parse_file(lines)
        if any(file.path == other.path for other in files):
            lines.at = file.at - 1
            lines.fail(f"{file.path.decode()} appears twice in one patch")
        files.append(file)
    if not files:
        lines.fail("there is no `diff --git` line: the patch is empty")
    before_tail = lines.at
    if line == _SIGNATURE:
        _parse_signature(lines)
    if lines.peek():
        lines.fail(
            "trailing garbage after the last hunk",
            cause=f"its counts are used up, and then follows {lines.peek()[:60]!r}",
        )
    return Patch(
        name=name,
        subject=subject,
        message=message,
        head=head,
        files=tuple(files),
        tail=lines.since(before_tail),
    )


def _parse_head(lines: Lines) -> tuple[str, str]:
    if lines.peek() != ZERO_FROM:
        lines.fail(
            "the first line is not a mail header with a commit id of forty zeros",
            cause=f"found {lines.peek()[:70]!r}",
        )
    lines.take()
    for field in (b"From: ", b"Date: "):
        _header(lines, field)
    subject = _subject(lines, _header(lines, b"Subject: "))
    if lines.peek() == _MIME[0]:
        for expected in _MIME:
            if lines.take() != expected:
                lines.fail("a mail header that is not known here", back=1)
    if lines.take() != b"\n":
        lines.fail("a blank line must follow the mail header", back=1)
    return subject, _body(lines)


def _header(lines: Lines, field: bytes) -> bytes:
    line = lines.take()
    if not line.startswith(field) or not line[len(field) :].strip():
        lines.fail(
            f"expected `{field.decode().strip()}` of the mail header", cause=f"found {line[:60]!r}", back=1
        )
    value = line[len(field) : -1]
    while lines.peek().startswith((b" ", b"\t")):
        value += b" " + lines.take().strip()
    return value


def _subject(lines: Lines, raw: bytes) -> str:
    try:
        text = str(make_header(decode_header(raw.decode())))
    except (UnicodeDecodeError, HeaderParseError, LookupError, ValueError) as error:
        lines.fail("the subject cannot be decoded", cause=str(error), back=1)
    if not text.startswith("[PATCH] ") or not text.isprintable():
        lines.fail("the subject must read `[PATCH] ...`, unnumbered, on one line", back=1)
    text = text.removeprefix("[PATCH] ")
    if _SUBJECT_TRAPS.match(text):
        lines.fail(
            "git am would cut the beginning off this subject",
            back=1,
            remedy="reword the commit, export again",
        )
    return text


def _body(lines: Lines) -> str:
    body: list[bytes] = []
    while not (line := lines.peek()).startswith(_DIFF):
        if not line:
            lines.fail("there is no `diff --git` line: the patch is empty")
        if line == b"---\n":
            lines.take()
            _skip_statistics(lines)
            break
        first = not b"".join(body).strip()
        if _BODY_TRAPS.match(line) or (first and _IN_BODY_TRAPS.match(line)):
            lines.fail(
                "a line of the message looks like the start of a patch or like a mail header",
                cause=f"git would not take it for a part of the message: {line[:60]!r}",
                remedy="indent that line in the commit message, then export again",
            )
        body.append(lines.take())
    try:
        return b"".join(body).decode().strip("\n")
    except UnicodeDecodeError as error:
        lines.fail("the message is not UTF-8", cause=str(error), back=1)


def _skip_statistics(lines: Lines) -> None:
    while not (line := lines.peek()).startswith(_DIFF):
        if line != b"\n" and not _STATISTICS.fullmatch(line):
            lines.fail(
                "between `---` and the first `diff --git` only statistics may stand",
                cause=f"found {line[:60]!r}",
            )
        lines.take()


def _parse_signature(lines: Lines) -> None:
    lines.take()
    version = lines.take()
    if not re.fullmatch(rb"[0-9A-Za-z.() -]{1,60}\n", version):
        lines.fail("the mail signature is not a version of git", back=1)
    if lines.peek() == b"\n":
        lines.take()


def _parse_file(lines: Lines) -> FilePatch:
    start = lines.at
    path = _path(lines)
    kind, mode = _mode(lines)
    before, after, mode = _index(lines, kind, mode)
    _names(lines, path, kind, hunks_expected=EMPTY_BLOB not in {before, after} or kind == "modify")
    hunks = parse_hunks(lines) if lines.peek().startswith(b"@@ ") else ()
    file = FilePatch(at=start + 1, path=path, mode=mode, before=before, after=after, hunks=hunks)
    _check_whole(lines, file)
    return file


def _path(lines: Lines) -> bytes:
    rest = lines.take()[len(_DIFF) : -1]
    length = (len(rest) - len(b"a/ b/")) // 2
    path = rest[2 : 2 + length]
    if rest.startswith(b'"') or b' "b/' in rest:
        lines.fail("a quoted path", cause="only plain ASCII paths without quotes are allowed", back=1)
    if length < 1 or rest != b"a/%s b/%s" % (path, path):
        lines.fail(
            "`diff --git` must name one path twice, as a/PATH b/PATH",
            cause="two different paths are a rename or a copy, which are refused; other prefixes are too",
            back=1,
        )
    if reason := why_unsafe(path):
        lines.fail(f"the path {path.decode(errors='replace')!r} is refused", cause=reason, back=1)
    return path


def _mode(lines: Lines) -> tuple[str, int]:
    line = lines.peek()
    for prefix, what in _EXTENDED.items():
        if line.startswith(prefix):
            lines.fail(f"{what} are refused", cause=f"found {line.strip()!r}", remedy=_REWRITE)
    for prefix, kind in ((b"new file mode ", "add"), (b"deleted file mode ", "delete")):
        if line.startswith(prefix):
            lines.take()
            return kind, _known_mode(lines, line[len(prefix) : -1])
    return "modify", 0


def _known_mode(lines: Lines, text: bytes) -> int:
    mode = _MODES.get(text)
    if mode is None:
        what = {b"120000": "symbolic links", b"160000": "submodules"}.get(
            text, f"mode {text.decode(errors='replace')}"
        )
        lines.fail(
            f"{what} are refused", cause="only 100644 and 100755 are text files", back=1, remedy=_REWRITE
        )
    return mode


def _index(lines: Lines, kind: str, mode: int) -> tuple[bytes, bytes, int]:
    line = lines.take()
    if not line.startswith(b"index "):
        lines.fail(
            "expected the `index` line with the ids of both blobs", cause=f"found {line[:60]!r}", back=1
        )
    ids, space, mode_text = line[len(b"index ") : -1].partition(b" ")
    before, dots, after = ids.partition(b"..")
    if not dots or not _ID.fullmatch(before) or not _ID.fullmatch(after):
        lines.fail(
            "the ids on the `index` line must be full: 40 hexadecimal digits each",
            cause=f"found {ids.decode(errors='replace')!r}",
            back=1,
        )
    if (before == NO_BLOB) != (kind == "add") or (after == NO_BLOB) != (kind == "delete"):
        lines.fail("the ids do not say what the mode line says", cause=f"{kind}, yet {ids.decode()}", back=1)
    if before == after:
        lines.fail("both ids are equal: the file does not change", back=1)
    if (kind == "modify") != bool(space):
        lines.fail("the mode stands on the `index` line when, and only when, the file is modified", back=1)
    return before, after, _known_mode(lines, mode_text) if space else mode


def _names(lines: Lines, path: bytes, kind: str, *, hunks_expected: bool) -> None:
    if not lines.peek().startswith(b"--- "):
        if lines.peek().startswith((b"Binary files ", b"GIT binary patch")):
            lines.fail("binary files are refused", remedy=_REWRITE)
        if hunks_expected:
            lines.fail("expected the `---` line of the file", cause=f"found {lines.peek()[:60]!r}")
        return
    tab = b"\t" if b" " in path else b""
    old = b"/dev/null" if kind == "add" else b"a/" + path + tab
    new = b"/dev/null" if kind == "delete" else b"b/" + path + tab
    for sign, name in ((b"---", old), (b"+++", new)):
        line = lines.take()
        if line != sign + b" " + name + b"\n":
            lines.fail(
                f"the `{sign.decode()}` line does not agree with the `diff --git` line",
                cause=f"found {line[:80]!r}, expected {(sign + b' ' + name)!r}",
                back=1,
            )
    if not lines.peek().startswith(b"@@ "):
        lines.fail("expected a hunk (`@@ ... @@`)", cause=f"found {lines.peek()[:60]!r}")


def _check_whole(lines: Lines, file: FilePatch) -> None:
    """Adding or deleting a file is one hunk of the whole file, or none when the file is empty."""
    if not (file.adds or file.deletes):
        return
    empty = EMPTY_BLOB in {file.before, file.after}
    sign = b"+" if file.adds else b"-"
    whole = len(file.hunks) == 1 and all(line.kind == sign for line in file.hunks[0].lines)
    if (empty and file.hunks) or (not empty and not whole):
        _fail_at(
            lines, file.at, f"{file.path.decode()}: an added or deleted file is one hunk with all its lines"
        )


def _fail_at(lines: Lines, at: int, message: str) -> NoReturn:
    lines.at = at - 1
    lines.fail(message)
