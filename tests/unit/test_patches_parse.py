"""The parser takes what export writes, gives the same bytes back, and refuses everything else at its line."""

import pytest
from dulwich.objects import Blob

from dgr_build.errors import PatchError
from dgr_build.patches.model import invert, render
from dgr_build.patches.parse import parse_patch

HEAD = (
    b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
    b"From: dgr-build <dgr-build@localhost>\n"
    b"Date: Tue, 1 Dec 2026 01:00:00 +0000\n"
    b"Subject: [PATCH] Do one thing\n"
    b"\n"
    b"Because of a reason.\n"
    b"\n"
)


def blob(content):
    return Blob.from_string(content).id


A, B = blob(b"one\ntwo\n\nfour\n"), blob(b"one\n2\n\nfour\n")
EMPTY, NONE = blob(b""), b"0" * 40
INDEX = b"index %s..%s 100644\n" % (A, B)
HUNK = b"@@ -1,4 +1,4 @@\n one\n-two\n+2\n \n four\n"
NAMES = b"--- a/f\n+++ b/f\n"
FILE = b"diff --git a/f b/f\n" + INDEX + NAMES + HUNK
SIGNATURE = b"-- \n2.39.5\n\n"

NEW = (
    b"diff --git a/n b/n\nnew file mode 100755\nindex %s..%s\n" % (NONE, blob(b"a\nb\n"))
    + b"--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+a\n+b\n"
)
GONE = (
    b"diff --git a/n b/n\ndeleted file mode 100644\nindex %s..%s\n--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    % (
        blob(b"a\n"),
        NONE,
    )
)
SPACE = b"diff --git a/x y/z b/x y/z\n" + INDEX + b"--- a/x y/z\t\n+++ b/x y/z\t\n" + HUNK
NO_END = (
    b"diff --git a/f b/f\n" + INDEX + NAMES
    + b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
)  # fmt: skip
SIGNS = (
    b"diff --git a/f b/f\n" + INDEX + NAMES + b"@@ -1,3 +1,3 @@\n --- a/f\n--- b/f\n-- \n+++ b/f\n+++ c/f\n"
)


@pytest.mark.parametrize(
    "data",
    [
        HEAD + FILE,
        HEAD + FILE + SIGNATURE,
        HEAD + FILE + b"-- \n2.39.5\n",
        HEAD + NEW,
        HEAD + GONE,
        HEAD + SPACE,
        HEAD + NO_END,
        HEAD + SIGNS,
        HEAD + FILE + NEW,
        HEAD + b"diff --git a/e b/e\nnew file mode 100644\nindex %s..%s\n" % (NONE, EMPTY),
        HEAD + b"diff --git a/e b/e\ndeleted file mode 100644\nindex %s..%s\n" % (EMPTY, NONE) + FILE,
        HEAD + FILE.replace(HUNK, HUNK.replace(b"@@\n", b"@@ int main() { @@ -1 +1 @@\n", 1)),
        HEAD + b"---\n f | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n" + FILE,
        HEAD.replace(b"[PATCH] Do", b"[PATCH] Do a\n longer") + FILE,
        HEAD.replace(b"Because", b"--x\n --- indented is fine\nBecause") + FILE,
        HEAD.replace(b"\n\nBecause", b"\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
                     b"Content-Transfer-Encoding: 8bit\n\nB\xc3\xbccause") + FILE,
    ],
)  # fmt: skip
def test_what_is_accepted_renders_to_the_same_bytes(data):
    patch = parse_patch(data, "0001-x.patch")
    assert render(patch) == data
    assert invert(invert(patch)) == patch


def test_reads_subject_message_counts_ids_and_modes():
    patch = parse_patch(HEAD + FILE + NEW, "0001-x.patch")
    assert (patch.subject, patch.message) == ("Do one thing", "Because of a reason.")
    assert (patch.added, patch.removed) == (3, 1)
    assert [(f.path, f.mode, f.before, f.after) for f in patch.files] == [
        (b"f", 0o100644, A, B),
        (b"n", 0o100755, NONE, blob(b"a\nb\n")),
    ]


def test_encoded_subject_is_decoded():
    head = HEAD.replace(b"[PATCH] Do one thing", b"[PATCH] =?UTF-8?q?=C3=BCber?=")
    assert parse_patch(head + FILE, "x").subject == "\N{LATIN SMALL LETTER U WITH DIAERESIS}ber"


def file_with(old, new):
    assert old in FILE
    return HEAD + FILE.replace(old, new, 1)


