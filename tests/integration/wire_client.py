"""A client of the wire that can also misbehave.

It is written for the tests alone, so that the project's own client has a witness.
"""

from __future__ import annotations

import hashlib
import queue
import secrets
import struct
import threading
from contextlib import suppress

import grpc
import numpy as np

from .worker_process import ANSWER_S, Refused, Worker, ask, pb, rpc


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

    def take(self, seconds=ANSWER_S):
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
            opened = ask(self.workers[stage].stub.OpenSession, self.open_request(stage))
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
    prefix_hash, crc32c, ask = staticmethod(prefix_hash), staticmethod(crc32c), staticmethod(ask)
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
