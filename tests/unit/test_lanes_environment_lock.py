"""The lock of an environment as a document: it survives being written, and what is wrong names its line."""

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.documents.environment_lock import EnvironmentLock, LockedFile, load_lock, order, save_lock
from dgr_build.errors import UsageError
from dgr_build.lanes.environment.state import changes

_ALNUM = "abcXYZ019"
_WORDS = st.builds(
    lambda first, rest: first + rest,
    st.sampled_from(_ALNUM),
    st.text(_ALNUM + "+-.~:%_=#", max_size=12),
)
_FILES = st.builds(
    LockedFile,
    package=_WORDS,
    version=_WORDS,
    file=_WORDS,
    size=st.integers(1, 1 << 40),
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
)
_LOCKS = st.builds(
    lambda files, definition: EnvironmentLock(definition=definition, files=tuple(sorted(files, key=order))),
    st.lists(_FILES, min_size=1, max_size=6, unique_by=lambda file: file.file),
    st.text("0123456789abcdef", min_size=64, max_size=64),
)
_HEAD = f"# lock of environment x\n# definition {'d' * 64}\n# package version file bytes sha256\n"
_GOOD = {"package": "b", "version": "1", "file": "b_1.deb", "bytes": "7", "sha256": "0" * 64}


@dataclasses.dataclass(frozen=True)
class _Written:
    """A lock as text, in a file."""

    path: Path

    def error(self, *lines, head=_HEAD):
        self.path.write_text(head + "".join(f"{line}\n" for line in lines))
        with pytest.raises(UsageError) as caught:
            load_lock(self.path)
        assert "dgr-build env lock x" in caught.value.remedy
        return caught.value


@pytest.fixture
def written(tmp_path):
    return _Written(tmp_path / "x.lock")


def _line(**fields):
    return " ".join((_GOOD | fields).values())


@given(_LOCKS)
def test_a_lock_survives_being_written(lock):
    with TemporaryDirectory() as folder:
        path = Path(folder, "x.lock")
        save_lock(path, lock)
        assert load_lock(path) == lock
        assert load_lock(path).digest == lock.digest


@given(_LOCKS, st.sampled_from(["package", "version", "file", "size", "sha256"]))
def test_whatever_differs_in_a_lock_changes_its_digest(lock, name):
    first = lock.files[0]
    value = first.size + 1 if name == "size" else "f" * 64 if name == "sha256" else "0"
    other = first.model_copy(update={name: value})
    changed = lock.model_copy(update={"files": (other, *lock.files[1:])})
    assert (changed.digest == lock.digest) == (other == first)


def test_the_digest_is_of_the_definition_too():
    file = LockedFile(package="a", version="1", file="a.deb", size=1, sha256="0" * 64)
    one, two = (EnvironmentLock(definition=digit * 64, files=(file,)) for digit in "12")
    assert one.digest != two.digest


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("b 1 b_1.deb 7", "columns"),
        (_line() + " more", "columns"),
        (_line(bytes="0"), "size"),
        (_line(bytes="many"), "size"),
        (_line(sha256="0" * 63), "sha256"),
        (_line(sha256="Z" * 64), "sha256"),
        (_line(file="../b.deb"), "file"),
        (_line(file="/etc/passwd"), "file"),
        (_line(file=".."), "file"),
        (_line(package="-o=b"), "package"),
    ],
)
def test_a_line_that_is_wrong_is_named_with_file_and_number(written, line, named):
    error = written.error(_line(package="a", file="a_1.deb"), line)
    assert f"{written.path}:5" in error.message
    assert named in error.message + error.cause


def test_a_file_that_stands_twice_or_out_of_order_is_refused(written):
    assert "b_1.deb" in written.error(_line(), _line(package="c")).cause
    assert "a_1.deb" in written.error(_line(), _line(package="a", file="a_1.deb")).cause


@pytest.mark.parametrize("head", ["", "# definition 00\n", f"# definition {'D' * 64}\n"])
def test_a_lock_without_its_definition_is_refused(written, head):
    assert "definition" in written.error(_line(), head=head).cause


def test_a_lock_without_files_is_refused(written):
    assert "files" in written.error().cause


def test_a_lock_that_is_missing_or_no_text_names_itself(tmp_path):
    (tmp_path / "x.lock").write_bytes(b"\xff\xfe")
    for name in ("x.lock", "y.lock"):
        with pytest.raises(UsageError) as caught:
            load_lock(tmp_path / name)
        assert str(tmp_path / name) in caught.value.message


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "lanes" / "locks").glob("*.lock")))
def test_the_locks_of_the_project_are_as_they_would_be_written(path, tmp_path):
    lock = load_lock(path)
    save_lock(tmp_path / path.name, lock)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_new_lock_says_what_came_what_went_and_what_moved():
    def lock(**versions):
        files = [
            LockedFile(package=name, version=version, file=f"{name}.deb", size=1, sha256="0" * 64)
            for name, version in sorted(versions.items())
        ]
        return EnvironmentLock(definition="0" * 64, files=tuple(files))

    before, now = lock(a="1", b="1", c="1"), lock(b="1", c="2", d="1")
    assert changes(before, now) == ("+ d 1", "- a 1", "~ c 1 -> 2")
    assert changes(now, now) == ()
    assert changes(None, before) == ("+ a 1", "+ b 1", "+ c 1")
