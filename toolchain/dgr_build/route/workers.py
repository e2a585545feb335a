"""The workers of a recipe as processes of this machine: started, waited for, stopped."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dgr_build import console
from dgr_build.errors import RouteError
from dgr_build.process import Child
from dgr_build.route import failures
from dgr_build.route.tls import ClientTls, channel
from dgr_build.workspace import staging

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.documents.recipe import Recipe, Stage
    from dgr_build.route.program import Program
    from dgr_build.workspace import Workspace

_POLL_S = 0.02
_LOG_LINES = 12
_DEATH_S = 0.5  # a process ends a little after its connections
_DIRECT = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]


@dataclass(frozen=True, kw_only=True)
class WorkerProcess:
    """A worker that serves.

    Args:
        stage: what it owns.
        address: host and port.
        child: the process.
        log: where its words go.
        program: what it runs.
        tls: how it is spoken to, None in plaintext.
    """

    stage: Stage
    address: str
    child: Child
    log: Path
    program: Program
    tls: ClientTls | None = None


def arguments(program: Program, recipe: Recipe, stage: Stage, artifact: Artifact) -> list[str]:
    """Return the command line of one stage's worker, but for where it listens."""
    numerics = recipe.numerics
    options = {
        "model": artifact.path,
        "artifact-digest": artifact.digest,
        "first": stage.first,
        "last": stage.last,
        "device": program.device,
        "n-ctx": recipe.n_ctx,
        "slots": recipe.n_slots,
        "mode": recipe.worker_mode,
        "n-ubatch": numerics.n_ubatch,
        "threads": numerics.n_threads,
        "threads-batch": numerics.n_threads_batch,
        "flash-attn": numerics.flash_attn,
        "type-k": numerics.type_k,
        "type-v": numerics.type_v,
        **_tls_options(recipe),
    }
    return [
        str(program.path),
        *(word for name, value in options.items() for word in (f"--{name}", str(value))),
    ]


def _tls_options(recipe: Recipe) -> dict[str, Path]:
    if recipe.tls is None:
        return {}
    return {
        "tls-cert": recipe.tls.worker_cert,
        "tls-key": recipe.tls.worker_key,
        "tls-client-ca": recipe.tls.ca,
    }


@contextmanager
def workers(
    ws: Workspace,
    recipe: Recipe,
    programs: Mapping[str, Program],
    artifact: Artifact,
) -> Iterator[list[WorkerProcess]]:
    """Run one worker for each stage of a recipe, on free loopback ports, while the block runs.

    Args:
        ws: the workspace; logs go to its logs/route.
        recipe: the stages and their settings.
        programs: the worker of each lane.
        artifact: the model.

    Raises:
        RouteError: a worker ends or does not serve in time; the end of its log is in the cause. One that the
            block raises is completed by the workers that have ended.
        UsageError: the recipe's certificates are not good.
    """
    logs = ws.logs("route") / recipe.name
    logs.mkdir(parents=True, exist_ok=True)
    tls = ClientTls.of(recipe.tls)
    if tls is not None:
        tls.credentials()  # before anything is started
    with ExitStack() as stack:
        folder = stack.enter_context(staging(_folder(ws), recipe.name))
        started: list[tuple[Stage, Child, Path, Path]] = []
        for stage in recipe.stages:
            log, port = logs / f"{stage.name}.log", folder / f"{stage.name}.port"
            program = programs[stage.lane]
            argv = [*arguments(program, recipe, stage, artifact), "--port-file", str(port)]
            # the whole folder of the model: a split one has parts beside the first
            read = {program.path.parent, artifact.path.parent}
            read |= {path.parent for path in _tls_options(recipe).values()}
            entered = program.enter(argv, read=sorted(read), write=(folder,))
            log.unlink(missing_ok=True)
            child = _start(entered, program, log)
            stack.callback(child.stop)
            stack.callback(child.signal, signal.SIGTERM)  # first all are asked, then each is waited for
            started.append((stage, child, log, port))
        deadline = time.monotonic() + max(program.start_s for program in programs.values())
        serving = []
        with console.progress("starting workers", len(started), unit="workers") as task:
            for stage, child, log, port in started:
                address = _wait_for_port(stage, child, log, port, deadline)
                with channel(address, tls, _DIRECT) as opened:
                    _wait_for_health(stage, child, log, opened, deadline)
                program = programs[stage.lane]
                serving.append(
                    WorkerProcess(
                        stage=stage, address=address, child=child, log=log, program=program, tls=tls
                    )
                )
                task.advance(1)
        try:
            yield serving
        except RouteError as error:
            error.cause = "\n".join([error.cause, *_ended(serving)])
            raise


