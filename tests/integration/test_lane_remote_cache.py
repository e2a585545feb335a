"""A remote compiler cache with real servers on loopback: what one clone compiled, another finds."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from dgr_build.errors import HostError
from dgr_build.lanes.cache_session import serving
from dgr_build.lanes.compiler_cache import choose
from dgr_build.lanes.isolation import without_network
from dgr_build.workspace import Workspace

_PATH = ("/usr/bin", "/bin", "/usr/local/bin")
_SOURCES = {
    "one.c": '#include <stdio.h>\n#include "own.h"\nint one(void) { puts(__FILE__); return OWN; }\n',
    "two.c": '#include "own.h"\nint two(void) { return OWN * 2; }\n',
}


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def redis(tmp_path):
    """The address of a real Redis server that asks for a password and keeps nothing."""
    port = _free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", tmp_path]
    with subprocess.Popen([*command, "--requirepass", "open"], stdout=subprocess.DEVNULL) as server:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"redis://:open@127.0.0.1:{port}/4"
        server.terminate()


@pytest.fixture
def webdav():
    """The address of a small WebDAV server, and what it keeps."""
    kept: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self, status, body=b""):
            if self.command not in {"GET", "PUT"}:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self._answer(200 if self.path in kept else 404, kept.get(self.path, b""))

        def do_PUT(self):
            kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(201)

        def do_MKCOL(self):
            self._answer(201)

        def do_PROPFIND(self):
            self._answer(404)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/cache", kept
    server.shutdown()
    server.server_close()


def _clone(tmp_path, name):
    project = tmp_path / name / "clone"
    project.mkdir(parents=True)
    for file, text in _SOURCES.items():
        (project / file).write_text(text)
    (project / "own.h").write_text("#define OWN 7\n")
    return Workspace(project=project, root=project / ".dgr", cache=tmp_path / name / "cache")


def _compile(ws, setting, prefix=()):
    """Compile both files as a lane would, and return the objects with what the cache did."""
    cache = choose(ws, _PATH, setting=setting, uncached=False)
    with serving(ws, cache) as session:
        for file in _SOURCES:
            source = ws.project / file
            command = [*prefix, cache.launcher, shutil.which("gcc", path=":".join(_PATH)), "-O2", "-g"]
            command += [f"-ffile-prefix-map={ws.project}=source", "-I", ws.project, "-MD", "-MT", file]
            command += ["-MF", f"{source}.d", "-c", source, "-o", f"{source}.o"]
            done = subprocess.run(
                [str(word) for word in command],
                env={"PATH": ":".join(_PATH), **session.variables},
                cwd=ws.project,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        statistics = session.statistics().to_json()
    return {file: (ws.project / f"{file}.o").read_bytes() for file in _SOURCES}, statistics


def _caches():
    return {one.pid for one in psutil.process_iter(["name"]) if one.info["name"] == "sccache"}


def test_a_second_clone_in_another_folder_finds_what_the_first_compiled(redis, tmp_path, record_property):
    before = _caches()
    first, cold = _compile(_clone(tmp_path, "a"), redis)
    second, warm = _compile(_clone(tmp_path, "b c"), redis)
    record_property("cold", cold)
    record_property("warm", warm)
    assert cold == {"hits": 0, "misses": 2, "other": 0}
    assert warm == {"hits": 2, "misses": 0, "other": 0}
    assert first == second
    assert str(tmp_path).encode() not in b"".join(first.values())
    assert _caches() == before


def test_a_changed_header_is_compiled_anew_and_gives_other_objects(redis, tmp_path):
    first, _ = _compile(_clone(tmp_path, "a"), redis)
    other = _clone(tmp_path, "b")
    (other.project / "own.h").write_text("#define OWN 8\n")
    second, did = _compile(other, redis)
    assert did["hits"] == 0
    assert first["two.c"] != second["two.c"]


def test_compilers_without_a_network_reach_the_cache(redis, tmp_path):
    cut = without_network()
    if not cut:
        pytest.skip("this machine lets nobody unshare its network")
    _compile(_clone(tmp_path, "a"), redis)
    _, did = _compile(_clone(tmp_path, "b"), redis, prefix=cut)
    assert did["hits"] == 2


def test_a_web_server_will_do(webdav, tmp_path):
    address, kept = webdav
    _compile(_clone(tmp_path, "a"), address)
    assert any(path.startswith("/cache/dgr/") for path in kept)
    _, did = _compile(_clone(tmp_path, "b"), address)
    assert did["hits"] == 2


@pytest.mark.parametrize("form", ["redis://me:hidden@127.0.0.1:{}/1", "http://me:hidden@127.0.0.1:{}/x"])
def test_a_server_that_cannot_be_reached_is_named_without_its_password(tmp_path, form):
    ws = _clone(tmp_path, "a")
    before = _caches()
    with pytest.raises(HostError) as caught:
        _compile(ws, form.format(_free_port()))
    assert "DGR_REMOTE_CACHE" in caught.value.message
    assert "127.0.0.1" in caught.value.message
    assert "unset DGR_REMOTE_CACHE" in caught.value.remedy
    assert "hidden" not in repr(caught.value.to_json())
    assert _caches() == before


def test_a_server_is_ended_although_the_build_failed(redis, tmp_path):
    ws = _clone(tmp_path, "a")
    before = _caches()
    cache = choose(ws, _PATH, setting=redis, uncached=False)
    with contextlib.suppress(ZeroDivisionError), serving(ws, cache) as session:
        assert _caches() > before
        assert "open" not in repr(session.variables)
        raise ZeroDivisionError
    assert _caches() == before
    assert not [left for left in Path(ws.root / "run").iterdir() if left.is_dir()]


def test_the_results_of_ccache_are_counted_too(tmp_path):
    ws = _clone(tmp_path, "a")
    _, cold = _compile(ws, None)
    _, warm = _compile(ws, None)
    assert (cold["misses"], warm["hits"]) == (2, 2)
