"""Where workers are measured: routes, wires with a delay, upstream's programs, and what they are set to."""

from __future__ import annotations

import statistics
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dgr_build.artifacts.bench_models import HEAVY, LIGHT, BenchModel
from dgr_build.documents.recipe import Model, ModelFile, Numerics, Recipe, Stage
from dgr_build.flows.bench_worker_cold import bytes_read_to_serve, make_cold
from dgr_build.flows.bench_worker_programs import Client, Shape, Upstream
from dgr_build.recipes.placement import even_cuts
from dgr_build.route.workers import arguments, workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.route.program import Program
    from dgr_build.workspace import Workspace

LANE = "cpu"
_UPSTREAM_UBATCH = 512  # upstream's default
_ECHOES = 50
_COLD_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The sizes that are measured with.

    Args:
        model: the model of all rows but frames.
        prompt: rows of a prompt.
        frames: that a prompt is divided into on a route of several stages.
        decode: tokens of one measurement.
        stages: lengths of routes whose decoding is measured.
        whole_threads: of the whole worker beside llama-bench.
        sessions: at once.
        session_prompt: rows of each session's prompt.
        delays_ms: one way, of the time over the floor.
        rpc_delays_ms: one way, beside RPC servers.
        frame_rows: of the frames whose overhead is measured.
        frame_count: frames of one measurement.
    """

    model: BenchModel = HEAVY
    prompt: int = 512
    frames: int = 16
    decode: int = 32
    stages: tuple[int, ...] = (2, 3, 4)
    whole_threads: int = 1
    sessions: tuple[int, ...] = (1, 2, 4, 8)
    session_prompt: int = 16
    delays_ms: tuple[float, ...] = (0, 5, 20, 80)
    rpc_delays_ms: tuple[float, ...] = (0, 5, 20)
    frame_rows: tuple[int, ...] = (1, 16, 256, 1024)
    frame_count: int = 50

    @staticmethod
    def quick() -> Settings:
        """Return settings that show within minutes that everything works."""
        return Settings(
            model=LIGHT,
            prompt=128,
            decode=8,
            stages=(2,),
            sessions=(1, 2),
            delays_ms=(0, 5),
            rpc_delays_ms=(0, 5),
            frame_rows=(1, 256),
            frame_count=10,
        )

    def told(self) -> dict[str, str]:
        """Return the settings as a document states them."""
        return {
            name: value.name if isinstance(value, BenchModel) else str(value)
            for name, value in vars(self).items()
        }


@dataclass(frozen=True, kw_only=True)
class Route:
    """Workers that serve, as a client reaches them.

    Args:
        client: ours.
        addresses: from head to tail.
    """

    client: Client
    addresses: tuple[str, ...]

    def decode(self, tokens: int, *, sessions: int = 1, prompt: int = 1) -> float:
        """Return tokens a second, of all sessions together."""
        times = self.client.run(self.addresses, Shape(sessions=sessions, prompt=prompt, decode=tokens))
        return sessions * tokens / times.decode

    def token_ms(self, tokens: int) -> float:
        """Return milliseconds from a token sent to the next one known, over some tokens."""
        times = self.client.run(self.addresses, Shape(decode=tokens))
        return statistics.fmean(times.tokens) * 1e3

    def prefill(self, rows: int) -> float:
        """Return rows of a prompt a second."""
        return rows / self.client.run(self.addresses, Shape(prompt=rows)).prompt


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A route behind a delay.

    Args:
        route: its stages are reached, and reach each other, through the delay.
        echo: the address of a TCP echo behind the same delay.
    """

    route: Route
    echo: str

    def one_way_ms(self, n_bytes: int) -> float:
        """Return what the wire itself takes, one way."""
        return statistics.median(self.route.client.tcp_echo(self.echo, n_bytes, _ECHOES)) * 1e3 / 2


@dataclass(frozen=True, kw_only=True)
class Rpc:
    """Upstream's RPC servers, and llama-bench on them."""

    upstream: Upstream
    servers: tuple[str, ...]

    def speed(self, *, prompt: int = 0, generate: int = 0) -> float:
        """Return tokens a second of one test."""
        return self.upstream.bench(threads=1, prompt=prompt, generate=generate, rpc=self.servers)


@dataclass(frozen=True, kw_only=True)
class Frames:
    """A tail that takes frames, and a bare echo beside it."""

    client: Client
    tail: str
    echo: str
    count: int

    def overhead_us(self, rows: int) -> float:
        """Return what a frame takes besides computing: the median."""
        times = self.client.frames(self.tail, rows, self.count)
        return statistics.median(one.seconds - one.computed for one in times) * 1e6

    def n_bytes(self, rows: int) -> int:
        """Return the size of a frame's message."""
        return self.client.frames(self.tail, rows, 1)[0].n_bytes

    def echo_us(self, n_bytes: int) -> float:
        """Return what a bare gRPC echo takes for as many bytes: the median."""
        return statistics.median(self.client.echo(self.echo, n_bytes, self.count)) * 1e6


