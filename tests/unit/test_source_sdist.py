from __future__ import annotations

import gzip
import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest

from dgr_build.documents.pin import SdistProvider
from dgr_build.errors import ProofError, SourceUnavailableError
from dgr_build.source import download, index
from dgr_build.source.index_settings import IndexSettings
from dgr_build.source.proof import prove_tree
from dgr_build.source.providers import sdist
from dgr_build.source.providers.base import Request

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "made_up-1.0.tar.gz"  # as it is spelled in an index; in the cache it has the pin's spelling


@pytest.fixture
def made(upstream, sdist_of, tmp_path: Path):
    """An archive of the made upstream, in a folder of links."""
    (tmp_path / "links").mkdir()
    return sdist_of(upstream, tmp_path / "links" / _NAME)


@pytest.fixture
def provider(made: Path) -> SdistProvider:
    return SdistProvider(
        kind="sdist",
        package="made-up",
        version="1.0",
        sha256=hashlib.sha256(made.read_bytes()).hexdigest(),
        size=made.stat().st_size,
        objects=".git/modules/up",
    )


@pytest.fixture
def request_of(tmp_path: Path, upstream, pin_of):
    def make(**fields) -> Request:
        staging = tmp_path / "staging"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        downloads = tmp_path / "cäche x" / "downloads"
        return Request(pin=pin_of(upstream), staging=staging, downloads=downloads, **fields)

    return make


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PAUSES_S", (0.0, 0.0))


@pytest.fixture
def indexes(monkeypatch: pytest.MonkeyPatch):
    """Set what pip is set to: only this is looked at."""

    def use(**fields) -> None:
        monkeypatch.setattr(index, "pip_settings", lambda _: IndexSettings(**fields))

    return use


@pytest.fixture
def served(server, made: Path, indexes):
    """The archive in a loopback index."""
    server.files["/simple/made-up/"] = f'<a href="/files/{_NAME}">{_NAME}</a>'.encode()
    server.files[f"/files/{_NAME}"] = made.read_bytes()
    indexes(indexes=(server.url + "/simple",))
    return server


def _proves(provider: SdistProvider, request: Request) -> bool:
    with sdist.obtain(provider, request) as store:
        return prove_tree(store, request.pin.tree).files > 0


def _asked_for_files(server) -> list[str]:
    return [asked for path, asked in server.asked if path.startswith("/files/")]


def test_archive_comes_from_an_index_and_then_from_the_cache(provider, request_of, served) -> None:
    request = request_of()
    assert _proves(provider, request)
    assert (request.downloads / "made-up-1.0.tar.gz").exists()
    served.asked.clear()
    assert _proves(provider, request_of())
    assert served.asked == []
    assert request.remarks == []


@pytest.mark.parametrize("as_url", [False, True])
def test_folder_of_links_is_enough(provider, request_of, indexes, made: Path, as_url: bool) -> None:
    indexes(find_links=(made.parent.as_uri() if as_url else str(made.parent),))
    assert _proves(provider, request_of(offline=True))


def test_local_index_is_enough(provider, request_of, indexes, made: Path, tmp_path: Path) -> None:
    page = tmp_path / "simple" / "made-up" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="{made.as_uri()}">{_NAME}</a>')
    indexes(indexes=((tmp_path / "simple").as_uri(),))
    assert _proves(provider, request_of(offline=True))


def test_interrupted_download_goes_on_in_the_next_run(provider, request_of, served) -> None:
    """B24."""
    served.cut_after = [200, 0, 0, 0, 0]
    served.asked.clear()
    served.cut_after.insert(0, 10_000)  # the page of the index
    with pytest.raises(SourceUnavailableError):
        _proves(provider, request_of())
    served.cut_after.clear()
    served.asked.clear()
    assert _proves(provider, request_of())
    assert _asked_for_files(served) == ["bytes=200-"]


def test_wrong_beginning_is_quarantined_and_the_download_starts_over(provider, request_of, served) -> None:
    request = request_of()
    request.downloads.mkdir(parents=True)
    part = request.downloads / "made-up-1.0.tar.gz.part"
    part.write_bytes(b"x" * 100)
    assert _proves(provider, request)
    assert _asked_for_files(served) == ["bytes=100-", ""]
    assert (request.downloads / "quarantine" / "made-up-1.0.tar.gz").read_bytes()[:100] == b"x" * 100


