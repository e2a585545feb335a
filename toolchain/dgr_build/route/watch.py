"""The stages of a running route as an onlooker sees them: what each says of itself, and how fast it works."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dgr_build.route import failures, wire
from dgr_build.route.tls import channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.route.tls import ClientTls

_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),  # a stage that is back is seen soon
]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a stage did between two looks.

    Args:
        load: share of the time that the engine computed, 0 to 1.
        tokens: rows executed a second.
        bytes_in: bytes of frames taken a second.
        bytes_out: bytes of frames and results sent a second.
    """

    load: float
    tokens: float
    bytes_in: float
    bytes_out: float


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at one stage.

    Args:
        address: host and port.
        problem: why it does not answer; "" where it does, else nothing below is known.
        health: as the worker's health service says it: SERVING, NOT_SERVING.
        status: the worker's StatusResponse.
        rates: since the look before, None where there was none at this process.
    """

    address: str
    problem: str = ""
    health: str = ""
    status: Any = None
    rates: Rates | None = None

    @property
    def state(self) -> str:
        """In one word: serving, draining, or what its health says; "no answer" where there is none."""
        if self.problem:
            return "no answer"
        if self.status.draining:
            return "draining"
        return "serving" if self.health == "SERVING" else self.health.lower().replace("_", " ")


class Watch:
    """Looks at the stages of a route again and again. A context manager."""

    def __init__(
        self, addresses: Sequence[str], *, tls: ClientTls | None = None, patience_s: float = 2.0
    ) -> None:
        """Prepare to look; nothing is connected yet.

        Args:
            addresses: host and port of every stage, from head to tail.
            tls: certificates; without them the stages are spoken to in plaintext.
            patience_s: how long a look waits for an answer, for all stages together.

        Raises:
            UsageError: the certificates are not good.
        """
        self._patience_s = patience_s
        self._before: dict[str, Any] = {}  # the last status of each address
        with ExitStack() as stack:
            self._stages = [
                (address, stack.enter_context(channel(address, tls, _OPTIONS))) for address in addresses
            ]
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self) -> tuple[Look, ...]:
        """Ask all stages at once and return what they say, in their order."""
        deadline = time.monotonic() + self._patience_s
        asked = [(address, *self._ask(opened)) for address, opened in self._stages]
        return tuple(self._read(address, status, health, deadline) for address, status, health in asked)

    def _ask(self, opened: Any) -> tuple[Any, Any]:
        status = wire.pb2_grpc.ShardStub(opened).Status
        health = health_pb2_grpc.HealthStub(opened).Check
        return (
            status.future(wire.pb2.StatusRequest(), timeout=self._patience_s),
            health.future(health_pb2.HealthCheckRequest(), timeout=self._patience_s),
        )

    def _read(self, address: str, status: Any, health: Any, deadline: float) -> Look:
        try:
            said = status.result(timeout=max(0.0, deadline - time.monotonic()) + 0.1)
            well = health.result(timeout=max(0.0, deadline - time.monotonic()) + 0.1)
        except (grpc.RpcError, grpc.FutureTimeoutError) as error:
            self._before.pop(address, None)
            return Look(address=address, problem=_problem(error))
        before = self._before.get(address)
        self._before[address] = said
        return Look(
            address=address,
            health=health_pb2.HealthCheckResponse.ServingStatus.Name(well.status),
            status=said,
            rates=rates_between(before, said),
        )


def rates_between(before: Any, now: Any) -> Rates | None:
    """Return what happened between two statuses of one process, None where they are not of one."""
    if before is None or before.instance != now.instance or now.uptime_us <= before.uptime_us:
        return None
    seconds = (now.uptime_us - before.uptime_us) / 1e6

    def rate(name: str) -> float:
        return float((getattr(now, name) - getattr(before, name)) / seconds)

    return Rates(
        load=min(1.0, rate("busy_us") / 1e6),  # a call is counted when it ends, and may have begun before
        tokens=rate("executed_rows"),
        bytes_in=rate("bytes_in"),
        bytes_out=rate("bytes_out"),
    )


def _problem(error: Any) -> str:
    if isinstance(error, grpc.FutureTimeoutError):
        return "DEADLINE_EXCEEDED"
    refusal = failures.read(error)
    return f"{refusal.code}: {refusal.text}"
