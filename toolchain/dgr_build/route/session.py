"""One epoch of a session on a route: opened on every stage, frames to the head, results from the tail."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np

from dgr_build.errors import RouteError
from dgr_build.route import failures, wire
from dgr_build.route.hashing import prefix_next, prefix_start
from dgr_build.route.sampling import require_taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_CALL_S = 30.0
_AFTER_END_S = 5.0  # the error of a frame outranks that of the results; it may come a little later


@dataclass(frozen=True, kw_only=True)
class StageLink:
    """A stage as the client knows it.

    Args:
        index: its place in the route.
        address: host and port.
        stub: its service.
        about: what it says of itself.
    """

    index: int
    address: str
    stub: Any
    about: Any

    @property
    def layers(self) -> tuple[int, int]:
        """The first layer it owns, and one past the last."""
        return self.about.range.first, self.about.range.last

    @property
    def name(self) -> str:
        """The stage for a person."""
        first, last = self.layers
        return f"stage {self.index} [{first}, {last}) at {self.address}"

    @property
    def peer(self) -> Any:
        """The stage as its neighbours are told of it."""
        about = self.about
        return wire.pb2.Peer(
            instance=about.instance,
            range=about.range,
            patched_tree=about.build.patched_tree,
            artifact_digest=about.artifact.digest,
            boundary_digest=about.boundary.digest,
            n_ubatch=about.numerics.n_ubatch,
            numerics_digest=about.numerics.digest,
            lane_digest=about.build.lane_digest,
        )


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of one frame.

    Args:
        token: sampled for the position after the frame, None where it was not asked for.
        logits: [rows, n_vocab], empty where they were not asked for.
    """

    token: int | None
    logits: NDArray[np.float32]


class Missed(Exception):  # noqa: N818 - not an error: the client prefills again
    """A stage does not hold the cache that the frame expects."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What one epoch of a session is opened with.

    Args:
        session: its id.
        epoch: its generation of cache, from 1.
        key: 32 random bytes, the same on every stage.
        n_ctx: positions it may need.
        chain: results come back through the stages.
        mixed: stages may differ in numerics; nothing is then promised about bits.
        sampling: what the tail is asked for, as on the wire; None for greedy.
    """

    session: str
    epoch: int
    key: bytes
    n_ctx: int
    chain: bool
    mixed: bool = False
    sampling: Any = None