def at_path(path):
    return HEAD + FILE.replace(b"a/f", b"a/" + path).replace(b"b/f", b"b/" + path)


REFUSED = {
    "nothing": (b"", 1),
    "no mail header": (FILE, 1),
    "a real commit id": (HEAD.replace(b"From 0", b"From 1") + FILE, 1),
    "no author": (HEAD.replace(b"From: dgr-build <dgr-build@localhost>\n", b"") + FILE, 2),
    "headers in another order": (HEAD.replace(b"Date: ", b"X: ") + FILE, 3),
    "a numbered subject": (HEAD.replace(b"[PATCH]", b"[PATCH 1/2]") + FILE, 4),
    "a subject that git am shortens": (HEAD.replace(b"] Do", b"] [x] Do") + FILE, 4),
    "an unknown mail header": (HEAD.replace(b"thing\n", b"thing\nX-Y: z\n") + FILE, 5),
    "no files": (HEAD, 8),
    "no files but a signature": (HEAD + SIGNATURE, 11),
    "a second patch in the message": (HEAD.replace(b"Bec", b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n") + FILE, 6),
    "an index line in the message": (HEAD.replace(b"Because", b"Index: f\nBecause") + FILE, 6),
    "an in-body author": (HEAD.replace(b"Because", b"From: x <y>\n\nBecause") + FILE, 6),
    "something between --- and diff": (HEAD + b"---\nhello\n" + FILE, 9),
    "text between files": (HEAD + FILE + b"hello\n" + NEW, 18),
    "a cut off last line": ((HEAD + FILE)[:-1], 17),
    "a cut off hunk": (HEAD + FILE.removesuffix(b" four\n"), 17),
    "trailing garbage": (HEAD + FILE + b"hello\n", 18),
    "an extra hunk line": (HEAD + FILE + b" five\n", 18),
    "an extra added line": (HEAD + FILE + b"+five\n", 18),
    "an extra blank line": (HEAD + FILE + b"\n", 18),
    "garbage after the signature": (HEAD + FILE + SIGNATURE + b"x\n", 21),
    "two signatures": (HEAD + FILE + SIGNATURE + SIGNATURE, 21),
    "a file after the signature": (HEAD + FILE + SIGNATURE + NEW, 21),
    "a stripped blank context line": (file_with(b"\n \n", b"\n\n"), 16),
    "the signature read as a deletion": (HEAD + FILE.replace(b" four\n", b"") + SIGNATURE, 18),
    "a short id": (file_with(INDEX, b"index %s..%s 100644\n" % (A[:7], B[:7])), 9),
    "an id in capitals": (file_with(A, A.upper()), 9),
    "no index line": (file_with(INDEX, b""), 9),
    "no mode on the index line": (file_with(INDEX, INDEX.replace(b" 100644", b"")), 9),
    "an unchanged file": (file_with(B, A), 9),
    "zeros without a mode line": (file_with(A, NONE), 9),
    "no file names": (file_with(NAMES, b""), 10),
    "another old name": (file_with(b"--- a/f", b"--- a/g"), 10),
    "another new name": (file_with(b"+++ b/f", b"+++ b/g"), 11),
    "a timestamp on the name": (file_with(b"--- a/f", b"--- a/f\t2020-01-01"), 10),
    "/dev/null for a file that stays": (file_with(b"--- a/f", b"--- /dev/null"), 10),
    "two different paths": (file_with(b"a/f b/f", b"a/f b/g"), 8),
    "no prefixes": (file_with(b"a/f b/f", b"f f"), 8),
    "a rename": (file_with(INDEX, b"similarity index 90%\nrename from f\nrename to g\n" + INDEX), 9),
    "a copy": (file_with(INDEX, b"copy from f\ncopy to g\n" + INDEX), 9),
    "a mode change": (file_with(INDEX, b"old mode 100644\nnew mode 100755\n" + INDEX), 9),
    "a binary file": (file_with(NAMES + HUNK, b"Binary files a/f and b/f differ\n"), 10),
    "a binary patch": (file_with(NAMES + HUNK, b"GIT binary patch\nliteral 1\nIcmZ\n\n"), 10),
    "a link": (HEAD + NEW.replace(b"100755", b"120000"), 9),
    "a submodule": (HEAD + NEW.replace(b"100755", b"160000"), 9),
    "an odd mode": (HEAD + NEW.replace(b"100755", b"100664"), 9),
    "the same file twice": (HEAD + FILE + FILE, 18),
    "a new file with context": (HEAD + NEW.replace(b"-0,0 +1,2", b"-1 +1,2").replace(b"\n+a", b"\n a"), 8),
    "a new empty file with lines": (HEAD + NEW.replace(blob(b"a\nb\n"), EMPTY), 8),
    "a new file without lines": (HEAD + b"".join(NEW.splitlines(keepends=True)[:3]), 11),
    "a count of one written out": (HEAD + GONE.replace(b"-1 +0,0", b"-1,1 +0,0"), 13),
    "leading zeros": (file_with(b"-1,4", b"-01,4"), 12),
    "a hunk without changes": (file_with(HUNK, b"@@ -1,2 +1,2 @@\n one\n two\n"), 12),
    "an empty hunk": (file_with(HUNK, b"@@ -0,0 +0,0 @@\n"), 12),
    "a hunk without context in mid file": (file_with(HUNK, b"@@ -3,0 +4,1 @@\n+x\n"), 12),
    "a zero-length hunk in mid file": (file_with(HUNK, b"@@ -3,0 +4 @@\n+x\n"), 12),
    "a count too small": (file_with(b"-1,4", b"-1,3"), 17),
    "a count too large": (file_with(b"+1,4", b"+1,5"), 18),
    "new place disagrees": (file_with(b"+1,4", b"+2,4"), 12),
    "overlapping hunks": (HEAD + FILE + b"@@ -4 +4 @@\n-four\n+4\n", 18),
    "hunks that go backwards": (file_with(HUNK, b"@@ -9 +9 @@\n-a\n+b\n@@ -3 +3 @@\n-a\n+b\n"), 15),
    "a hunk beside a filling one": (file_with(HUNK, b"@@ -0,0 +1 @@\n+b\n@@ -1 +2 @@\n-a\n+b\n"), 14),
    "an unknown remark": (HEAD + NO_END.replace(b"\\ No", b"\\ Kein"), 14),
    "a lone remark": (HEAD + FILE + b"\\ No newline at end of file\n\\ No newline at end of file\n", 19),
    "a line after the last one": (file_with(b" one\n", b" one\n\\ No newline at end of file\n"), 15),
    "a last line that is empty": (HEAD + NO_END.replace(b"+b\n", b"+\n"), 15),
    "autocrlf over the whole file": ((HEAD + FILE).replace(b"\n", b"\r\n"), 1),
    "CR in the message": (HEAD.replace(b"reason.", b"reason.\r") + FILE, 6),
    "a zero byte": (file_with(b"+2", b"+\0"), 15),
    "a mail in the mail": (HEAD.replace(b"Bec", b"x\nFrom y Mon Sep 17 00:00:00 2001\n") + FILE, 7),
    "CR on the hunk header": (file_with(b"@@\n", b"@@\r\n"), 12),
    "CR on the index line": (file_with(INDEX, INDEX.replace(b"\n", b"\r\n")), 9),
    "CR on the name": (file_with(b"--- a/f\n", b"--- a/f\r\n"), 10),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_file_and_line(name):
    data, line = REFUSED[name]
    with pytest.raises(PatchError) as caught:
        parse_patch(data, "0001-x.patch")
    assert caught.value.message.startswith(f"0001-x.patch:{line}: ")
    assert caught.value.exit_code == 6
    assert caught.value.remedy


@pytest.mark.parametrize(
    "path",
    [
        b"../f", b"x/../f", b"x/./f", b"/etc/passwd", b"x//f", b"x/", b".git/config", b"x/.git/hooks/h",
        b".GIT/x", b".git./x", b".git /x", b"git~1/x", b"x\\f", b".gitmodules", b".GITMODULES", b"gitmod~1",
        b"c:f",
        b".git::$INDEX_ALLOCATION/x", b"x /f", b"x./f", b"caf\xc3\xa9", b"\xff", b"a\tb", b"a\x7fb",
        b"a" * 600,
    ],
)  # fmt: skip
def test_unsafe_paths_are_refused(path):
    with pytest.raises(PatchError):
        parse_patch(at_path(path), "0001-x.patch")


def test_quoted_paths_are_refused():
    with pytest.raises(PatchError, match="quoted"):
        parse_patch(file_with(b"a/f b/f", b'"a/\\303" "b/\\303"'), "0001-x.patch")


def test_cut_anywhere_is_refused():
    data = HEAD + FILE + NEW
    whole = {len(HEAD + FILE), len(data)}
    for length in set(range(len(data))) - whole:
        with pytest.raises(PatchError):
            parse_patch(data[:length], "0001-x.patch")
