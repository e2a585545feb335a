"""The programs that measure, ours and upstream's: how they are started, and what of their words counts."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dgr_build.errors import CheckError, RouteError
from dgr_build.flows.bench_ground import started
from dgr_build.process import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dgr_build.lanes.upstream_tools import UpstreamTools

_SERVE_S = 300.0
_POLL_S = 0.02
_LOG_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What sessions do on a route.

    Args:
        sessions: how many, at once.
        prompt: rows of each prompt.
        decode: tokens of each afterwards.
    """

    sessions: int = 1
    prompt: int = 1
    decode: int = 0


@dataclass(frozen=True, kw_only=True)
class Times:
    """How long it took, in seconds.

    Args:
        prompt: all prompts, from the first start to the last end.
        decode: all tokens, likewise.
        tokens: each token of every session.
    """

    prompt: float
    decode: float
    tokens: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class FrameTime:
    """A frame to a stage and its answer.

    Args:
        n_bytes: of the message.
        seconds: from sending it to its result.
        computed: of that, what the stage says it computed, in seconds.
    """

    n_bytes: int
    seconds: float
    computed: float


@dataclass(frozen=True, kw_only=True)
class Client:
    """Our client, dgr-route-bench."""

    program: Path

    def run(self, stages: Sequence[str], shape: Shape) -> Times:
        """Run sessions on the stages at these addresses.

        Raises:
            CheckError: a stage refused or failed.
        """
        said = self._ask(
            "run", "--stages", ",".join(stages), "--sessions", shape.sessions, "--prefill", shape.prompt,
            "--decode", shape.decode,
        )  # fmt: skip
        whole = next(line for line in said if line["event"] == "run")
        return Times(
            prompt=whole["prefill_us"] / 1e6,
            decode=whole["decode_us"] / 1e6,
            tokens=tuple(line["us"] / 1e6 for line in said if line["event"] == "token"),
        )

    def own_bytes(self, address: str) -> int:
        """Return the bytes of the tensors that a stage owns."""
        return int(self._ask("describe", "--to", address)[0]["own_tensor_bytes"])

    def frames(self, address: str, rows: int, count: int) -> tuple[FrameTime, ...]:
        """Send frames to a tail alone."""
        return tuple(
            FrameTime(n_bytes=line["bytes"], seconds=line["us"] / 1e6, computed=line["compute_us"] / 1e6)
            for line in self._ask("frames", "--to", address, "--rows", rows, "--count", count)
        )

    def echo(self, address: str, n_bytes: int, count: int) -> tuple[float, ...]:
        """Return the seconds of messages to a bare gRPC echo."""
        return self._echoes("echo", address, n_bytes, count)

    def tcp_echo(self, address: str, n_bytes: int, count: int) -> tuple[float, ...]:
        """Return the seconds of messages to a TCP echo and back."""
        return self._echoes("tcp-echo", address, n_bytes, count)

    @contextmanager
    def echo_server(self, folder: Path) -> Iterator[str]:
        """Run a bare gRPC echo and yield its address."""
        with self._serving(["echo-server"], folder) as addresses:
            yield addresses[0]

    @contextmanager
    def proxy(self, targets: Sequence[str], delay_ms: float, folder: Path) -> Iterator[tuple[str, ...]]:
        """Delay all bytes to and from targets; yield an address for each, and one of a TCP echo behind it."""
        words = [word for target in targets for word in ("--to", target)]
        with self._serving(["proxy", *words, "--delay-us", str(round(delay_ms * 1000))], folder) as addresses:
            yield addresses

    def _echoes(self, kind: str, address: str, n_bytes: int, count: int) -> tuple[float, ...]:
        said = self._ask(kind, "--to", address, "--bytes", n_bytes, "--count", count)
        return tuple(line["us"] / 1e6 for line in said)

    def _ask(self, *words: str | int) -> list[dict[str, Any]]:
        return json_lines(started([self.program, *(str(word) for word in words)]))

    @contextmanager
    def _serving(self, words: Sequence[str], folder: Path) -> Iterator[tuple[str, ...]]:
        port_file, log = folder / f"{words[0]}.port", folder / f"{words[0]}.log"
        port_file.unlink(missing_ok=True)
        with log.open("wb") as out:
            child = Child([self.program, *words, "--port-file", port_file], stdout=out, stderr=out)
        with _ended(child):
            wait_until(port_file.exists, child, words[0], log)
            yield tuple(f"127.0.0.1:{port}" for port in port_file.read_text().split())


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """Upstream's programs, on one model, in the numerics that workers are measured in.

    Args:
        tools: where they lie.
        model: the model's file.
    """

    tools: UpstreamTools
    model: Path

    def bench(self, *, threads: int, prompt: int = 0, generate: int = 0, rpc: Sequence[str] = ()) -> float:
        """Return tokens a second of one test of llama-bench: a prompt, or tokens one after another.

        Args:
            threads: of the process itself.
            prompt: rows of the prompt, 0 for none.
            generate: tokens, 0 for none.
            rpc: addresses of RPC servers; all layers go to them, an equal share each.
        """
        away = ["-rpc", ",".join(rpc), "-ngl", "99", "-sm", "layer", "-ts", "/".join("1" for _ in rpc)]
        said = started(
            [self.tools.bench, "-m", self.model, "-t", str(threads), "-p", str(prompt), "-n", str(generate),
             "-fa", "on", "-r", "1", "-o", "jsonl", *(away if rpc else [])]
        )  # fmt: skip
        test = json_lines(said)[-1]
        return float((prompt + generate) / (test["samples_ns"][-1] / 1e9))

    def batched(self, *, threads: int, sessions: int, prompt: int, generate: int) -> float:
        """Return tokens a second of all sequences that llama-batched-bench decodes at once."""
        said = started(
            [self.tools.batched_bench, "-m", self.model, "-t", str(threads), "-tb", str(threads),
             "-c", str(_padded(sessions * (prompt + generate))), "-npp", str(prompt), "-ntg", str(generate),
             "-npl", str(sessions), "-fa", "on", "--output-format", "jsonl"]
        )  # fmt: skip
        return float(json_lines(said)[-1]["speed_tg"])

    @contextmanager
    def rpc_servers(self, count: int, threads: int, folder: Path) -> Iterator[tuple[str, ...]]:
        """Run RPC servers on this machine's CPU and yield their addresses."""
        with ExitStack() as stack:
            addresses = []
            for number in range(count):
                port, log = _free_port(), folder / f"rpc-server-{number}.log"
                argv: list[str | Path] = [
                    self.tools.rpc_server, "-H", "127.0.0.1", "-p", str(port), "-t", str(threads),
                    "-d", "CPU",
                ]  # fmt: skip
                with log.open("wb") as out:
                    child = Child(argv, stdout=out, stderr=out)
                stack.enter_context(_ended(child))
                wait_until(partial(_listens, port), child, "the RPC server", log)
                addresses.append(f"127.0.0.1:{port}")
            yield tuple(addresses)


def json_lines(text: str) -> list[dict[str, Any]]:
    """Return the objects of a program that prints one a line; other lines are passed over.

    Raises:
        CheckError: there is none.
    """
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    if not found:
        raise CheckError(
            "a program that measures printed no result",
            cause=text[-500:] or "it printed nothing",
            remedy="run it by hand; --verbose shows its command line",
        )
    return found


def _padded(positions: int) -> int:
    """Return a context that upstream takes as it is."""
    return max(256, -(-positions // 256) * 256)


@contextmanager
def _ended(child: Child) -> Iterator[None]:
    try:
        yield
    finally:
        child.stop()


def wait_until(ready: Callable[[], bool], child: Child, what: str, log: Path) -> None:
    """Wait until a program that was started serves.

    Raises:
        RouteError: it ends, or takes too long; the end of its log is in the cause.
    """
    deadline = time.monotonic() + _SERVE_S
    while not ready():
        if child.poll() is not None or time.monotonic() > deadline:
            raise RouteError(
                f"{what} does not serve",
                cause="\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:]),
                remedy="--verbose shows its command line; run it by hand",
            )
        time.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
