"""The stamp of a build folder: what it holds, and which checks this very program has passed."""

import pytest

from dgr_build.lanes.stamp import Stamp, passed, read_stamp, remember, write_stamp


@pytest.fixture
def build(tmp_path):
    write_stamp(tmp_path, Stamp(project="/p", family="f" * 64, digest="d" * 64, plan={"lane": "cpu"}))
    return tmp_path


def test_a_check_is_remembered_with_what_it_said(build):
    remember(build, "test", "k1", "12 tests")
    assert passed(build, "test", "k1") == "12 tests"


@pytest.mark.parametrize(("check", "key"), [("test", "k2"), ("test", "k"), ("smoke", "k1")])
def test_other_inputs_or_another_check_must_run(build, check, key):
    remember(build, "test", "k1", "12")
    assert passed(build, check, key) is None


def test_a_check_that_was_never_run_must_run_even_with_an_empty_key(build):
    assert passed(build, "test", "k1") is None


def test_checks_are_remembered_side_by_side(build):
    remember(build, "test", "k1", "12")
    remember(build, "smoke", "k2", "{}")
    assert (passed(build, "test", "k1"), passed(build, "smoke", "k2")) == ("12", "{}")


def test_a_program_that_is_built_anew_has_passed_nothing(build):
    remember(build, "test", "k1", "12")
    stamp = read_stamp(build)
    write_stamp(build, Stamp(project="/p", family=stamp.family, digest="e" * 64, plan={}))
    assert passed(build, "test", "k1") is None


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"digest": "short"}'])
def test_a_stamp_that_cannot_be_understood_counts_as_none(tmp_path, content):
    (tmp_path / "dgr-lane.json").write_bytes(content)
    assert read_stamp(tmp_path) is None
    remember(tmp_path, "test", "k", "1")
    assert passed(tmp_path, "test", "k") is None
