"""A stage of a route in Python: the rules of the wire contract around a little arithmetic that is exact.

Tests bend it through `on_open`, `on_hello`, `on_frame` (which may raise `Refused`) and `on_result`.
"""

# ruff: noqa: N802 - gRPC's method names

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import grpc
import numpy as np

from dgr_build.route import wire
from dgr_build.route.hashing import prefix_next, prefix_start

N_LAYER = 9
N_VOCAB = 37
WIDTH = 4
ARTIFACT = "ab" * 32
_DETAILS = "grpc-status-details-bin"


class Cells:
    """The state of some layers and what they make of a residual; integers small enough to be exact in f32."""

    def __init__(self, first: int, last: int) -> None:
        self._state = dict.fromkeys(range(first, last), 1)

    def run(self, residual: int) -> int:
        for layer in self._state:
            self._state[layer] = (self._state[layer] * 7 + residual + layer) % 251
            residual = (residual + self._state[layer]) % 127
        return residual


def logits_of(residual: int) -> np.ndarray:
    return ((residual + 5) * (np.arange(N_VOCAB) + 3) % 61).astype("<f4")


def whole(prompt: list[int], n_tokens: int) -> tuple[list[int], np.ndarray]:
    """What the unsplit model gives: tokens, and logits of every prompt row and every step."""
    cells, tokens, rows = Cells(0, N_LAYER), [], []
    todo = list(prompt)
    while len(tokens) < n_tokens:
        rows += [logits_of(cells.run(token)) for token in todo]
        todo = [int(np.argmax(rows[-1]))]
        tokens += todo
    return tokens, np.stack(rows)


class Refused(Exception):  # noqa: N818 - a status, not a bug
    """The end of a call: a status with a typed detail, or with the details of another one as bytes."""

    def __init__(self, code: grpc.StatusCode, text: str, detail: Any = None, packed: bytes = b"") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.packed = packed
        if detail is not None:
            status = wire.pb2.RpcStatus(code=code.value[0], message=text)
            status.details.add().Pack(detail)
            self.packed = status.SerializeToString()

    def end(self, context: Any) -> None:
        if self.packed:
            context.set_trailing_metadata([(_DETAILS, self.packed)])
        context.abort(self.code, self.text)


def _rejected(code: grpc.StatusCode, field_path: str, text: str) -> Refused:
    return Refused(code, f"{field_path} {text}", wire.pb2.Rejected(field=field_path, reason=text))


@dataclass
class _Session:
    asked: Any
    prefix: bytes
    cells: Cells
    sequence: int = 0
    position: int = 0
    results: Any = field(default_factory=queue.SimpleQueue)


