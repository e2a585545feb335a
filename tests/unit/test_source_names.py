from __future__ import annotations

import pytest
from dulwich.index import validate_path_element_hfs, validate_path_element_ntfs
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.source.names import collision, folded, why_unsafe

_IGNORED = "\u200c\u200d\u200e\u200f\u202a\u202e\u206a\u206f\ufeff"


@pytest.mark.parametrize(
    "name",
    [
        *(b"", b".", b"..", b"a/b", b"..\\a", b"c:", b"a\0b", b"a\nb", b"\x7f", b"\xff", b"a" * 256),
        *(
            b".git",
            b".GIT",
            b".Git",
            b"git~1",
            b"GIT~2",
            b"gitmod~1",
            b"GI7EBA~1",
            b".git ",
            b".git.",
            b"GIT~1 ",
        ),
        *(".g\u200cit".encode(), ".git\ufeff".encode(), "\uff0egit".encode(), ".GI\u200dT".encode()),
        *(b".GITMODULES", b".gitmodules ", b".git::$INDEX_ALLOCATION", b"a ", b"a.", "a\u200cb".encode()),
        *("a\u2028b".encode(), "\u202etxt".encode()),
    ],
)
def test_unsafe_name_is_refused(name: bytes) -> None:
    assert why_unsafe(name, 0o100644)


@pytest.mark.parametrize(
    "name",
    [
        b"a",
        b".github",
        b".gitignore",
        b".gitmodules",
        b"git",
        b"..a",
        b"a.b",
        b"a b",
        "ü".encode(),
        b"~",
        b"-",
    ],
)
def test_ordinary_name_is_fine(name: bytes) -> None:
    assert why_unsafe(name, 0o100644) == ""


@pytest.mark.parametrize("mode", [0o120000, 0o160000, 0o100664, 0o100600, 0o104755, 0o060000, 0, 0o10644])
def test_odd_mode_is_refused(mode: int) -> None:
    assert why_unsafe(b"a", mode)


@pytest.mark.parametrize("mode", [0o100644, 0o100755, 0o040000])
def test_plain_mode_is_fine(mode: int) -> None:
    assert why_unsafe(b"a", mode) == ""


@given(
    letters=st.lists(st.tuples(st.sampled_from(_IGNORED + "\0"), st.booleans()), min_size=4, max_size=4),
    tail=st.sampled_from(["", " ", ".", " .", *_IGNORED]),
)
def test_no_disguise_of_dot_git_passes(letters: list[tuple[str, bool]], tail: str) -> None:
    disguised = "".join(
        (filler if filler != "\0" else "") + (c.upper() if upper else c)
        for c, (filler, upper) in zip(".git", letters, strict=True)
    )
    assert why_unsafe((disguised + tail).encode(), 0o100644)


@given(st.text(min_size=1, max_size=12).map(str.encode) | st.binary(max_size=12))
def test_what_passes_also_passes_the_checks_that_git_has_for_other_systems(name: bytes) -> None:
    if not why_unsafe(name, 0o100644):
        assert validate_path_element_ntfs(name)
        assert validate_path_element_hfs(name)
        assert b"/" not in name
        assert name not in {b".", b".."}


@given(st.lists(st.text(max_size=8), unique_by=folded))
def test_names_that_no_file_system_mixes_up_do_not_collide(names: list[str]) -> None:
    assert collision(n.encode() for n in names) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("A", "a"), ("Straße", "STRASSE"), ("e\u0301", "é"), ("a\u200cb", "ab"), ("Makefile", "makefile")],
)
def test_names_that_some_file_system_mixes_up_collide(one: str, other: str) -> None:
    assert collision([b"x", one.encode(), other.encode()]) == (one.encode(), other.encode())
