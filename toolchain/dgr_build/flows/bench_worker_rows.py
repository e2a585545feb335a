"""The comparisons of the shard worker: each group yields its pairings while what they need is running."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from dgr_build.documents.bench_worker import Bound
from dgr_build.flows.bench_worker_ground import upstream_frame
from dgr_build.flows.bench_worker_measure import Pairing, Side

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dgr_build.flows.bench_worker_ground import Frames, Route, Rpc, Wire, WorkerGround

_SPLIT = 2  # stages of the rows that need one split only
_COLD_STAGES = 3  # a head, a middle and a tail
_COLD_NAMES = ("head", "middle", "tail")
_COLD_ROOM = 16 << 20
_FLOOR_MS, _FLOOR_PART = 0.5, 0.03
_SMALL_MESSAGE = 256  # a frame to the head, a result to the client


def whole(ground: WorkerGround) -> Iterator[Pairing]:
    """Yield the whole worker beside llama-bench."""
    settings, threads = ground.settings, ground.settings.whole_threads
    with ground.route(1, threads=threads, frame=upstream_frame(settings)) as ours:
        yield Pairing(
            name="whole-decode",
            ours=Side(
                what=f"{settings.decode} tokens of a whole worker with {threads} threads",
                measure=lambda: ours.decode(settings.decode),
            ),
            theirs=Side(
                what=f"llama-bench -n {settings.decode} with as many threads",
                measure=lambda: ground.upstream.bench(threads=threads, generate=settings.decode),
            ),
            unit="tokens/s",
            bound=Bound(at_least=0.98),
        )
        yield Pairing(
            name="whole-prefill",
            ours=Side(
                what=f"a prompt of {settings.prompt} rows on a whole worker with {threads} threads",
                measure=lambda: ours.prefill(settings.prompt),
            ),
            theirs=Side(
                what=f"llama-bench -p {settings.prompt} with as many threads",
                measure=lambda: ground.upstream.bench(threads=threads, prompt=settings.prompt),
            ),
            unit="tokens/s",
            bound=Bound(at_least=0.98),
            warm_up=False,
        )


def stages(ground: WorkerGround) -> Iterator[Pairing]:
    """Yield decoding on routes of several stages beside a whole worker."""
    tokens = ground.settings.decode
    with ground.route(1) as one:
        for count in ground.settings.stages:
            with ground.route(count) as split:
                yield Pairing(
                    name=f"stages-{count}-decode",
                    ours=Side(
                        what=f"{tokens} tokens on {count} stages of one thread each",
                        measure=lambda route=split: route.decode(tokens),  # type: ignore[misc]
                    ),
                    theirs=Side(
                        what="the same on a whole worker with one thread", measure=lambda: one.decode(tokens)
                    ),
                    unit="tokens/s",
                    bound=Bound(at_least=0.97),
                )


def prefill(ground: WorkerGround) -> Iterator[Pairing]:
    """Yield the prompt on two stages beside a whole worker with as many threads in sum."""
    settings = ground.settings
    with ground.route(_SPLIT) as split, ground.route(1, threads=_SPLIT) as one:
        yield Pairing(
            name="stages-2-prefill",
            ours=Side(
                what=f"a prompt of {settings.frames} equal frames, {settings.prompt} rows in all, on two "
                "stages of one thread each",
                measure=lambda: split.prefill(settings.prompt),
            ),
            theirs=Side(
                what="the same frames on a whole worker with two threads",
                measure=lambda: one.prefill(settings.prompt),
            ),
            unit="tokens/s",
            bound=Bound(at_least=0.90),
            warm_up=False,
        )


def rpc(ground: WorkerGround) -> Iterator[Pairing]:
    """Yield two stages beside upstream's RPC servers, directly and with a delay."""
    with ground.route(_SPLIT) as split:
        for delay in ground.settings.rpc_delays_ms:
            if not delay:
                with ground.rpc(None) as theirs:
                    yield from _beside_rpc(ground, split, theirs, "", "")
                continue
            with ground.delayed(split, delay) as wire, ground.rpc(delay) as theirs:
                yield from _beside_rpc(
                    ground,
                    wire.route,
                    theirs,
                    f"-{delay:g}ms",
                    f", {delay:g} ms each way of every connection",
                )


def _beside_rpc(ground: WorkerGround, ours: Route, theirs: Rpc, name: str, how: str) -> Iterator[Pairing]:
    settings = ground.settings
    yield Pairing(
        name=f"rpc{name}-decode",
        ours=Side(
            what=f"{settings.decode} tokens on two stages of one thread each{how}",
            measure=lambda: ours.decode(settings.decode),
        ),
        theirs=Side(
            what=f"llama-bench -n {settings.decode} on two ggml-rpc-servers of one thread each{how}",
            measure=lambda: theirs.speed(generate=settings.decode),
        ),
        unit="tokens/s",
        bound=Bound(at_least=1.15),
        warm_up=False,
    )
    yield Pairing(
        name=f"rpc{name}-prefill",
        ours=Side(
            what=f"a prompt of {settings.prompt} rows on two stages of one thread each{how}",
            measure=lambda: ours.prefill(settings.prompt),
        ),
        theirs=Side(
            what=f"llama-bench -p {settings.prompt} on two ggml-rpc-servers of one thread each{how}",
            measure=lambda: theirs.speed(prompt=settings.prompt),
        ),
        unit="tokens/s",
        bound=Bound(at_least=1.7),
        warm_up=False,
    )