def running(ws: Workspace, recipe: Recipe) -> list[str]:
    """Return the addresses of the workers that run for a recipe from this clone, from head to tail.

    Of several such routes it is the one that was started last. Empty where there is none.
    """
    folders = [
        folder for folder in _folder(ws).glob(f".staging-{recipe.name}-*") if _complete(folder, recipe)
    ]
    if not folders:
        return []
    last = max(folders, key=lambda folder: folder.stat().st_mtime_ns)
    return [_address(last / f"{stage.name}.port") for stage in recipe.stages]


def _complete(folder: Path, recipe: Recipe) -> bool:
    return all((folder / f"{stage.name}.port").is_file() for stage in recipe.stages)


def _folder(ws: Workspace) -> Path:
    return ws.root / "run"


def _address(port: Path) -> str:
    return f"127.0.0.1:{port.read_text().strip()}"


def started_again(worker: WorkerProcess) -> WorkerProcess:
    """Start a worker that has ended once more, where it listened, and wait until it serves.

    The caller stops it: the block that started the first knows nothing of it.

    Raises:
        RouteError: it ends or does not serve in time.
    """
    child = _start([*worker.child.argv, "--listen", worker.address], worker.program, worker.log)
    again = replace(worker, child=child)
    try:
        with channel(worker.address, worker.tls, _DIRECT) as opened:
            _wait_for_health(
                worker.stage, child, worker.log, opened, time.monotonic() + worker.program.start_s
            )
    except BaseException:
        child.stop()
        raise
    return again


def _start(argv: Sequence[str], program: Program, log: Path) -> Child:
    with log.open("ab") as out:
        return Child(argv, stdout=out, stderr=out, env={**os.environ, **program.variables})


def _ended(serving: list[WorkerProcess]) -> list[str]:
    deadline = time.monotonic() + _DEATH_S
    while time.monotonic() < deadline and all(worker.child.poll() is None for worker in serving):
        time.sleep(_POLL_S)
    return [
        f"the worker of {_name(worker.stage)} ended with {worker.child.poll()}: {_last_words(worker.log)}"
        for worker in serving
        if worker.child.poll() is not None
    ]


def _wait_for_port(stage: Stage, child: Child, log: Path, port: Path, deadline: float) -> str:
    while not port.exists():
        _require_alive(stage, child, log, deadline)
        time.sleep(_POLL_S)
    return _address(port)


def _wait_for_health(stage: Stage, child: Child, log: Path, opened: Any, deadline: float) -> None:
    stub = health_pb2_grpc.HealthStub(opened)
    answer = ""
    while True:
        _require_alive(stage, child, log, deadline, answer)
        try:
            health = stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.RpcError as error:
            answer = failures.read(error).text  # over TLS it may never get better
        else:
            if health.status == health_pb2.HealthCheckResponse.SERVING:
                return
        time.sleep(_POLL_S)


def _require_alive(stage: Stage, child: Child, log: Path, deadline: float, answer: str = "") -> None:
    code = child.poll()
    if code is None and time.monotonic() < deadline:
        return
    how = f"ended with {code}" if code is not None else "does not serve in time"
    raise RouteError(
        f"the worker of {_name(stage)} {how}",
        cause="\n".join(filter(None, [_last_words(log), answer])),
        remedy=f"its whole log is {log}",
    )


def _name(stage: Stage) -> str:
    return f"stage {stage.name} [{stage.first}, {stage.last})"


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:]) or "it said nothing"
