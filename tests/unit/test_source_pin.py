from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dgr_build.documents.base import parse
from dgr_build.documents.pin import GitProvider, Pin, SdistProvider, load_pin
from dgr_build.errors import UsageError
from dgr_build.source.base_tree import stated_commit

if TYPE_CHECKING:
    from pathlib import Path


def test_tracked_pin_is_the_commit_whose_object_lies_beside_it(project_root: Path) -> None:
    pin = load_pin(project_root / "manifests" / "llama.cpp.toml")
    assert stated_commit(pin) is not None
    assert pin.content_sha256 is not None
    assert [type(p) for p in pin.providers] == [GitProvider, SdistProvider]
    assert pin.lineage is not None
    assert pin.lineage.ancestry == "stated"


_GOOD = {"commit": "a" * 40, "tree": "b" * 40, "committed": "2026-10-01", "build": 1, "version": "1"}
_SDIST = {"kind": "sdist", "package": "p", "version": "1", "sha256": "c" * 64, "size": 1, "objects": "a/b"}


def test_smallest_pin_is_fine() -> None:
    assert parse(_GOOD, Pin, "pin").providers == ()


@pytest.mark.parametrize(
    "change",
    [
        {"commit": "a" * 39},
        {"commit": "A" * 40},
        {"tree": "main"},
        {"build": 0},
        {"commit_object": "../elsewhere"},
        {"commit_object": "/etc/passwd"},
        {"content_sha256": "d"},
        {"typo": 1},
        {"providers": [{"kind": "svn", "url": "x"}]},
        {"providers": [{"kind": "git", "url": "ssh://host/x"}]},
        {"providers": [{"kind": "git", "url": "file:///x"}]},
        {"providers": [{"kind": "git", "url": "--upload-pack=evil"}]},
        {"providers": [{"kind": "git"}]},
        {"providers": [_SDIST | {"package": "p @ https://x"}]},
        {"providers": [_SDIST | {"package": "../p"}]},
        {"providers": [_SDIST | {"version": "1 ; x"}]},
        {"providers": [_SDIST | {"version": "../1"}]},
        {"providers": [_SDIST | {"objects": "/a"}]},
        {"providers": [_SDIST | {"size": -1}]},
    ],
    ids=str,
)
def test_wrong_field_is_refused_and_named(change: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(_GOOD | change, Pin, "pin")
    assert next(iter(change)) in caught.value.cause
