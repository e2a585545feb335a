"""Fixtures: a made upstream, its pin, archives, loopback servers, and the fake stages of a route."""

from __future__ import annotations

import datetime as dt
import io
import os
import re
import subprocess
import sys
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dgr_build.documents.pin import Pin
from dgr_build.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

UPSTREAM = {
    "README.md": b"made upstream\n",
    "src/graph.cpp": b"int graph();\n" * 40,
    "src/deep/er/empty.py": b"",
    "empty": b"",
    "name with space ü.txt": b"\r\nbytes \x00\xff\n",
}


@pytest.fixture
def upstream(git_repo):
    """A repository with one commit to pin, made by real git; `.pinned` is that commit."""
    repo = git_repo("upstream")
    repo.write({**UPSTREAM, "run.sh": b"#!/bin/sh\n"})
    (repo.path / "run.sh").chmod(0o755)
    repo.pinned = repo.commit("the pinned one")
    return repo


@pytest.fixture
def pin_of(tmp_path: Path) -> Callable[..., Pin]:
    """A maker of pins: of a repository's HEAD (or `commit`), with its commit object beside the manifest."""

    def make(repo, commit="HEAD", **fields):
        commit = repo.ask("rev-parse", commit)
        folder = tmp_path / "manifests"
        folder.mkdir(exist_ok=True)
        (folder / "pin.commit").write_bytes(repo.git("cat-file", "commit", commit))
        pin = Pin.model_validate(
            {
                "commit": commit,
                "tree": repo.tree(commit),
                "committed": dt.date(2026, 10, 1),
                "build": 7,
                "version": "0.1",
                "commit_object": "pin.commit",
                "providers": ({"kind": "repository", "path": str(repo.path)},),
                **fields,
            }
        )
        return pin.model_copy(update={"folder": folder})

    return make


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    """A workspace in a path with a space and a letter beyond ASCII."""
    base = tmp_path / "a clöne"
    return Workspace(project=base, root=base / ".dgr", cache=base / "cache")


@pytest.fixture
def sdist_of() -> Callable[..., Path]:
    """A maker of source distributions that carry a repository's objects, as one pack and loose."""

    def make(repo, path: Path, *, inner=".git/modules/up", loose=False, more=()):
        if not loose:
            repo.git("repack", "-adq")
        with tarfile.open(path, "w:gz") as tar:
            tar.add(repo.objects, f"top-1.0/{inner}/objects")
            for member, content in more:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return path

    return make


class Server:
    """A loopback server of files by name; what it does wrong is set by its fields."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.cut_after: list[int] = []  # for each of the next answers: bytes after which the line drops
        self.asked: list[tuple[str, str]] = []  # path and Range header
        self.status: dict[str, int] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range", "")
        self.asked.append((handler.path, asked))
        data = self.files.get(handler.path)
        if data is None or handler.path in self.status:
            handler.send_error(self.status.get(handler.path, 404))
            return
        whole, start = len(data), 0
        match = re.fullmatch(r"bytes=([0-9]+)-", asked)
        if match and self.ranges:
            start = int(match[1])
            if start >= whole:
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{whole}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        else:
            handler.send_response(200)
        body = data[start:]
        kind = "text/html" if handler.path.endswith("/") else "application/octet-stream"
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.cut_after.pop(0)] if self.cut_after else body)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server():
    """A loopback file server."""
    one = Server()
    yield one
    one.close()


@pytest.fixture
def git_server():
    """Serve a folder of repositories through real git's own HTTP program; `old` refuses unadvertised ids."""

    @contextmanager
    def serve(root: Path, *, old: bool = False):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._run(b"")

            def do_POST(self) -> None:
                self._run(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

            def _run(self, body: bytes) -> None:
                path, _, query = self.path.partition("?")
                environment = {
                    "PATH": os.environ["PATH"],
                    "GIT_PROJECT_ROOT": str(root),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "GIT_CONFIG_NOSYSTEM": "1",
                    "GIT_CONFIG_GLOBAL": os.devnull,
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": "" if old else self.headers.get("Git-Protocol", ""),
                    "REMOTE_ADDR": "127.0.0.1",
                }
                done = subprocess.run(
                    ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
                )
                head, _, content = done.stdout.partition(b"\r\n\r\n")
                fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
                self.send_response(int(fields.pop("Status", "200").split()[0]))
                for name, value in fields.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            http.server_close()

    return serve


@pytest.fixture
def route_fake(isolated: Path):
    """The module of fake stages, beside this file; its wire code is made in a workspace of the test."""
    spec = spec_from_file_location("route_fake", Path(__file__).with_name("route_fake.py"))
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
