"""Fixtures with real workers: the built lane, tiny models, and a client of the wire that can also misbehave.

The client is written for the tests alone, so that the project's own has a witness.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import queue
import secrets
import shutil
import struct
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

# Workers are started beside live channels; gRPC's own handlers at fork abort the child before it can exec.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
import grpc

from dgr_build.artifacts.tiny import provide
from dgr_build.documents.recipe import Model, TinyModel
from dgr_build.flows.lane import Request, run_lane
from dgr_build.process import Child
from dgr_build.route import wire
from dgr_build.workspace import Workspace

pb, rpc = wire.pb2, wire.pb2_grpc
_START_S, _ANSWER_S = 60, 60
_SETTINGS = {
    "listen": "127.0.0.1:0", "n_ctx": 512, "slots": 2, "n_ubatch": 64, "threads": 1, "threads_batch": 1,
    "flash_attn": "off", "type_k": "f16", "type_v": "f16",
}  # fmt: skip
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


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


class Refused(Exception):  # noqa: N818 - an answer, as data
    """A call that a worker refused: the status, and the detail that a client reads in place of prose."""

    def __init__(self, error):
        super().__init__(f"{error.code()}: {error.details()}")
        self.code = error.code()
        self.text = error.details() or ""
        self.rejected = self.miss = self.failure = None
        for key, value in error.trailing_metadata() or ():
            if key != "grpc-status-details-bin":
                continue
            for any_detail in pb.RpcStatus.FromString(value).details:
                for name, kind in (
                    ("rejected", pb.Rejected),
                    ("miss", pb.CacheMiss),
                    ("failure", pb.Failure),
                ):
                    message = kind()
                    if any_detail.Unpack(message):
                        setattr(self, name, message)

    @property
    def field(self):
        return self.rejected.field if self.rejected else ""


def _asked(call, request):
    try:
        return call(request, timeout=_ANSWER_S)
    except grpc.RpcError as error:
        raise Refused(error) from None


class Worker:
    """One real worker process over one range of a model."""

    def __init__(self, lane, artifact, first, last, folder, *, model=None, **settings):
        self.log, self._port_file = folder / "worker.log", folder / "port"
        argv = [lane.worker, "--model", model or artifact.path, "--artifact-digest", artifact.digest]
        argv += ["--first", first, "--last", last, "--port-file", self._port_file]
        for name, value in (_SETTINGS | settings).items():
            flag = "--" + name.replace("_", "-")
            argv += [flag] if value is True else [flag, value]
        with self.log.open("wb") as log:
            self.child = Child(argv, stdout=log, stderr=log)

    def ready(self):
        deadline = time.monotonic() + _START_S
        while not self._port_file.exists():
            assert self.child.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        self.address = f"127.0.0.1:{int(self._port_file.read_text())}"
        self.channel = grpc.insecure_channel(self.address, options=_OPTIONS)
        self.stub = rpc.ShardStub(self.channel)
        self.about = _asked(self.stub.Describe, pb.DescribeRequest())
        return self

    @property
    def status(self):
        return _asked(self.stub.Status, pb.StatusRequest())

    @property
    def alive(self):
        return self.child.poll() is None and self.status.instance == self.about.instance

    @property
    def peer(self):
        about = self.about
        return pb.Peer(
            instance=about.instance,
            range=about.range,
            patched_tree=about.build.patched_tree,
            artifact_digest=about.artifact.digest,
            boundary_digest=about.boundary.digest,
            n_ubatch=about.numerics.n_ubatch,
            numerics_digest=about.numerics.digest,
            lane_digest=about.build.lane_digest,
        )

    def io(self):
        text = Path(f"/proc/{self.child.pid}/io").read_text()
        return {name: int(value) for name, value in (line.split(": ") for line in text.splitlines())}

    def stop(self):
        if hasattr(self, "channel"):
            self.channel.close()
        return self.child.stop()


class Stream:
    """A streaming call whose answers are taken one by one, each within a time."""

    def __init__(self, start):
        self._answers = queue.Queue()
        self.call = start()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for answer in self.call:
                self._answers.put(answer)
            self._answers.put(None)
        except grpc.RpcError as error:
            self._answers.put(Refused(error))

    def take(self, seconds=_ANSWER_S):
        """Return the next answer, None at the end; raise what the worker refused with."""
        answer = self._answers.get(timeout=seconds)
        if isinstance(answer, Refused):
            self._answers.put(answer)
            raise answer
        return answer

    def cancel(self):
        self.call.cancel()


def prefix_hash(artifact_digest, *frames):
    """Return the prefix hash after frames of token ids, computed from the contract's words."""
    value = hashlib.sha256(b"dgr.shard.v1.prefix" + bytes.fromhex(artifact_digest)).digest()
    for ids in frames:
        value = hashlib.sha256(value + struct.pack(f"<I{len(ids)}i", len(ids), *ids)).digest()
    return value