@dataclass(frozen=True, kw_only=True)
class ColdLoad:
    """What a stage read to serve, and what it owns, in bytes."""

    read: int
    own: int


@dataclass(frozen=True, kw_only=True)
class WorkerGround:
    """Everything that rows are measured with.

    Args:
        ws: the workspace.
        folder: for logs and port files of programs.
        settings: sizes.
        worker: the worker of the lane.
        artifact: the model of most rows.
        seam: the model of the frames.
        client: our client.
        upstream: upstream's programs.
    """

    ws: Workspace
    folder: Path
    settings: Settings
    worker: Program
    artifact: Artifact
    seam: Artifact
    client: Client
    upstream: Upstream

    @property
    def boundary_bytes(self) -> int:
        """The bytes that cross between stages for a token."""
        return self.artifact.manifest.boundary_width * 4

    @property
    def header_bytes(self) -> int:
        """The bytes of the model's file before the first tensor."""
        return min(tensor.offset for tensor in self.artifact.manifest.tensors)

    @contextmanager
    def route(
        self, stages: int, *, threads: int = 1, sessions: int = 1, positions: int = 0, frame: int = 0
    ) -> Iterator[Route]:
        """Run a route of the model, evenly cut.

        Args:
            stages: how many.
            threads: of each stage.
            sessions: that it holds at once.
            positions: of each; by default what a prompt or decoding needs.
            frame: rows of a frame; by default a prompt is as many frames as the settings say.
        """
        settings = self.settings
        recipe = _recipe(
            self.artifact,
            stages,
            _numerics(frame or settings.prompt // settings.frames, threads),
            n_ctx=positions or max(settings.prompt, settings.decode) + 1,
            n_slots=sessions,
        )
        with workers(self.ws, recipe, {LANE: self.worker}, self.artifact) as serving:
            yield Route(client=self.client, addresses=tuple(one.address for one in serving))

    @contextmanager
    def delayed(self, route: Route, delay_ms: float) -> Iterator[Wire]:
        """Put a delay before every stage of a route."""
        with self.client.proxy(route.addresses, delay_ms, self.folder) as addresses:
            yield Wire(route=replace(route, addresses=addresses[:-1]), echo=addresses[-1])

    @contextmanager
    def rpc(self, delay_ms: float | None) -> Iterator[Rpc]:
        """Run two RPC servers of one thread each, behind a delay unless it is None."""
        with ExitStack() as stack:
            servers = stack.enter_context(self.upstream.rpc_servers(2, 1, self.folder))
            if delay_ms is not None:
                servers = stack.enter_context(self.client.proxy(servers, delay_ms, self.folder))[:-1]
            yield Rpc(upstream=self.upstream, servers=servers)

    @contextmanager
    def frames(self) -> Iterator[Frames]:
        """Run a tail with hardly anything to compute, and a bare echo."""
        most = max(self.settings.frame_rows)
        recipe = _recipe(self.seam, 2, _numerics(most), n_ctx=2 * most)
        with ExitStack() as stack:
            serving = stack.enter_context(workers(self.ws, recipe, {LANE: self.worker}, self.seam))
            echo = stack.enter_context(self.client.echo_server(self.folder))
            yield Frames(
                client=self.client, tail=serving[-1].address, echo=echo, count=self.settings.frame_count
            )

    def cold_load(self, stages: int, index: int) -> ColdLoad:
        """Start one stage of a route while nothing of the model is in memory."""
        recipe = _recipe(self.artifact, stages, _numerics(_COLD_ROWS), n_ctx=_COLD_ROWS)
        argv = arguments(self.worker, recipe, recipe.stages[index], self.artifact)
        make_cold(self.artifact.path)
        read, address, child = bytes_read_to_serve(argv, self.folder)
        try:
            return ColdLoad(read=read, own=self.client.own_bytes(address))
        finally:
            child.stop()


def _recipe(artifact: Artifact, stages: int, numerics: Numerics, *, n_ctx: int, n_slots: int = 1) -> Recipe:
    ranges = even_cuts(artifact.manifest.n_layer, stages)
    return Recipe(
        name=f"bench-{stages}-of-{numerics.n_threads}",
        purpose="measured by dgr-build bench worker",
        model=Model(file=ModelFile(path=artifact.path, digest=artifact.digest)),
        stages=tuple(
            Stage(name=f"stage-{number}", first=one.first, last=one.last, lane=LANE)
            for number, one in enumerate(ranges)
        ),
        n_ctx=max(n_ctx, numerics.n_ubatch),
        n_slots=n_slots,
        numerics=numerics,
    )


def _numerics(n_ubatch: int, threads: int = 1) -> Numerics:
    # as upstream chooses by itself
    return Numerics(n_ubatch=n_ubatch, n_threads=threads, n_threads_batch=threads, flash_attn="on")


def upstream_frame(settings: Settings) -> int:
    """Return how many rows upstream computes at once of a prompt, by default."""
    return min(_UPSTREAM_UBATCH, settings.prompt)
