from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from unearth.fetchers.sync import PyPIClient

from dgr_build import workspace
from dgr_build.errors import HostError, SourceUnavailableError
from dgr_build.source import download

if TYPE_CHECKING:
    from pathlib import Path

_DATA = random.Random(1).randbytes(1_000_000)  # noqa: S311 - only to have some bytes


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PAUSES_S", (0.0, 0.0, 0.0))


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "dönwloads here" / "file.part"


def _fetch(url: str, part: Path, size: int = len(_DATA)) -> bool:
    with PyPIClient() as client:
        return download.fetch(client, url, part, size=size, title="file")


def test_file_arrives_whole(server, part: Path) -> None:
    server.files["/file"] = _DATA
    assert _fetch(server.url + "/file", part) is False
    assert part.read_bytes() == _DATA
    assert server.asked == [("/file", "")]


def test_download_goes_on_where_an_earlier_run_stopped(server, part: Path) -> None:
    server.files["/file"] = _DATA
    part.parent.mkdir()
    part.write_bytes(_DATA[:700_000])
    assert _fetch(server.url + "/file", part) is True
    assert part.read_bytes() == _DATA
    assert server.asked == [("/file", "bytes=700000-")]


def test_complete_part_is_not_fetched_again(server, part: Path) -> None:
    server.files["/file"] = _DATA
    part.parent.mkdir()
    part.write_bytes(_DATA)
    assert _fetch(server.url + "/file", part) is True
    assert part.read_bytes() == _DATA


def test_server_without_ranges_sends_it_all_again(server, part: Path) -> None:
    server.files["/file"], server.ranges = _DATA, False
    part.parent.mkdir()
    part.write_bytes(b"x" * 700_000)
    _fetch(server.url + "/file", part)
    assert part.read_bytes() == _DATA


def test_cut_transfer_resumes_by_itself(server, part: Path) -> None:
    server.files["/file"], server.cut_after = _DATA, [100_000, 0, 300_000, 10]
    _fetch(server.url + "/file", part)
    assert part.read_bytes() == _DATA
    assert all(asked.startswith("bytes=") for _, asked in server.asked[1:])


def test_part_longer_than_the_file_is_dropped(server, part: Path) -> None:
    server.files["/file"] = _DATA
    part.parent.mkdir()
    part.write_bytes(_DATA + b"more")
    _fetch(server.url + "/file", part)
    assert part.read_bytes() == _DATA


def test_transfer_that_never_gets_further_gives_up_and_keeps_what_came(server, part: Path) -> None:
    server.files["/file"], server.cut_after = _DATA, [500_000, *[0] * 20]
    with pytest.raises(SourceUnavailableError) as caught:
        _fetch(server.url + "/file", part)
    assert caught.value.remedy
    kept = part.read_bytes()
    assert kept
    assert kept == _DATA[: len(kept)]


@pytest.mark.parametrize("status", [403, 404, 500])
def test_refusal_is_told_with_its_status(server, part: Path, status: int) -> None:
    server.files["/file"], server.status["/file"] = _DATA, status
    with pytest.raises(SourceUnavailableError) as caught:
        _fetch(server.url + "/file", part)
    assert str(status) in caught.value.cause


def test_answer_that_does_not_end_is_cut_off(server, part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_SPARE", 1000)
    server.files["/file"] = _DATA
    with pytest.raises(SourceUnavailableError):
        _fetch(server.url + "/file", part, size=1000)
    assert part.stat().st_size < len(_DATA)
    assert len(server.asked) == 1


def test_space_is_checked_before_anything_is_asked(
    server, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B23: the disk is not filled first and found full later."""

    class Usage:
        free = 1000

    monkeypatch.setattr(workspace.shutil, "disk_usage", lambda _: Usage)
    server.files["/file"] = _DATA
    with pytest.raises(HostError) as caught:
        _fetch(server.url + "/file", part)
    assert "DGR_CACHE" in caught.value.remedy
    assert server.asked == []


def test_local_file_url_works(tmp_path: Path, part: Path) -> None:
    (tmp_path / "a file").write_bytes(_DATA)
    _fetch((tmp_path / "a file").as_uri(), part)
    assert part.read_bytes() == _DATA


def test_quarantine_keeps_one_file_of_a_name(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        bad = tmp_path / "a.tar.gz.part"
        bad.write_bytes(content)
        aside = download.quarantine(bad)
        assert not bad.exists()
    assert aside.read_bytes() == b"two"
    assert len(list(aside.parent.iterdir())) == 1
