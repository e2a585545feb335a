from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from dgr_build.documents.pin import GitProvider
from dgr_build.errors import ProofError, SourceUnavailableError
from dgr_build.source.proof import prove_tree
from dgr_build.source.providers import remote
from dgr_build.source.providers.base import Request

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def request_of(tmp_path: Path, pin_of):
    def make(repo, **fields) -> Request:
        (tmp_path / "staging").mkdir()
        return Request(pin=pin_of(repo), staging=tmp_path / "staging", downloads=tmp_path / "d", **fields)

    return make


def _provider(url: str) -> GitProvider:
    return GitProvider(kind="git", url=url)


def test_commit_comes_by_its_id_without_history(upstream, git_server, request_of, tmp_path: Path) -> None:
    first = upstream.pinned
    upstream.commit("second", {"a": b"1"})
    upstream.commit("third", {"a": b"2"})
    request = request_of(upstream)
    with git_server(tmp_path) as url, remote.obtain(_provider(url + "/upstream"), request) as store:
        assert prove_tree(store, upstream.tree()).files > 0
        assert request.pin.commit.encode() in store
        assert first.encode() not in store


def test_commit_that_no_branch_holds_any_more_still_comes(
    upstream, git_server, request_of, tmp_path: Path
) -> None:
    request = request_of(upstream)
    upstream.git("checkout", "-q", "--orphan", "fresh")
    upstream.git("branch", "-qD", "main")
    upstream.commit("rewritten history", {"z": b"z"})
    with git_server(tmp_path) as url, remote.obtain(_provider(url + "/upstream"), request) as store:
        prove_tree(store, request.pin.tree)


def test_server_that_refuses_an_unadvertised_commit_is_told_as_such(
    upstream, git_server, request_of, tmp_path: Path
) -> None:
    """B13."""
    request = request_of(upstream)
    upstream.git("checkout", "-q", "--orphan", "fresh")
    upstream.git("branch", "-qD", "main")
    upstream.commit("rewritten history", {"z": b"z"})
    with (
        git_server(tmp_path, old=True) as url,
        pytest.raises(SourceUnavailableError) as caught,
        remote.obtain(_provider(url + "/upstream"), request),
    ):
        pass
    assert caught.value.cause


@pytest.mark.parametrize("path", ["/nothing", "/upstream/README.md"])
def test_address_without_repository_is_told_as_such(
    upstream, git_server, request_of, tmp_path: Path, path: str
) -> None:
    with (
        git_server(tmp_path) as url,
        pytest.raises(SourceUnavailableError),
        remote.obtain(_provider(url + path), request_of(upstream)),
    ):
        pass


def test_closed_port_costs_no_time(upstream, request_of) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.monotonic()
    with (
        pytest.raises(SourceUnavailableError) as caught,
        remote.obtain(_provider(f"http://127.0.0.1:{port}/x"), request_of(upstream)),
    ):
        pass
    assert time.monotonic() - start < 5
    assert "efused" in caught.value.cause


@pytest.mark.parametrize("manner", ["silent", "drops the line", "talks nonsense", "answers with a page"])
def test_server_that_misbehaves_is_given_up(
    upstream, request_of, monkeypatch: pytest.MonkeyPatch, manner: str
) -> None:
    monkeypatch.setattr(remote, "_ANSWER_S", 0.5)
    monkeypatch.setattr(remote, "_SILENCE_S", 0.5)
    kept = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            if manner == "silent":
                kept.append(line)
                continue
            line.recv(4096)
            if manner == "talks nonsense":
                line.sendall(b"\0\xff" * 1000)
            if manner == "answers with a page":
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nhello")
            line.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        start = time.monotonic()
        with (
            pytest.raises(SourceUnavailableError),
            remote.obtain(_provider(f"http://127.0.0.1:{listener.getsockname()[1]}/x"), request_of(upstream)),
        ):
            pass
        assert time.monotonic() - start < 5
    for line in kept:
        line.close()


def test_damaged_pack_is_no_source(upstream, request_of, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(_url: str, _commit: str, pack: Path, _alive: object) -> None:
        pack.write_bytes(b"PACK" + bytes(100))

    monkeypatch.setattr(remote, "_fetch", fetch)
    with pytest.raises(ProofError), remote.obtain(_provider("http://x/y"), request_of(upstream)):
        pass


def test_offline_asks_nobody(upstream, request_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_fetch", lambda *_: pytest.fail("asked"))
    with (
        pytest.raises(SourceUnavailableError),
        remote.obtain(_provider("http://x/y"), request_of(upstream, offline=True)),
    ):
        pass


def test_settings_of_git_on_this_machine_do_not_matter(
    upstream, git_server, request_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gitconfig"
    config.write_text(
        '[http]\n\tproxy = http://127.0.0.1:1\n[url "http://127.0.0.1:1/"]\n\tinsteadOf = http://\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(config.read_text())
    request = request_of(upstream)
    with git_server(tmp_path) as url, remote.obtain(_provider(url + "/upstream"), request) as store:
        prove_tree(store, upstream.tree())