class Epoch:
    """A session at one epoch, opened on all stages. Close it when done.

    Raises (from every method):
        RouteError: a stage refused or failed; the message names it.
        Missed: a stage does not hold the cache; a new epoch and a prefill help.
    """

    def __init__(self, stages: Sequence[StageLink], opening: Opening) -> None:
        """Open every stage from tail to head, then the results, then the stream of frames."""
        self._stages = stages
        self._opening = opening
        self._named = {"session": opening.session, "epoch": opening.epoch}
        self._hash = prefix_start(stages[0].about.artifact.digest)
        self._sequence = self._position = 0
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls: list[Any] = []
        self._readers: list[threading.Thread] = []
        try:
            self._open()
            if not opening.chain:
                self._listen()
            self._connect()
        except BaseException:
            self.close()
            raise

    def send(self, token_ids: Sequence[int], *, want_token: bool, logits: int, remaining_ms: int) -> None:
        """Send the next frame: at most n_ubatch token ids at the next positions."""
        after = prefix_next(self._hash, token_ids)
        frame = wire.pb2.Frame(
            sequence=self._sequence,
            first_position=self._position,
            token_ids=token_ids,
            prefix_hash_before=self._hash,
            prefix_hash_after=after,
            want_token=want_token,
            want_logits=logits,
            remaining_ms=remaining_ms,
        )
        self._put(frame=frame)
        self._sequence += 1
        self._position += len(token_ids)
        self._hash = after

    def receive(self, sequence: int, timeout_s: float) -> Answer:
        """Return the result of frame `sequence`; results of other frames and epochs are passed over."""
        deadline = time.monotonic() + timeout_s
        while True:
            kind, value = self._event(deadline, f"frame {sequence} is not answered within {timeout_s:.1f} s")
            if kind == "result" and value.sequence == sequence:
                return Answer(token=value.token if value.has_token else None, logits=self._logits(value))

    def close(self) -> None:
        """End the streams and give the slots back; a stage that is gone is passed over."""
        self._out.put(None)
        for call in self._calls:
            call.cancel()
        request = wire.pb2.CloseSessionRequest(**self._named, key=self._opening.key)
        closings = [stage.stub.CloseSession.future(request, timeout=_AFTER_END_S) for stage in self._stages]
        for closing in closings:  # asked all at once: several that hang are waited for once
            with suppress(grpc.RpcError):
                closing.result()
        for reader in self._readers:
            reader.join(_AFTER_END_S)

    def _open(self) -> None:
        for stage in reversed(self._stages):
            request = self._open_request(stage)
            try:
                response = stage.stub.OpenSession(request, timeout=_CALL_S)
            except grpc.RpcError as error:
                raise self._ended(stage, error) from error
            require_taken(stage.name, request, response)

    def _open_request(self, stage: StageLink) -> Any:
        about, numerics = stage.about, stage.about.numerics
        before = self._stages[stage.index - 1].peer if stage.index else wire.pb2.Peer(client=True)
        after = self._stages[stage.index + 1] if stage.index + 1 < len(self._stages) else None
        return wire.pb2.OpenSessionRequest(
            **self._named,
            key=self._opening.key,
            artifact_digest=about.artifact.digest,
            range=about.range,
            lane_digest=about.build.lane_digest,
            numerics_digest=numerics.digest,
            cache=wire.pb2.CacheExpectation(
                type_k=numerics.type_k,
                type_v=numerics.type_v,
                n_ctx=self._opening.n_ctx,
                n_ubatch=numerics.n_ubatch,
                flash_attn=numerics.flash_attn,
                state_schema_version=about.state_schema_version,
            ),
            predecessor=before,
            successor=after.peer if after else None,
            successor_address=after.address if after else "",
            results_chain=self._opening.chain,
            mixed=self._opening.mixed,
            sampling=None if after else self._opening.sampling,
        )

    def _listen(self) -> None:
        request = wire.pb2.ResultsRequest(**self._named, key=self._opening.key)
        call = self._stages[-1].stub.Results(request)
        self._calls.append(call)
        self._start_reader(call, "results")
        deadline = time.monotonic() + _CALL_S
        while self._event(deadline, f"the results are not ready within {_CALL_S:.1f} s")[0] != "ready":
            pass

    def _connect(self) -> None:
        call = self._stages[0].stub.Execute(iter(self._out.get, None))
        self._calls.append(call)
        self._put(hello=wire.pb2.ExecuteHello(sender=wire.pb2.Peer(client=True), key=self._opening.key))
        self._start_reader(call, "execute")

    def _put(self, **body: Any) -> None:
        self._out.put(wire.pb2.ExecuteRequest(**self._named, **body))

    def _start_reader(self, call: Any, name: str) -> None:
        reader = threading.Thread(target=self._read, args=(call, name), name=f"route-{name}", daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, call: Iterator[Any], name: str) -> None:
        try:
            for message in call:
                body = message.WhichOneof("body")
                if message.epoch == self._opening.epoch and body in {"ready", "result"}:
                    self._in.put((body, getattr(message, body)))
            self._in.put((name, None))
        except grpc.RpcError as error:
            self._in.put((name, error))

    def _event(self, deadline: float, late: str) -> tuple[str, Any]:
        """Return the next message; the end of a stream is raised as what it means."""
        try:
            kind, value = self._next(deadline)
        except queue.Empty:
            raise RouteError(
                f"no answer from the route of {len(self._stages)} stages, from {self._stages[0].name} on",
                cause=late,
                remedy="look for a worker that hangs in the logs of the workers",
            ) from None
        if kind == "results":
            kind, value = self._after_results(value)
        if kind in {"ready", "result"}:
            return kind, value
        raise self._ended(self._stages[0] if kind == "execute" else self._stages[-1], value)

    def _next(self, deadline: float) -> tuple[str, Any]:
        kind, value = self._in.get(timeout=max(0.0, deadline - time.monotonic()))
        return kind, value

    def _after_results(self, value: Any) -> tuple[str, Any]:
        """Return the end of the frames' stream where it comes soon, else that of the results."""
        if len(self._calls) < 2:  # noqa: PLR2004 - results and frames
            return "results", value
        deadline = time.monotonic() + _AFTER_END_S
        while True:
            try:
                kind, later = self._next(deadline)
            except queue.Empty:
                return "results", value
            if kind == "execute" and later is not None:
                return kind, later

    def _ended(self, stage: StageLink, error: Any) -> Exception:
        """Return what the end of a call means: `error` is a gRPC error, or None for an end in order."""
        if error is None:
            refusal = failures.Refusal(code="ABORTED", text="it ended the stream though more was to come")
        else:
            refusal = failures.read(error)
        if refusal.is_miss:
            return Missed(f"{stage.name}: {refusal.text}")
        return failures.route_error(refusal, stage.name, {link.layers: link.name for link in self._stages})

    def _logits(self, result: Any) -> NDArray[np.float32]:
        width = result.n_vocab if result.logits_rows else 0
        if len(result.logits) != 4 * result.logits_rows * width:  # f32
            refusal = failures.Refusal(
                code="DATA_LOSS",
                text=f"{len(result.logits)} bytes of logits for {result.logits_rows} rows of {width}",
                field="result.logits",
            )
            raise failures.route_error(refusal, self._stages[-1].name)
        return np.frombuffer(result.logits, dtype="<f4").reshape(result.logits_rows, width)
