"""The client of a route: token ids in, token ids and logits out, prefilled again where a cache was lost."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import grpc
import numpy as np

from dgr_build import console
from dgr_build.documents.sampling import Sampling
from dgr_build.errors import RouteError, UsageError
from dgr_build.route import failures, wire
from dgr_build.route.agreement import require_route
from dgr_build.route.sampling import to_wire
from dgr_build.route.session import Epoch, Missed, Opening, StageLink
from dgr_build.route.tls import channel

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from dgr_build.route.agreement import Expected
    from dgr_build.route.tls import ClientTls

_DESCRIBE_S = 10.0
_MAX_EPOCHS = 5
_AGAIN_S = 0.1
_GRACE_S = 1.0  # a stage that sees a frame's time run out says so itself, a little later than it happens
_GREEDY = Sampling()
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # stages are addressed directly, whatever the environment says
    ("grpc.use_local_subchannel_pool", 1),  # no waiting for what another route found unreachable
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),  # a stream may wait long for its next frame
]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One token of a generation.

    Args:
        token: its id.
        logits: of the position it was chosen at, and before the first token those of the whole prompt;
            [rows, n_vocab], empty where none were asked for.
    """

    token: int
    logits: NDArray[np.float32]


class Unreachable(RouteError):  # noqa: N818 - says what is the matter
    """A stage does not say what it is."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(
            message,
            cause=cause,
            remedy="read the log of its worker: does it run, and did one authority sign both certificates?",
        )


class RouteClient:
    """A client of running stages, given by their addresses from head to tail. A context manager."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        results: Literal["direct", "chain"] = "direct",
        expected: Expected | None = None,
        tls: ClientTls | None = None,
        patience_s: float = 0.0,
    ) -> None:
        """Connect, ask every stage what it is, and check that together they are the route that is meant.

        Args:
            addresses: host and port of every stage.
            results: how results come back.
            expected: what the stages have to be, where that is known beforehand.
            tls: certificates; without them the stages are spoken to in plaintext.
            patience_s: how long a stage that is gone in the middle of a generation may take to come back.

        Raises:
            RouteError: a stage does not answer, is not what is expected, or the ranges do not join.
            UsageError: the certificates are not good.
        """
        self._tls = tls
        self._chain = results == "chain"
        self._expected = expected
        self._patience_s = patience_s
        self._stack, self.stages = self._connect(addresses)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def n_ubatch(self) -> int:
        """Rows of a frame at most."""
        return int(self.stages[0].about.numerics.n_ubatch)

    @property
    def mixed(self) -> bool:
        """Whether stages may differ in numerics, so that nothing is promised about bits."""
        return self._expected is not None and self._expected.mixed

    @property
    def n_ctx(self) -> int:
        """Positions of the largest session that every stage can hold."""
        return min(max(int(slots.n_ctx) for slots in stage.about.slot_classes) for stage in self.stages)

    @property
    def max_inflight(self) -> int:
        """Frames of a session that may be on their way at a time."""
        return min(max(1, int(stage.about.limits.max_inflight_frames)) for stage in self.stages)

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids of a text, by the head's tokenizer."""
        request = wire.pb2.TokenizeRequest(text=text, add_special=True)
        return list(self._call(self.stages[0], "Tokenize", request).token_ids)

    def detokenize(self, token_ids: Sequence[int]) -> bytes:
        """Return the text of token ids as bytes; a single token may end inside a character."""
        request = wire.pb2.DetokenizeRequest(token_ids=token_ids, unparse_special=True)
        return bytes(self._call(self.stages[0], "Detokenize", request).text)

    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        logits: bool = False,
        frame_s: float = 120.0,
        sampling: Sampling = _GREEDY,
    ) -> Generator[Step, None, None]:
        """Prefill a prompt and yield tokens as they come, each exactly once.

        Args:
            prompt: token ids, at least one.
            max_tokens: how many tokens to yield.
            logits: also bring back the logits of every prompt row and every step.
            frame_s: how long one frame may take through all stages.
            sampling: how the tail chooses tokens.

        Raises:
            UsageError: the prompt is empty or does not fit.
            RouteError: a stage refused or failed, or lost its cache again and again.
        """
        if not prompt or len(prompt) + max_tokens - 1 > self.n_ctx:  # the last token is not run
            raise UsageError(
                f"a prompt of {len(prompt)} tokens and {max_tokens} new ones do not fit",
                cause=f"a session holds 1 to {self.n_ctx} positions",
                remedy="shorten the prompt, or give the recipe a larger n_ctx",
            )
        run = _Run(self, list(prompt), logits=logits, frame_s=frame_s, sampling=to_wire(sampling))
        try:
            for _ in range(max_tokens):
                yield run.next()
        finally:
            run.close()

    def open(self, session: str, epoch: int, key: bytes, sampling: Any = None) -> Epoch:
        """Open one epoch of a session on every stage, and ask the tail for `sampling`, as on the wire."""
        opening = Opening(
            session=session,
            epoch=epoch,
            key=key,
            n_ctx=self.n_ctx,
            chain=self._chain,
            mixed=self.mixed,
            sampling=sampling,
        )
        return Epoch(self.stages, opening)

    def relink(self) -> bool:
        """Connect and ask anew; return whether a stage is another process than before.

        Where none is, or one does not answer in time, everything stays as it was.

        Raises:
            RouteError: a stage was replaced by one that does not belong in its place.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                stack, stages = self._connect([stage.address for stage in self.stages])
                break
            except Unreachable:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_AGAIN_S)
        if all(
            new.about.instance == old.about.instance for new, old in zip(stages, self.stages, strict=True)
        ):
            stack.close()
            return False
        self._stack.close()
        self._stack, self.stages = stack, stages
        return True

    def _connect(self, addresses: Sequence[str]) -> tuple[ExitStack, tuple[StageLink, ...]]:
        with ExitStack() as stack:
            stages = tuple(self._link(stack, *place) for place in enumerate(addresses))
            require_route(stages, self._expected)
            return stack.pop_all(), stages

    def _link(self, stack: ExitStack, index: int, address: str) -> StageLink:
        opened = stack.enter_context(channel(address, self._tls, _OPTIONS))
        stub = wire.pb2_grpc.ShardStub(opened)
        try:
            about = stub.Describe(wire.pb2.DescribeRequest(), timeout=_DESCRIBE_S)
        except grpc.RpcError as error:
            refusal = failures.read(error)
            raise Unreachable(
                f"stage {index} at {address} does not answer: {refusal.code}", refusal.text
            ) from error
        return StageLink(index=index, address=address, stub=stub, about=about)

    def _call(self, stage: StageLink, name: str, request: Any) -> Any:
        try:
            return getattr(stage.stub, name)(request, timeout=_DESCRIBE_S)
        except grpc.RpcError as error:
            raise failures.route_error(failures.read(error), stage.name) from error


class _Run:
    """A generation: what was accepted so far, and the epoch that holds it."""

    def __init__(
        self, client: RouteClient, prompt: list[int], *, logits: bool, frame_s: float, sampling: Any
    ) -> None:
        self._client = client
        self._sampling = sampling
        self._accepted = prompt
        self._n_prompt = len(prompt)
        self._logits = wire.pb2.LOGITS_ALL if logits else wire.pb2.LOGITS_NONE
        self._frame_s = frame_s
        self._session = f"run-{secrets.token_hex(8)}"
        self._key = secrets.token_bytes(32)
        self._number = 0
        self._epoch: Epoch | None = None
        self._answered = 0  # frames of this epoch
        self._held = 0  # positions of this epoch
        self._given = 0  # positions whose logits were handed out, in any epoch

    def next(self) -> Step:
        """Return the next token; prefills again where a cache was lost or a stage replaced."""
        for _ in range(_MAX_EPOCHS):
            try:
                step = self._step()
            except (Missed, RouteError) as loss:
                self.close()
                replaced = self._client.relink()
                if not (replaced or isinstance(loss, Missed)):
                    raise
                console.warn(f"{loss}; prefilling again under epoch {self._number + 1}")
                continue
            self._accepted.append(step.token)
            return step
        raise RouteError(
            f"the caches were lost {_MAX_EPOCHS} times in a row",
            cause="a stage is replaced or restarted again and again",
            remedy="read the logs of the workers",
        )

    def close(self) -> None:
        """Close the epoch, if one is open."""
        if self._epoch is not None:
            self._epoch.close()
            self._epoch = None

    def _step(self) -> Step:
        if self._epoch is None:
            self._number += 1
            self._epoch = self._client.open(self._session, self._number, self._key, self._sampling)
            self._answered = self._held = 0
        epoch = self._epoch
        limit_ms = max(1, int(self._frame_s * 1000))  # 0 would be no limit
        repeated = self._given - self._held  # rows of a prefill that were handed out before
        frames = self._frames()
        parts = []
        token = None
        ahead = 0
        for number, ids in enumerate(frames):
            while ahead < min(len(frames), number + self._client.max_inflight):  # all stages have work
                last = ahead == len(frames) - 1
                epoch.send(frames[ahead], want_token=last, logits=self._logits, remaining_ms=limit_ms)
                ahead += 1
            answer = epoch.receive(self._answered, self._frame_s + _GRACE_S)
            self._answered += 1
            self._held += len(ids)
            parts.append(answer.logits)
            token = answer.token
        if token is None:
            raise RouteError("the tail chose no token", cause="it was asked for one", remedy="report this")
        self._given = self._held
        return Step(token=token, logits=np.concatenate(parts)[repeated:])

    def _frames(self) -> list[list[int]]:
        """Return what the epoch does not hold yet; where bits are promised, cut as it was run at first.

        How many rows a frame has decides which kernels compute, and so the last bits.
        """
        size, end = self._client.n_ubatch, len(self._accepted) if self._client.mixed else self._n_prompt
        joined = self._accepted[self._held : end]
        frames = [joined[at : at + size] for at in range(0, len(joined), size)]
        return frames + [[token] for token in self._accepted[max(self._held, end) :]]
