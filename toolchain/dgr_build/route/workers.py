"""The workers of a recipe as processes of this machine: started, waited for, stopped."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dgr_build import console
from dgr_build.errors import RouteError
from dgr_build.process import Child
from dgr_build.workspace import staging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.documents.recipe import Recipe, Stage
    from dgr_build.workspace import Workspace

_POLL_S = 0.02
_LOG_LINES = 12


@dataclass(frozen=True, kw_only=True)
class WorkerProcess:
    """A worker that serves.

    Args:
        stage: what it owns.
        address: host and port.
        child: the process.
        log: where its words go.
    """

    stage: Stage
    address: str
    child: Child
    log: Path


def arguments(worker: Path, recipe: Recipe, stage: Stage, artifact: Artifact) -> list[str]:
    """Return the command line of one stage's worker, but for where it listens."""
    numerics = recipe.numerics
    options = {
        "model": artifact.path,
        "artifact-digest": artifact.digest,
        "first": stage.first,
        "last": stage.last,
        "n-ctx": recipe.n_ctx,
        "slots": recipe.n_slots,
        "n-ubatch": numerics.n_ubatch,
        "threads": numerics.n_threads,
        "threads-batch": numerics.n_threads_batch,
        "flash-attn": numerics.flash_attn,
        "type-k": numerics.type_k,
        "type-v": numerics.type_v,
    }
    return [str(worker), *(word for name, value in options.items() for word in (f"--{name}", str(value)))]


@contextmanager
def workers(
    ws: Workspace, recipe: Recipe, programs: dict[str, Path], artifact: Artifact, *, start_s: float = 120
) -> Iterator[list[WorkerProcess]]:
    """Run one worker for each stage of a recipe, on free loopback ports, while the block runs.

    Args:
        ws: the workspace; logs go to its logs/route.
        recipe: the stages and their settings.
        programs: the worker of each lane.
        artifact: the model.
        start_s: how long loading may take.

    Raises:
        RouteError: a worker ends or does not serve in time; the end of its log is in the cause.
    """
    logs = ws.logs("route") / recipe.name
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = stack.enter_context(staging(ws.root / "run", recipe.name))
        started: list[tuple[Stage, Child, Path, Path]] = []
        for stage in recipe.stages:
            log, port = logs / f"{stage.name}.log", folder / f"{stage.name}.port"
            argv = arguments(programs[stage.lane], recipe, stage, artifact)
            with log.open("wb") as out:
                child = Child([*argv, "--port-file", port], stdout=out, stderr=out)
            stack.callback(child.stop)
            started.append((stage, child, log, port))
        deadline = time.monotonic() + start_s
        serving = []
        with console.progress("starting workers", len(started), unit="workers") as task:
            for stage, child, log, port in started:
                address = _wait_for_port(stage, child, log, port, deadline)
                _wait_for_health(stage, child, log, address, deadline)
                serving.append(WorkerProcess(stage=stage, address=address, child=child, log=log))
                task.advance(1)
        yield serving


def _wait_for_port(stage: Stage, child: Child, log: Path, port: Path, deadline: float) -> str:
    while not port.exists():
        _require_alive(stage, child, log, deadline)
        time.sleep(_POLL_S)
    return f"127.0.0.1:{port.read_text().strip()}"


def _wait_for_health(stage: Stage, child: Child, log: Path, address: str, deadline: float) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            _require_alive(stage, child, log, deadline)
            try:
                answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
            except grpc.RpcError:
                time.sleep(_POLL_S)
                continue
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            time.sleep(_POLL_S)


def _require_alive(stage: Stage, child: Child, log: Path, deadline: float) -> None:
    code = child.poll()
    if code is None and time.monotonic() < deadline:
        return
    said = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
    how = f"ended with {code}" if code is not None else "does not serve in time"
    raise RouteError(
        f"the worker of stage {stage.name} [{stage.first}, {stage.last}) {how}",
        cause=said or "it said nothing",
        remedy=f"its whole log is {log}",
    )
