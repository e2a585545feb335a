"""Fixtures with real workers: the built lane, tiny models, routes, and the tests' own client of the wire."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dgr_build.artifacts.tiny import provide
from dgr_build.documents.recipe import Model, TinyModel
from dgr_build.flows.lane import Request, run_lane
from dgr_build.workspace import Workspace

# Workers are started beside live channels; gRPC's own handlers at fork abort the child before it can exec.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
from .wire_client import Wire
from .worker_process import Worker


@pytest.fixture(scope="session")
def project_workspace():
    """The workspace of this clone; builds in it are kept between runs."""
    return Workspace.open()


@pytest.fixture(scope="session")
def built_cpu_lane(project_workspace):
    """Worker and reference of the CPU lane; compiled by the first run, found by later ones."""
    return run_lane(project_workspace, Request(lane="cpu", only="inspect")).built


@pytest.fixture(scope="session")
def tiny():
    """A maker of tiny models by family and whatever else a recipe may say of them."""
    made = {}

    def make(arch="deepseek4", **fields):
        request = TinyModel(arch=arch, **fields)
        if request not in made:
            made[request] = provide(Model(tiny=request))
        return made[request]

    return make


@pytest.fixture(scope="session")
def on_the_wire():
    """The test's own client."""
    return Wire


@pytest.fixture(scope="session")
def start_worker(built_cpu_lane, tmp_path_factory):
    """A starter of single workers; all are stopped in the end."""
    started = []

    def start(artifact, first, last, **settings):
        worker = Worker(built_cpu_lane, artifact, first, last, tmp_path_factory.mktemp("worker"), **settings)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()


@pytest.fixture(scope="session")
def route(start_worker, tiny):
    """A maker of routes: workers for the stages between cuts, started once for each shape."""
    kept = {}

    def make(cuts=(), artifact=None, **settings):
        artifact = artifact or tiny()
        shape = (tuple(cuts), artifact.digest, tuple(sorted(settings.items())))
        if shape not in kept:
            bounds = [0, *cuts, artifact.manifest.n_layer]
            # all at once: loading one range takes longer than starting a process
            workers = [start_worker(artifact, a, b, **settings) for a, b in itertools.pairwise(bounds)]
            kept[shape] = [worker.ready() for worker in workers]
        return kept[shape]

    return make


@pytest.fixture(scope="session")
def reference(built_cpu_lane, tmp_path_factory):
    """The whole model on the unmodified library: logits, chosen ids and timings; computed once each."""
    known = {}

    def compute(artifact, prompt, steps, *, n_ubatch=64, n_ctx=512, n_seq_max=2):
        key = (artifact.digest, tuple(prompt), steps, n_ubatch, n_ctx, n_seq_max)
        if key not in known:
            folder = tmp_path_factory.mktemp("reference")
            (folder / "tokens").write_bytes(struct.pack(f"<{len(prompt)}i", *prompt))
            numbers = {"n-prompt": len(prompt), "n-decode": steps, "n-ubatch": n_ubatch, "n-ctx": n_ctx}
            numbers |= {"n-seq-max": n_seq_max, "threads": 1, "threads-batch": 1}
            command = [built_cpu_lane.reference, "--model", artifact.path, "--tokens", folder / "tokens"]
            command += ["--logits", folder / "logits", "--flash-attn", "off", "--json"]
            command += [str(word) for name, value in numbers.items() for word in (f"--{name}", value)]
            done = subprocess.run(command, capture_output=True, check=True, env=os.environ)
            said = json.loads(done.stdout)
            logits = np.fromfile(folder / "logits", dtype="<f4").reshape(-1, said["n_vocab"])
            (folder / "logits").unlink()
            known[key] = (logits, said["tokens"], said)
        return known[key]

    return compute


@pytest.fixture
def cold_copy():
    """A maker of copies beside the original whose bytes are on the disk and not in memory."""
    made = []

    def copy(path):
        target = path.with_name(f"cold-{secrets.token_hex(6)}.gguf")
        made.append(target)
        kind = _file_system(target.parent)
        assert kind not in {"tmpfs", "ramfs"}, "DGR_MODELS is in memory: nothing there is ever cold"
        shutil.copyfile(path, target)
        with target.open("rb+") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return target

    yield copy
    for target in made:
        target.unlink(missing_ok=True)


def _file_system(folder):
    """Return the type of the file system that holds a folder."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(len(at), kind) for at, kind in mounts if folder.resolve().is_relative_to(at)]
    return max(holding)[1]