def test_damaged_archive_in_the_cache_is_quarantined_and_fetched_again(provider, request_of, served) -> None:
    request = request_of()
    request.downloads.mkdir(parents=True)
    (request.downloads / "made-up-1.0.tar.gz").write_bytes(b"damaged")
    assert _proves(provider, request)
    assert (request.downloads / "quarantine" / "made-up-1.0.tar.gz").read_bytes() == b"damaged"


def test_regenerated_archive_is_used_with_a_remark_when_its_objects_prove(
    provider, request_of, served, made: Path
) -> None:
    """B11: the tree id decides; the hash of the archive is only a second check."""
    again = gzip.compress(gzip.decompress(made.read_bytes()), compresslevel=1, mtime=1)
    served.files[f"/files/{_NAME}"] = again
    request = request_of()
    assert _proves(provider, request)
    assert "SHA-256" in request.remarks[0]
    assert not list(request.downloads.glob("made-up*")), "nobody may find it under the pinned name"


def test_archive_with_other_bytes_that_prove_nothing_is_quarantined(provider, request_of, served) -> None:
    served.files[f"/files/{_NAME}"] = b"<html>please log in</html>"
    request = request_of()
    with pytest.raises(ProofError) as caught:
        _proves(provider, request)
    aside = request.downloads / "quarantine" / "made-up-1.0.tar.gz"
    assert str(aside) in caught.value.cause
    assert aside.exists()
    assert not list(request.downloads.glob("made-up*"))


def test_proof_that_fails_later_quarantines_an_archive_with_other_bytes(
    provider, request_of, served, made: Path
) -> None:
    served.files[f"/files/{_NAME}"] = made.read_bytes() + bytes(512)
    request = request_of()
    with pytest.raises(ProofError), sdist.obtain(provider, request):
        raise ProofError("a tree is not what it should be")
    assert (request.downloads / "quarantine" / "made-up-1.0.tar.gz").exists()


def test_pinned_archive_stays_in_the_cache_when_the_pin_itself_is_wrong(provider, request_of, served) -> None:
    request = request_of()
    with pytest.raises(ProofError), sdist.obtain(provider, request):
        raise ProofError("a tree is not what it should be")
    assert (request.downloads / "made-up-1.0.tar.gz").exists()


def test_version_that_no_index_has_is_told_as_such(provider, request_of, served) -> None:
    missing = provider.model_copy(update={"version": "2.0"})
    with pytest.raises(SourceUnavailableError) as caught:
        _proves(missing, request_of())
    assert "pip config list" in caught.value.remedy


def test_index_out_of_reach_is_named_with_its_reason(provider, request_of, indexes, server) -> None:
    indexes(indexes=(server.url + "/simple",))
    server.close()
    with pytest.raises(SourceUnavailableError) as caught:
        _proves(provider, request_of())
    assert server.url in caught.value.cause


def test_secrets_of_an_index_address_are_not_printed(
    provider, request_of, indexes, server, capsys: pytest.CaptureFixture[str]
) -> None:
    indexes(indexes=(server.url.replace("://", "://user:s3cret@") + "/simple",))
    server.close()
    with pytest.raises(SourceUnavailableError) as caught:
        _proves(provider, request_of())
    assert "s3cret" not in str(caught.value.to_json()) + "".join(capsys.readouterr())


@pytest.mark.parametrize("offline", [False, True])
def test_no_index_and_no_links_ask_nobody(provider, request_of, indexes, offline: bool) -> None:
    indexes()
    with pytest.raises(SourceUnavailableError):
        _proves(provider, request_of(offline=offline))


def test_offline_leaves_network_indexes_alone(provider, request_of, served) -> None:
    with pytest.raises(SourceUnavailableError) as caught:
        _proves(provider, request_of(offline=True))
    assert "offline" in caught.value.cause
    assert served.asked == []


def test_certificate_file_that_is_not_there_is_told_as_such(provider, request_of, indexes) -> None:
    indexes(indexes=("https://127.0.0.1:1/simple",), cert="/not/there")
    with pytest.raises(SourceUnavailableError) as caught:
        _proves(provider, request_of())
    assert "/not/there" in caught.value.cause


def test_link_page_that_is_not_there_does_not_hide_the_index(provider, request_of, served, indexes) -> None:
    indexes(indexes=(served.url + "/simple",), find_links=("/not/there",))
    assert _proves(provider, request_of())
