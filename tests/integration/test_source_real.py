"""The real pin from its real providers, and what kill -9 does to obtaining it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dgr_build.documents.pin import Pin, SdistProvider, load_pin
from dgr_build.source import checkout
from dgr_build.source.resolve import open_store, recorded, resolve, verify
from dgr_build.workspace import Workspace, user_cache

if TYPE_CHECKING:
    from pathlib import Path

_KILLS = 20
_AT_ONCE = 2


@pytest.fixture(scope="module")
def pin(project_root: Path):
    return load_pin(project_root / "manifests" / "llama.cpp.toml")


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory, project_root: Path) -> Workspace:
    root = tmp_path_factory.mktemp("real") / "a wörkspace"
    return Workspace(project=project_root, root=root, cache=user_cache())


@pytest.fixture(scope="module")
def base(ws: Workspace, pin):
    return resolve(ws, pin)


def test_real_source_is_proven_in_full(base, pin, ws: Workspace) -> None:
    assert (base.commit, base.tree, base.proof) == (pin.commit, pin.tree, "full")
    assert base.content_sha256 == pin.content_sha256
    assert verify(ws, pin) == base
    fsck = subprocess.run(
        ["git", "--git-dir", ws.store, "fsck", "--full"], capture_output=True, text=True, check=False
    )
    assert fsck.returncode == 0, fsck.stderr
    assert fsck.stdout == ""


def test_warm_answer_takes_a_blink(base, pin, ws: Workspace) -> None:
    start = time.process_time()
    assert resolve(ws, pin) == base
    assert time.process_time() - start < 0.5


def test_checkout_of_the_real_tree_is_what_git_says(base, ws: Workspace, tmp_path: Path) -> None:
    dest = tmp_path / "current"
    store = open_store(base.store)
    checkout.update(store, base.tree, dest)
    start = time.process_time()
    again = checkout.update(store, base.tree, dest)
    store.close()
    assert (again.written, again.removed) == (0, 0)
    assert time.process_time() - start < 1
    listing = subprocess.run(
        ["git", "--git-dir", base.store, "ls-tree", "-r", "-z", base.tree], capture_output=True, check=True
    ).stdout
    entries = [line.decode().split("\t") for line in listing.split(b"\0")[:-1]]
    paths = "".join(f"{path}\n" for _, path in entries)
    ids = subprocess.run(
        ["git", "hash-object", "--no-filters", "--stdin-paths"],
        cwd=dest,
        input=paths.encode(),
        capture_output=True,
        check=True,
    ).stdout.split()
    assert [facts.split()[2] for facts, _ in entries] == [one.decode() for one in ids]
    assert {p for _, p in entries} == {str(p.relative_to(dest)) for p in dest.rglob("*") if p.is_file()}
    executable = {path for facts, path in entries if facts.startswith("100755")}
    assert executable == {p for _, p in entries if (dest / p).stat().st_mode & 0o111}


@dataclass(frozen=True)
class _Scratch:
    """A workspace and cache of its own, where the archive comes from a local folder of links."""

    ws: Workspace
    environment: dict[str, str]

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dgr_build", "source", "resolve", "--provider", "sdist"]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def forget_download(self) -> None:
        for archive in self.ws.downloads.glob("*.tar.gz"):
            archive.unlink()


@pytest.fixture
def scratches(base, pin, tmp_path: Path, project_root: Path) -> list[_Scratch]:
    sdist = next(p for p in pin.providers if isinstance(p, SdistProvider))
    name = f"{sdist.package}-{sdist.version}.tar.gz"
    if not (user_cache() / "downloads" / name).exists():
        filling = Workspace(project=project_root, root=tmp_path / "filling", cache=user_cache())
        resolve(filling, pin, providers=[sdist])
    links = tmp_path / "links"
    links.mkdir()
    shutil.copy(user_cache() / "downloads" / name, links / name)
    made = []
    for number in range(_AT_ONCE):
        root = tmp_path / f"scr ätch {number}"
        settings = {
            "DGR_WORKSPACE": str(root),
            "DGR_CACHE": str(tmp_path / f"cache {number}"),
            "DGR_PROJECT": str(project_root),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": links.as_uri(),
        }
        ws = Workspace(project=project_root, root=root, cache=tmp_path / f"cache {number}")
        made.append(_Scratch(ws, {**os.environ, **settings}))
    return made


def _length_of_a_run(scratch: _Scratch) -> float:
    start = time.monotonic()
    with scratch.start() as whole:
        assert whole.wait(300) == 0, whole.stderr.read().decode()
    return time.monotonic() - start


def _kill_at(scratch: _Scratch, pin: Pin, moments: list[float]) -> None:
    for count, moment in enumerate(moments):
        if count % 3 == 0:  # most runs find the archive in the cache, some have to get it first
            scratch.forget_download()
        with scratch.start() as child:
            time.sleep(moment)
            child.send_signal(signal.SIGKILL)
        if recorded(scratch.ws, pin):
            assert verify(scratch.ws, pin).proof == "full"
    with scratch.start() as last:
        assert last.wait(300) == 0, last.stderr.read().decode()
    assert verify(scratch.ws, pin).content_sha256 == pin.content_sha256
    assert [p for p in scratch.ws.root.rglob(".staging-*") if p.is_dir()] == []
    assert len(list(scratch.ws.store.glob("objects/pack/*"))) == 2
    assert {p.suffix for p in scratch.ws.downloads.iterdir() if p.is_file()} <= {".gz", ".lock"}


def test_kill_at_any_moment_leaves_what_the_next_run_mends(scratches: list[_Scratch], pin) -> None:
    seed = int(os.environ.get("DGR_TEST_SEED") or time.time())
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        length = max(pool.map(_length_of_a_run, scratches))
        moments = [length * (slot + chance.random()) / _KILLS for slot in range(_KILLS)]
        chance.shuffle(moments)
        print(f"DGR_TEST_SEED={seed}, killed after", ", ".join(f"{m:.2f}" for m in moments))  # noqa: T201
        stories = [
            pool.submit(_kill_at, scratch, pin, moments[number::_AT_ONCE])
            for number, scratch in enumerate(scratches)
        ]
        for story in stories:
            story.result()