class FakeStage:
    """A worker that owns layers [first, last)."""

    def __init__(self, first: int, last: int, *, credentials: Any = None, **options: int) -> None:
        self.first, self.last = first, last
        self.n_ctx, self.n_ubatch = options.get("n_ctx", 64), options.get("n_ubatch", 4)
        self.instance = f"instance-{first}"
        self.sessions: dict[str, _Session] = {}
        self.epochs: list[int] = []  # as opened
        self.on_open = self.on_hello = self.on_frame = lambda _: None
        self.on_result = lambda response: [response]
        self.takes_sampling = True
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        wire.pb2_grpc.add_ShardServicer_to_server(self, self._server)
        port = (
            self._server.add_secure_port("127.0.0.1:0", credentials)
            if credentials
            else self._server.add_insecure_port("127.0.0.1:0")
        )
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    @property
    def is_tail(self) -> bool:
        return self.last == N_LAYER

    def kill(self) -> None:
        self._server.stop(0).wait()

    def forget(self) -> None:
        """Lose all sessions, as a worker that was started anew."""
        for session in self.sessions.values():
            session.results.put(Refused(grpc.StatusCode.ABORTED, "the session was lost"))
        self.sessions.clear()

    def failure(self, code: grpc.StatusCode, cause: str) -> Refused:
        layers = wire.pb2.LayerRange(first=self.first, last=self.last)
        return Refused(code, cause, wire.pb2.Failure(stage=self.instance, range=layers, cause=cause))

    # the service
    def Describe(self, _request: Any, _context: Any) -> Any:
        return wire.pb2.DescribeResponse(
            instance=self.instance,
            build=wire.pb2.Build(lane="cpu", lane_digest="cd" * 32, patched_tree="ef" * 20),
            artifact=wire.pb2.Artifact(digest=ARTIFACT, n_layer=N_LAYER, n_vocab=N_VOCAB),
            range=wire.pb2.LayerRange(first=self.first, last=self.last),
            numerics=wire.pb2.Numerics(n_ubatch=self.n_ubatch, type_k="f16", type_v="f16", digest=b"n" * 32),
            slot_classes=[wire.pb2.SlotClass(slots=1, n_ctx=self.n_ctx)],
            mode="exact",
        )

    def Status(self, _request: Any, _context: Any) -> Any:
        return wire.pb2.StatusResponse(instance=self.instance)

    def OpenSession(self, request: Any, context: Any) -> Any:
        try:
            self.on_open(request)
            if len(request.key) != 32:
                raise _rejected(grpc.StatusCode.INVALID_ARGUMENT, "key", "is not 32 bytes")
            held = self.sessions.get(request.session)
            if held and held.asked.epoch >= request.epoch:
                raise self._miss(held, "epoch is not above the one held")
            if self.is_tail == bool(request.successor_address):
                raise _rejected(
                    grpc.StatusCode.INVALID_ARGUMENT, "successor_address", "does not fit the range"
                )
        except Refused as refused:
            refused.end(context)
        start = prefix_start(ARTIFACT)
        self.epochs.append(request.epoch)
        self.sessions[request.session] = _Session(request, start, Cells(self.first, self.last))
        response = wire.pb2.OpenSessionResponse(n_ctx=self.n_ctx, prefix_hash=start)
        if request.HasField("sampling") and self.takes_sampling:
            response.sampling.CopyFrom(request.sampling)
        return response

    def CloseSession(self, request: Any, _context: Any) -> Any:
        held = self.sessions.get(request.session)
        closed = held is not None and (held.asked.epoch, held.asked.key) == (request.epoch, request.key)
        if closed:
            held.results.put(Refused(grpc.StatusCode.ABORTED, "the session was closed"))
            del self.sessions[request.session]
        return wire.pb2.CloseSessionResponse(closed=closed)

    def Tokenize(self, request: Any, _context: Any) -> Any:
        return wire.pb2.TokenizeResponse(token_ids=[byte % N_VOCAB for byte in request.text.encode()])

    def Detokenize(self, request: Any, _context: Any) -> Any:
        text = " ".join(f"<{token}>" for token in request.token_ids)
        return wire.pb2.DetokenizeResponse(text=text.encode())

    def Results(self, request: Any, context: Any) -> Any:
        try:
            session = self._held(request)
            if request.key != session.asked.key:
                raise _rejected(grpc.StatusCode.PERMISSION_DENIED, "key", "is another")
        except Refused as refused:
            refused.end(context)
        context.add_callback(lambda: session.results.put(None))
        yield wire.pb2.ResultsResponse(session=request.session, epoch=request.epoch, ready=wire.pb2.Ready())
        yield from _until_end(session.results, context)

    def Execute(self, requests: Any, context: Any) -> Any:
        out: Any = queue.SimpleQueue()
        context.add_callback(lambda: out.put(None))
        threading.Thread(target=self._consume, args=(requests, out), daemon=True).start()
        yield from _until_end(out, context)

    # frames
    def _consume(self, requests: Any, out: Any) -> None:
        session, following = None, None
        try:
            for request in requests:
                if session is None:
                    session = self._hello(request)
                    if not self.is_tail:
                        following = _Next(self, session, out)
                    continue
                self._frame(session, following, request, out)
            out.put(None)
        except Refused as refused:
            out.put(refused)
        except grpc.RpcError:  # cancelled
            out.put(None)
        finally:
            if following:
                following.end()
            if session:
                session.results.put(Refused(grpc.StatusCode.ABORTED, "frames stopped coming"))

    def _hello(self, request: Any) -> _Session:
        self.on_hello(request)
        session = self._held(request)
        if request.hello.key != session.asked.key:
            raise _rejected(grpc.StatusCode.PERMISSION_DENIED, "hello.key", "is another")
        if request.hello.sender.instance != session.asked.predecessor.instance:
            raise _rejected(grpc.StatusCode.PERMISSION_DENIED, "hello.sender", "is not the predecessor")
        return session

    def _frame(self, session: _Session, following: _Next | None, request: Any, out: Any) -> None:
        frame, ids = request.frame, list(request.frame.token_ids)
        self.on_frame(frame)
        if self._held(request) is not session:
            raise self._miss(session, "another session by now")
        if not 1 <= len(ids) <= self.n_ubatch or (self.first > 0) != frame.HasField("boundary"):
            raise _rejected(grpc.StatusCode.INVALID_ARGUMENT, "frame.token_ids", "or boundary is wrong")
        after = prefix_next(session.prefix, ids)
        expected = (session.sequence, session.position, session.prefix, after)
        got = (frame.sequence, frame.first_position, frame.prefix_hash_before, frame.prefix_hash_after)
        if got != expected:
            raise self._miss(session, f"frame {frame.sequence} is not the next one")
        if session.position + len(ids) > session.asked.cache.n_ctx:
            raise _rejected(grpc.StatusCode.INVALID_ARGUMENT, "frame.token_ids", "do not fit")
        came = ids if self.first == 0 else np.frombuffer(frame.boundary.data, "<f4")[::WIDTH].astype(int)
        residuals = [session.cells.run(int(value)) for value in came]
        session.sequence, session.position, session.prefix = (
            frame.sequence + 1,
            session.position + len(ids),
            after,
        )
        if following:
            data = np.repeat(np.array(residuals, "<f4"), WIDTH).tobytes()
            frame.boundary.CopyFrom(wire.pb2.Boundary(rows=len(ids), width=WIDTH, data=data))
            following.send(request)
        else:
            result = self._result(frame, residuals)
            if session.asked.HasField("sampling"):  # by seed and position, as a worker would
                shift = session.asked.sampling.seed * 7 + session.position
                result.token = (result.token + shift) % N_VOCAB
            self._deliver(session, result, out)
        out.put(_answer(request, executed=wire.pb2.Executed(sequence=frame.sequence)))

    def _result(self, frame: Any, residuals: list[int]) -> Any:
        rows = [logits_of(residual) for residual in residuals]
        wanted = {wire.pb2.LOGITS_NONE: [], wire.pb2.LOGITS_LAST: rows[-1:], wire.pb2.LOGITS_ALL: rows}
        given = wanted[frame.want_logits]
        return wire.pb2.Result(
            sequence=frame.sequence,
            first_position=frame.first_position,
            rows=len(rows),
            prefix_hash_after=frame.prefix_hash_after,
            has_token=frame.want_token,
            token=int(np.argmax(rows[-1])),
            n_vocab=N_VOCAB if given else 0,
            logits_rows=len(given),
            logits=b"".join(row.tobytes() for row in given),
        )

    def _deliver(self, session: _Session, result: Any, out: Any) -> None:
        chain = session.asked.results_chain
        kind = wire.pb2.ExecuteResponse if chain else wire.pb2.ResultsResponse
        response = kind(session=session.asked.session, epoch=session.asked.epoch, result=result)
        for one in self.on_result(response):
            (out if chain else session.results).put(one)

    def _held(self, request: Any) -> _Session:
        session = self.sessions.get(request.session)
        if session is None or session.asked.epoch != request.epoch:
            raise self._miss(session, "no such session here")
        return session

    def _miss(self, session: _Session | None, text: str) -> Refused:
        detail = wire.pb2.CacheMiss()
        if session:
            detail = wire.pb2.CacheMiss(held_epoch=session.asked.epoch, held_sequence=session.sequence)
        return Refused(grpc.StatusCode.FAILED_PRECONDITION, f"cache miss: {text}", detail)


