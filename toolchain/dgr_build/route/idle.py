"""Waiting until a worker has nothing left to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc

from dgr_build.errors import RouteError
from dgr_build.route import wire
from dgr_build.route.tls import channel

if TYPE_CHECKING:
    from dgr_build.route.workers import WorkerProcess

_ANSWER_S = 10.0
_POLL_S = 0.05


def slots_when_idle(worker: WorkerProcess, within_s: float) -> tuple[int, int]:
    """Return free and all slots of a worker, once all are free or the time for it is over.

    Args:
        worker: that serves.
        within_s: the time.

    Raises:
        RouteError: it does not answer.
    """
    deadline = time.monotonic() + within_s
    with channel(worker.address, worker.tls, [("grpc.enable_http_proxy", 0)]) as opened:
        stub = wire.pb2_grpc.ShardStub(opened)
        while True:
            try:
                status = stub.Status(wire.pb2.StatusRequest(), timeout=_ANSWER_S, wait_for_ready=True)
            except grpc.RpcError as error:
                raise RouteError(
                    f"stage {worker.stage.name} does not say how it is",
                    cause=str(error.details()),
                    remedy=f"its log is {worker.log}",
                ) from error
            if status.slots_free == status.slots_total or time.monotonic() > deadline:
                return int(status.slots_free), int(status.slots_total)
            time.sleep(_POLL_S)