def sessions(ground: WorkerGround) -> Iterator[Pairing]:
    """Yield sessions beside each other on a whole worker beside llama-batched-bench."""
    settings = ground.settings
    tokens, prompt = settings.decode, settings.session_prompt
    positions = prompt + tokens
    most = max(settings.sessions)
    with ground.route(1, sessions=most, positions=positions, frame=max(prompt, most)) as ours:
        for count in settings.sessions:
            yield Pairing(
                name=f"sessions-{count}",
                ours=Side(
                    what=f"sessions at once on a whole worker with one thread, {tokens} tokens each: {count}",
                    measure=lambda count=count: ours.decode(tokens, sessions=count, prompt=prompt),  # type: ignore[misc]
                ),
                theirs=Side(
                    what=f"llama-batched-bench -npl {count} with one thread",
                    measure=lambda count=count: ground.upstream.batched(  # type: ignore[misc]
                        threads=1, sessions=count, prompt=prompt, generate=tokens
                    ),
                ),
                unit="tokens/s",
                bound=Bound(at_least=0.95),
                warm_up=False,
            )


def floor(ground: WorkerGround) -> Iterator[Pairing]:
    """Yield the time of a token on two stages beside what wire and computing take anyway."""
    with ground.route(1) as one, ground.route(_SPLIT) as split:
        for delay in ground.settings.delays_ms:
            with ground.delayed(split, delay) as wire:
                yield _over_the_floor(ground, one, wire, delay)


def _over_the_floor(ground: WorkerGround, one: Route, wire: Wire, delay: float) -> Pairing:
    tokens = ground.settings.decode
    took: list[float] = []
    floors: list[float] = []

    def ours() -> float:
        took.append(wire.route.token_ms(tokens))
        return took[-1]

    def allowed() -> float:
        # to the head and back from the tail small messages, between the stages a boundary
        ways = 2 * wire.one_way_ms(_SMALL_MESSAGE) + wire.one_way_ms(ground.boundary_bytes)
        floors.append(one.token_ms(tokens) + ways)
        return floors[-1] + max(_FLOOR_MS, _FLOOR_PART * floors[-1])

    return Pairing(
        name=f"floor-{delay:g}ms",
        ours=Side(what=f"a token on two stages, every way delayed by {delay:g} ms", measure=ours),
        theirs=Side(
            what="what is allowed: computing on a whole worker, three ways of an echo on the same wire, and "
            f"{_FLOOR_MS:g} ms or {_FLOOR_PART * 100:g} %, whichever is more",
            measure=allowed,
        ),
        unit="ms",
        bound=Bound(at_most=1.0),
        warm_up=False,
        detail=lambda: {
            "floor_ms": statistics.fmean(floors),
            "over_the_floor_ms": statistics.fmean(took) - statistics.fmean(floors),
        },
    )


def load(ground: WorkerGround) -> Iterator[Pairing]:
    """Yield what a stage reads from a cold disk beside what it owns."""
    for index, name in enumerate(_COLD_NAMES):
        own: list[int] = []

        def read(index: int = index, own: list[int] = own) -> float:
            cold = ground.cold_load(_COLD_STAGES, index)
            own.append(cold.own)
            return float(cold.read)

        def allowed(own: list[int] = own, index: int = index) -> float:
            if not own:
                own.append(ground.cold_load(_COLD_STAGES, index).own)
            return 1.01 * own[-1] + ground.header_bytes + _COLD_ROOM

        yield Pairing(
            name=f"load-{name}",
            ours=Side(
                what=f"read from a cold disk until the {name} of {_COLD_STAGES} stages serves",
                measure=read,
            ),
            theirs=Side(
                what="what is allowed: 1.01 times the own tensors, the header and 16 MiB", measure=allowed
            ),
            unit="bytes",
            bound=Bound(at_most=1.0),
            warm_up=False,
            detail=lambda own=own: {"own_tensor_bytes": float(own[-1])},  # type: ignore[misc]
        )


def frames(ground: WorkerGround) -> Iterator[Pairing]:
    """Yield what a frame costs besides computing beside a bare echo of as many bytes."""
    with ground.frames() as tail:
        for rows in ground.settings.frame_rows:
            yield _beside_echo(tail, rows, tail.n_bytes(rows))


def _beside_echo(tail: Frames, rows: int, size: int) -> Pairing:
    return Pairing(
        name=f"frame-{rows}-rows",
        ours=Side(
            what=f"a frame of {size} bytes to a tail and its result, less computing",
            measure=lambda: tail.overhead_us(rows),
        ),
        theirs=Side(
            what="a message of as many bytes to a bare gRPC echo and its answer",
            measure=lambda: tail.echo_us(size),
        ),
        unit="us",
        bound=Bound(at_most=2.0),
        detail=lambda: {"message_bytes": float(size)},
    )