class _Next:
    """The stream to the following stage; its end becomes the end of ours."""

    def __init__(self, stage: FakeStage, session: _Session, out: Any) -> None:
        asked = session.asked
        self._asked, self._out, self._queue = asked, out, queue.SimpleQueue()
        self._channel = grpc.insecure_channel(
            asked.successor_address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._call = wire.pb2_grpc.ShardStub(self._channel).Execute(iter(self._queue.get, None))
        sender = wire.pb2.Peer(instance=stage.instance)
        hello = wire.pb2.ExecuteHello(sender=sender, key=asked.key)
        self.send(wire.pb2.ExecuteRequest(session=asked.session, epoch=asked.epoch, hello=hello))
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, request: Any) -> None:
        self._queue.put(request)

    def end(self) -> None:
        self._queue.put(None)
        self._call.cancel()
        self._channel.close()

    def _read(self) -> None:
        try:
            for response in self._call:
                if response.WhichOneof("body") == "result":
                    self._out.put(response)
        except grpc.RpcError as error:
            packed = dict(error.trailing_metadata() or ()).get(_DETAILS, b"")
            if packed:
                self._out.put(Refused(error.code(), error.details(), packed=packed))
                return
            cause = f"{self._asked.successor_address}: {error.details()}"
            detail = wire.pb2.Failure(range=self._asked.successor.range, cause=cause)
            self._out.put(Refused(grpc.StatusCode.UNAVAILABLE, cause, detail))


def _answer(request: Any, **body: Any) -> Any:
    return wire.pb2.ExecuteResponse(session=request.session, epoch=request.epoch, **body)


def _until_end(items: Any, context: Any) -> Any:
    while (item := items.get()) is not None:
        if isinstance(item, Refused):
            item.end(context)
        yield item


@contextmanager
def stages(*cuts: int, **options: Any):
    """Run the stages between some cuts: stages(4) are two, [0, 4) and [4, N_LAYER)."""
    edges = [0, *cuts, N_LAYER]
    with ExitStack() as stack:
        started = []
        for first, last in pairwise(edges):
            started.append(FakeStage(first, last, **options))
            stack.callback(started[-1].kill)
        yield started


def addresses(route: list[FakeStage]) -> list[str]:
    return [stage.address for stage in route]
