"""The series and the folder must agree, and say how to mend it when they do not."""

import pytest

from dgr_build.documents.base import load_toml, save_toml
from dgr_build.documents.series import FileEntry, Limits, PatchEntry, Series, load_series
from dgr_build.errors import PatchError, UsageError


def entry(file):
    return PatchEntry(
        file=file,
        sha256="a" * 64,
        purpose="do it",
        tree="b" * 40,
        added=1,
        removed=0,
        files=(FileEntry(path="f", before="c" * 40, after="d" * 40),),
    )


def load(tmp_path, listed, present=None):
    folder = tmp_path / "patches"
    series = Series(base_commit="1" * 40, base_tree="2" * 40, patches=tuple(map(entry, listed)))
    save_toml(folder / "series.toml", series)
    (folder / "README.md").touch()
    for name in listed if present is None else present:
        (folder / name).touch()
    return load_series(folder / "series.toml")


def test_declared_order_is_kept_and_the_tree_is_the_last_ones(tmp_path):
    names = [f"{number:04d}-x.patch" for number in range(1, 12)]
    series = load(tmp_path, names)
    assert [e.file for e in series.patches] == names
    assert series.tree == "b" * 40


def test_an_empty_stack_is_the_base_tree(tmp_path):
    assert load(tmp_path, []).tree == "2" * 40


def test_limits_are_data_with_defaults(tmp_path):
    assert load(tmp_path, []).limits == Limits(added=130, files=15, untouched=("ggml/",), new_files=False)


@pytest.mark.parametrize(
    ("listed", "present", "remedy"),
    [
        (["0001-a.patch", "0003-b.patch"], None, "0002-b.patch"),  # a gap
        (["0002-a.patch"], None, "0001-a.patch"),
        (["0000-a.patch"], None, "0001-a.patch"),
        (["0002-b.patch", "0001-a.patch"], None, "0001-b.patch"),  # another order
        (["01-a.patch", "2-b.patch"], None, "02-some-words.patch"),
        (["patch2.patch"], None, "0001-some-words.patch"),
        (["0001-a.patch", "00002-b.patch"], None, "0002-b.patch"),  # mixed widths
        (["0001-A.patch"], None, "0001-some-words.patch"),
        (["../0001-a.patch"], [], "0001-some-words.patch"),
        (["0001-a.patch", "0001-b.patch"], None, "renumber"),  # two branches took one number
        (["0001-a.patch", "0001-a.patch"], None, "remove the second entry"),
        (["0001-a.patch"], [], "git checkout"),  # listed, but no file
        (["0001-a.patch"], ["0001-a.patch", "0002-b.patch"], "patch export"),  # a file, but not listed
        (["0001-a.patch"], ["0001-a.patch", "0001-b.patch"], "renumber"),
        ([], ["x.diff"], "patch export"),
    ],
)
def test_refused_with_the_fix(tmp_path, listed, present, remedy):
    with pytest.raises(PatchError) as caught:
        load(tmp_path, listed, present if present is not None else [n for n in listed if "/" not in n])
    assert remedy in caught.value.remedy


def test_unlisted_patch_with_a_used_number_names_the_other(tmp_path):
    with pytest.raises(PatchError) as caught:
        load(tmp_path, ["0001-a.patch"], ["0001-a.patch", "0001-b.patch"])
    assert "0001-a.patch" in caught.value.cause


@pytest.mark.parametrize(
    ("old", "new"),
    [("purpose", "porpoise"), ("b" * 40, "b" * 7), ("added = 1", "added = -1"), ("do it", "do\\nit")],
)
def test_wrong_fields_are_named(tmp_path, old, new):
    load(tmp_path, ["0001-a.patch"])
    path = tmp_path / "patches" / "series.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError) as caught:
        load_toml(path, Series)
    assert "patches.0." in caught.value.cause