def _crc32c_table():
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc32c_table()


def crc32c(data):
    """Return the CRC-32C (Castagnoli) of bytes, computed from its definition."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _CRC[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


class Session:
    """One session on a chain of workers, or on one stage alone with a made-up predecessor."""

    def __init__(self, workers, *, name=None, epoch=1, key=None, predecessor=None, open_now=True):
        self.workers = workers
        self.name = name or f"s-{secrets.token_hex(6)}"
        self.epoch, self.key = epoch, key or secrets.token_bytes(32)
        self.predecessor = predecessor or pb.Peer(client=True)
        self.sequence = self.position = 0
        self.hash = prefix_hash(workers[0].about.artifact.digest)
        self.results = self.execute = None
        self._frames = queue.Queue()
        if open_now:
            self.open()

    def open_request(self, stage):
        """Return what opens one stage; tests spoil one field of it."""
        worker = self.workers[stage]
        about, numerics = worker.about, worker.about.numerics
        after = self.workers[stage + 1] if stage + 1 < len(self.workers) else None
        return pb.OpenSessionRequest(
            session=self.name,
            epoch=self.epoch,
            key=self.key,
            artifact_digest=about.artifact.digest,
            range=about.range,
            lane_digest=about.build.lane_digest,
            numerics_digest=numerics.digest,
            cache=pb.CacheExpectation(
                type_k=numerics.type_k,
                type_v=numerics.type_v,
                n_ctx=about.slot_classes[0].n_ctx,
                n_ubatch=numerics.n_ubatch,
                flash_attn=numerics.flash_attn,
                state_schema_version=about.state_schema_version,
            ),
            predecessor=self.workers[stage - 1].peer if stage else self.predecessor,
            successor=after.peer if after else None,
            successor_address=after.address if after else "",
        )

    def open(self):
        for stage in reversed(range(len(self.workers))):
            opened = _asked(self.workers[stage].stub.OpenSession, self.open_request(stage))
            assert opened.prefix_hash == self.hash
        self.listen()
        self.connect()
        return self

    def listen(self):
        request = pb.ResultsRequest(session=self.name, epoch=self.epoch, key=self.key)
        self.results = Stream(lambda: self.workers[-1].stub.Results(request))
        assert self.results.take().HasField("ready")

    def connect(self, sender=None, key=None):
        self._frames = frames = queue.Queue()
        self.execute = Stream(lambda: self.workers[0].stub.Execute(iter(frames.get, None)))
        hello = pb.ExecuteHello(sender=sender or self.predecessor, key=self.key if key is None else key)
        self.put(hello=hello)

    def put(self, *, epoch=None, session=None, **body):
        name = self.name if session is None else session
        self._frames.put(pb.ExecuteRequest(session=name, epoch=epoch or self.epoch, **body))

    def frame(self, ids, *, logits=None, token=False, boundary=None):
        """Return the next frame; tests spoil one field of it."""
        after = hashlib.sha256(self.hash + struct.pack(f"<I{len(ids)}i", len(ids), *ids)).digest()
        frame = pb.Frame(
            sequence=self.sequence,
            first_position=self.position,
            token_ids=ids,
            prefix_hash_before=self.hash,
            prefix_hash_after=after,
            want_token=token,
            want_logits=pb.LOGITS_ALL if logits is None else logits,
        )
        if boundary is not None:
            data = np.ascontiguousarray(boundary, dtype="<f4").tobytes()
            frame.boundary.CopyFrom(
                pb.Boundary(
                    dtype=pb.DTYPE_F32, rows=boundary.shape[0], width=boundary.shape[1],
                    data=data, checksum=crc32c(data),
                )
            )  # fmt: skip
        return frame

    def send(self, frame, **envelope):
        """Send a frame and count it as one that runs."""
        self.put(frame=frame, **envelope)
        self.sequence += 1
        self.position += len(frame.token_ids)
        self.hash = frame.prefix_hash_after

    def refusal(self, frame, **envelope):
        """Send a frame that must be refused and return the refusal."""
        self.put(frame=frame, **envelope)
        try:
            while (answer := self.execute.take()) and answer.executed.sequence < self.sequence:
                pass  # credit for frames that ran before
        except Refused as refused:
            return refused
        raise AssertionError(f"it was not refused: {answer}")

    def result(self):
        """Return the next result; an error of the frame outranks the end of the results."""
        try:
            answer = self.results.take()
        except Refused as ended:
            with suppress(queue.Empty):
                while self.execute.take(5):
                    pass
            raise ended from None
        assert answer is not None
        return answer.result

    def run(self, ids, *, n_ubatch=None, boundary=None):
        """Run ids in frames; return the logits of every row, [rows, vocabulary]."""
        size = n_ubatch or self.workers[0].about.numerics.n_ubatch
        rows = []
        for at in range(0, len(ids), size):
            part = None if boundary is None else boundary[at : at + size]
            self.send(self.frame(ids[at : at + size], boundary=part))
            rows.append(logits_of(self.result()))
        return np.concatenate(rows)

    def generate(self, prompt, steps):
        """Run a prompt and then `steps` greedy steps; return all logits and the chosen ids."""
        return finish([begin(self, prompt)], steps)[0]

    def close(self):
        for stream in (self.execute, self.results):
            if stream:
                stream.cancel()
        self._frames.put(None)
        request = pb.CloseSessionRequest(session=self.name, epoch=self.epoch, key=self.key)
        for worker in self.workers:
            with suppress(grpc.RpcError):
                worker.stub.CloseSession(request, timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def logits_of(result):
    logits = np.frombuffer(result.logits, dtype="<f4").reshape(result.logits_rows, result.n_vocab)
    assert np.isfinite(logits).all()
    return logits


def begin(session, prompt):
    logits = session.run(prompt)
    return session, [logits], [int(logits[-1].argmax())]


def finish(runs, steps):
    """Take greedy steps in turn, one of each session after the other; the worker's choice must agree."""
    for _ in range(steps):
        for session, logits, tokens in runs:
            session.send(session.frame([tokens[-1]], logits=pb.LOGITS_LAST, token=True))
            result = session.result()
            logits.append(logits_of(result))
            tokens.append(int(logits[-1][-1].argmax()))
            assert result.has_token
            assert result.token == tokens[-1]
    return [(np.concatenate(logits), tokens) for _, logits, tokens in runs]


class Wire:
    """What tests need of the wire, in one fixture."""

    pb, rpc = pb, rpc
    Session, Worker, Stream, Refused = Session, Worker, Stream, Refused
    prefix_hash, crc32c, ask = staticmethod(prefix_hash), staticmethod(crc32c), staticmethod(_asked)
    begin, finish, logits_of = staticmethod(begin), staticmethod(finish), staticmethod(logits_of)

    @staticmethod
    def prompt(length, seed=7):
        """Return token ids of bytes, stable for a seed."""
        raw = np.random.PCG64(seed).random_raw(length)
        return [3 + int(value % 256) for value in raw]

    @staticmethod
    def boundary(rows, width, seed=11):
        """Return made-up residuals of a lively size, [rows, width]."""
        raw = np.random.PCG64(seed).random_raw(rows * width)
        return ((raw >> 40).astype("<f4") / (1 << 23) - 1.0).reshape(rows, width)


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
