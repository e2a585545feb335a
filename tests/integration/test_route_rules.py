"""What a worker must survive, refuse and report, on real workers (the public failures of others)."""

from __future__ import annotations

import signal
import subprocess
import time

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

_CODE = grpc.StatusCode
_CUTS = (14, 29)


@pytest.fixture
def workers(route):
    return route(_CUTS)


@pytest.fixture(scope="module")
def prompt(on_the_wire):
    return on_the_wire.prompt(130)


@pytest.fixture(scope="module")
def expected(reference, tiny, prompt):
    return reference(tiny(), prompt, 40)[0][:130]


def _set(field, value):
    """Return what spoils one field of a frame, given by its path."""

    def spoil(frame):
        target = frame
        *path, last = field.split(".")
        for name in path:
            target = getattr(target, name)
        if isinstance(value, list):
            target.ClearField(last)
            getattr(target, last).extend(value)
        else:
            setattr(target, last, value)

    return spoil


def _add_boundary(frame):
    frame.boundary.rows = 1


# ---------------------------------------- W2, W22: bad fields, the worker lives


@pytest.mark.parametrize(
    ("field", "spoil"),
    [
        ("token_ids", _set("token_ids", [])),
        ("token_ids", _set("token_ids", [3] * 65)),
        ("token_ids", _set("token_ids", [-1, 3])),
        ("token_ids", _set("token_ids", [3, 384])),
        ("token_ids", _set("token_ids", [3, 2**31 - 1])),
        ("prefix_hash_before", _set("prefix_hash_before", b"")),
        ("prefix_hash_before", _set("prefix_hash_before", b"x" * 33)),
        ("prefix_hash_after", _set("prefix_hash_after", b"short")),
        ("want_logits", _set("want_logits", 9)),
        ("boundary", _add_boundary),
    ],
)
def test_w2_a_bad_field_of_a_frame_is_named_and_the_head_lives(workers, on_the_wire, prompt, field, spoil):
    with on_the_wire.Session(workers) as session:
        frame = session.frame(prompt[:2])
        spoil(frame)
        refused = session.refusal(frame)
    assert refused.code is _CODE.INVALID_ARGUMENT, refused
    assert field in refused.field
    assert all(worker.alive for worker in workers)


@pytest.mark.parametrize("stage", [1, 2], ids=["middle", "tail"])
@pytest.mark.parametrize(
    ("field", "spoil"),
    [
        ("boundary", lambda frame: frame.ClearField("boundary")),
        ("boundary.dtype", _set("boundary.dtype", 0)),
        ("boundary.dtype", _set("boundary.dtype", 7)),
        ("boundary.rows", _set("boundary.rows", 3)),
        ("boundary.rows", _set("boundary.rows", 2**32 - 1)),
        ("boundary.width", _set("boundary.width", 511)),
        ("boundary.width", _set("boundary.width", 2**31)),
        ("boundary.data", _set("boundary.data", b"")),
        ("boundary.data", _set("boundary.data", b"\0" * (2 * 512 * 4 + 1))),
        ("boundary.checksum", _set("boundary.checksum", 1)),
        ("token_ids", _set("token_ids", [])),
        ("token_ids", _set("token_ids", [3])),
        ("token_ids", _set("token_ids", [3, 4, 5])),
    ],
)
def test_w2_w22_a_bad_boundary_or_missing_ids_are_named_and_the_stage_lives(
    workers, on_the_wire, prompt, stage, field, spoil
):
    behind = workers[stage:]
    with on_the_wire.Session(behind, predecessor=workers[stage - 1].peer) as session:
        frame = session.frame(prompt[:2], boundary=on_the_wire.boundary(2, 512))
        spoil(frame)
        refused = session.refusal(frame)
    assert refused.code is _CODE.INVALID_ARGUMENT, refused
    # missing ids may be seen as rows without ids or as ids without rows
    assert refused.field.removeprefix("frame.").split(".")[0] in {field.split(".")[0], "boundary"}
    if field.startswith("boundary."):
        assert refused.field.endswith(field)
    assert all(worker.alive for worker in workers)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_boundary_that_is_not_finite_is_refused(workers, on_the_wire, prompt, value):
    boundary = on_the_wire.boundary(2, 512)
    boundary[1, 300] = value
    with on_the_wire.Session(workers[1:], predecessor=workers[0].peer) as session:
        refused = session.refusal(session.frame(prompt[:2], boundary=boundary))
    assert refused.code is _CODE.INVALID_ARGUMENT
    assert "boundary" in refused.field
    assert workers[1].alive


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session", ""), ("session", "a b"), ("session", "x" * 65), ("epoch", 0), ("key", b"short"),
        ("artifact_digest", "zz"), ("successor_address", "nowhere"), ("successor_address", ""),
    ],
)  # fmt: skip
def test_w2_a_bad_field_of_an_open_is_named(workers, on_the_wire, field, value):
    request = on_the_wire.Session(workers, open_now=False).open_request(0)
    setattr(request, field, value)
    with pytest.raises(on_the_wire.Refused) as refused:
        on_the_wire.ask(workers[0].stub.OpenSession, request)
    assert refused.value.code in {_CODE.INVALID_ARGUMENT, _CODE.FAILED_PRECONDITION}
    assert refused.value.field in {field, field.removesuffix("_address")}
    assert workers[0].alive


def test_w2_bytes_that_are_no_message_leave_the_worker_alive(workers, on_the_wire):
    method = workers[0].channel.unary_unary("/dgr.shard.v1.Shard/OpenSession")
    with pytest.raises(grpc.RpcError):
        method(b"\xff" * 100, timeout=10)
    assert workers[0].alive


def test_a_stranger_without_the_key_gets_neither_results_nor_execution(
    workers, on_the_wire, prompt, expected
):
    pb = on_the_wire.pb
    with on_the_wire.Session(workers) as session:
        request = pb.ResultsRequest(session=session.name, epoch=1, key=b"k" * 32)
        with pytest.raises(on_the_wire.Refused) as refused:
            on_the_wire.Stream(lambda: workers[-1].stub.Results(request)).take()
        assert refused.value.code in {_CODE.PERMISSION_DENIED, _CODE.UNAUTHENTICATED, _CODE.NOT_FOUND}
        assert session.run(prompt[:64]).tobytes() == expected[:64].tobytes()


# ---------------------------------------- W7, W13, W28: what a slot holds


@pytest.mark.parametrize("ahead", [True, False], ids=["sequence", "hash"])
def test_w7_a_frame_that_does_not_follow_is_told_what_is_held(workers, on_the_wire, prompt, expected, ahead):
    with on_the_wire.Session(workers) as session:
        session.run(prompt[:64])
        held = session.hash
        frame = session.frame(prompt[64:128])
        if ahead:
            frame.sequence += 1
        else:
            frame.prefix_hash_before = bytes(32)
        refused = session.refusal(frame)
    assert refused.code is _CODE.FAILED_PRECONDITION
    miss = refused.miss
    assert (miss.held_epoch, miss.held_sequence, miss.held_position) == (1, 1, 64)
    assert miss.held_prefix_hash == held
    # the client prefills again under a new epoch
    with on_the_wire.Session(workers, name=session.name, key=session.key, epoch=2) as again:
        assert again.run(prompt).tobytes() == expected.tobytes()


def test_w13_what_used_a_slot_before_leaves_no_trace(route, on_the_wire, prompt, expected):
    workers = route(_CUTS, slots=1)
    for seed in (21, 22):
        with on_the_wire.Session(workers) as before:
            before.run(on_the_wire.prompt(400, seed=seed))
        with on_the_wire.Session(workers) as session:
            assert session.run(prompt).tobytes() == expected.tobytes()


def test_w15_a_session_beyond_the_slots_is_refused_and_the_others_go_on(route, on_the_wire, prompt, expected):
    workers = route(_CUTS, slots=1)
    with on_the_wire.Session(workers) as session:
        first = session.run(prompt[:64])
        request = on_the_wire.Session(workers, open_now=False).open_request(1)
        with pytest.raises(on_the_wire.Refused) as refused:
            on_the_wire.ask(workers[1].stub.OpenSession, request)
        assert refused.value.code is _CODE.RESOURCE_EXHAUSTED
        rest = session.run(prompt[64:])
    assert np.concatenate([first, rest]).tobytes() == expected.tobytes()


def test_w28_a_session_fills_its_context_exactly_and_no_token_more(route, reference, tiny, on_the_wire):
    workers = route(_CUTS, n_ctx=200)
    ids = on_the_wire.prompt(200)
    with on_the_wire.Session(workers) as session:
        logits = session.run(ids)
        refused = session.refusal(session.frame([3]))
    assert logits.tobytes() == reference(tiny(), ids, 0, n_ctx=200)[0].tobytes()
    assert refused.code in {_CODE.OUT_OF_RANGE, _CODE.INVALID_ARGUMENT, _CODE.RESOURCE_EXHAUSTED}
    assert "context" not in refused.field
    assert all(worker.alive for worker in workers)
    with on_the_wire.Session(workers) as again:
        assert again.run(ids).tobytes() == logits.tobytes()


# ---------------------------------------- W8, W16, W25: the real model's widths


@pytest.fixture(scope="module")
def wide(tiny):
    return tiny(profile="wide")


@pytest.mark.parametrize("rows", [63, 64, 65, 192])
def test_w8_w16_frames_around_4_mib_and_the_largest_allowed_one_pass(
    route, reference, on_the_wire, wide, rows, record_property
):
    """64 rows of 4 streams of 4,096 floats are exactly 4 MiB; 192 is the largest frame of this worker."""
    workers = route((2,), wide, n_ubatch=192, n_ctx=256, slots=1)
    assert workers[0].about.boundary.width * 4 * 64 == 4 << 20
    assert workers[0].about.limits.max_rows == 192
    assert workers[0].about.limits.max_frame_bytes > 192 * workers[0].about.boundary.width * 4
    ids = on_the_wire.prompt(rows)
    with on_the_wire.Session(workers) as session:
        logits = session.run(ids)
    expected = reference(wide, ids, 0, n_ubatch=192, n_ctx=256, n_seq_max=1)[0]
    assert logits.tobytes() == expected.tobytes()


@pytest.mark.parametrize("mapped", [True, False], ids=["mmap", "no-mmap"])
def test_w25_loading_a_range_reads_little_more_than_its_own_tensors(
    start_worker, wide, mapped, cold_copy, record_property
):
    """A cold file: written, synced, dropped from the cache, and not in memory to begin with."""
    slack = 16 << 20
    extra = {} if mapped else {"no_mmap": True}
    worker = start_worker(wide, 1, 2, model=cold_copy(wide.path), slots=1, n_ubatch=16, **extra).ready()
    own, read = worker.about.own_tensor_bytes, worker.io()
    record_property("own_tensor_bytes", own)
    record_property("read_bytes", read["read_bytes"])
    worker.stop()
    assert 0 < own < wide.manifest.n_bytes / 2
    assert own * 0.9 < read["read_bytes"] <= own + slack
    if not mapped:
        assert read["rchar"] <= own + slack


# ---------------------------------------- W10: the handshake


def _peer(name):
    def spoil(request):
        peer = request.predecessor if name.startswith("predecessor") else request.successor
        field = name.split(".")[1]
        if field == "range":
            peer.range.last += 1
            peer.range.first += 1
        elif field == "n_ubatch":
            peer.n_ubatch += 1
        else:
            old = getattr(peer, field)
            setattr(peer, field, bytes(32) if isinstance(old, bytes) else "0" * len(old))

    return spoil


_MISMATCHES = {
    "artifact_digest": lambda r: setattr(r, "artifact_digest", "0" * 64),
    "range": lambda r: setattr(r.range, "last", r.range.last + 1),
    "lane_digest": lambda r: setattr(r, "lane_digest", "0" * 64),
    "numerics_digest": lambda r: setattr(r, "numerics_digest", bytes(32)),
    "cache.type_k": lambda r: setattr(r.cache, "type_k", "f32"),
    "cache.type_v": lambda r: setattr(r.cache, "type_v", "f32"),
    "cache.n_ubatch": lambda r: setattr(r.cache, "n_ubatch", 65),
    "cache.flash_attn": lambda r: setattr(r.cache, "flash_attn", True),
    "cache.state_schema_version": lambda r: setattr(r.cache, "state_schema_version", 99),
    **{
        f"{side}.{field}": _peer(f"{side}.{field}")
        for side in ("predecessor", "successor")
        for field in (
            "range",
            "patched_tree",
            "artifact_digest",
            "boundary_digest",
            "n_ubatch",
            "numerics_digest",
        )
    },
}


@pytest.mark.parametrize("field", _MISMATCHES)
def test_w10_a_mismatch_is_refused_before_a_token_runs(workers, on_the_wire, field):
    before = workers[1].status
    request = on_the_wire.Session(workers, open_now=False).open_request(1)
    _MISMATCHES[field](request)
    with pytest.raises(on_the_wire.Refused) as refused:
        on_the_wire.ask(workers[1].stub.OpenSession, request)
    assert refused.value.code is _CODE.FAILED_PRECONDITION
    assert refused.value.field.startswith(field), refused.value.field
    after = workers[1].status
    assert after.executed_frames == before.executed_frames
    assert after.slots_free == before.slots_free


def test_w10_a_context_larger_than_any_slot_is_refused(workers, on_the_wire):
    request = on_the_wire.Session(workers, open_now=False).open_request(1)
    request.cache.n_ctx = 513
    with pytest.raises(on_the_wire.Refused) as refused:
        on_the_wire.ask(workers[1].stub.OpenSession, request)
    assert refused.value.code is _CODE.RESOURCE_EXHAUSTED


def test_w10_another_lane_of_the_same_numerics_may_be_a_neighbour(workers, on_the_wire):
    session = on_the_wire.Session(workers, open_now=False)
    request = session.open_request(1)
    request.predecessor.lane_digest = request.successor.lane_digest = "0" * 64
    assert on_the_wire.ask(workers[1].stub.OpenSession, request).prefix_hash == session.hash
    session.close()


def test_a_frame_from_another_than_the_named_predecessor_is_refused(workers, on_the_wire, prompt):
    pb = on_the_wire.pb
    with on_the_wire.Session(workers[1:], predecessor=workers[0].peer) as session:
        session.connect(sender=pb.Peer(client=True))
        refused = session.refusal(session.frame(prompt[:2], boundary=on_the_wire.boundary(2, 512)))
    assert refused.code in {_CODE.PERMISSION_DENIED, _CODE.FAILED_PRECONDITION}


# ---------------------------------------- W21, W23: every kind of range


@pytest.mark.parametrize(
    "cuts", [(), (1,), (42,), (20, 21), (1, 42)], ids=["whole", "head1", "tail1", "single", "both"]
)
def test_w21_every_kind_of_range_runs_and_many_sessions_share_one_listener(
    route, on_the_wire, cuts, prompt, expected
):
    workers = route(cuts)
    with on_the_wire.Session(workers) as one, on_the_wire.Session(workers) as other:
        first, second = one.run(prompt[:64]), other.run(prompt[:64])
        ours = [
            np.concatenate([first, one.run(prompt[64:])]),
            np.concatenate([second, other.run(prompt[64:])]),
        ]
    assert [logits.tobytes() for logits in ours] == [expected.tobytes()] * 2


def test_w23_every_boundary_is_all_streams_wide(workers, route, tiny):
    for worker in workers:
        about = worker.about
        assert about.boundary.width == 4 * about.artifact.n_embd
        assert about.boundary.name == "mhc-residual"
    llama = route((6,), tiny("llama"))
    assert {worker.about.boundary.width for worker in llama} == {llama[0].about.artifact.n_embd}


def test_w23_streams_differ_at_every_boundary(workers, on_the_wire, prompt):
    """Residuals that were collapsed and expanded again would be four equal streams; these matter each."""
    tail = workers[2:]
    boundary = on_the_wire.boundary(8, 512)
    collapsed = np.tile(boundary.reshape(8, 4, 128).mean(axis=1), (1, 4)).astype("<f4")
    seen = []
    for residual in (boundary, collapsed):
        with on_the_wire.Session(tail, predecessor=workers[1].peer) as session:
            seen.append(session.run(prompt[:8], boundary=residual).tobytes())
    assert seen[0] != seen[1]


# ---------------------------------------- Describe


def test_describe_states_identity_ranges_and_restrictions(workers, built_cpu_lane, tiny, record_property):
    manifest = tiny().manifest
    record_property("numerics", workers[0].about.numerics.digest.hex())
    record_property("devices", "; ".join(workers[0].about.devices))
    for worker, (first, last) in zip(workers, ((0, 14), (14, 29), (29, 43)), strict=True):
        about = worker.about
        assert about.build.lane_digest == built_cpu_lane.digest
        assert about.artifact.digest == tiny().digest
        assert about.artifact.n_layer == manifest.n_layer == 43
        assert (about.range.first, about.range.last) == (first, last)
        assert about.adapter == "deepseek4"
        assert about.adapter_version >= 1
        assert about.mode == "exact"
        cuts = {cut.layer: cut.carries_draft_head for cut in about.legal_cuts}
        assert sorted(cuts) == list(range(1, 43))
        assert [layer for layer, carries in cuts.items() if not carries] == [41, 42]
        own = {kind.name: set(kind.layers) for kind in about.state}
        # upstream makes the cache of the block behind the last layer too; nothing runs it
        assert own.pop("mtp-kv-swa", set()) == ({43} if last == 43 else set())
        assert set.union(*own.values()) == set(range(first, last))
        assert about.mtp.present
        assert about.mtp.reserved == (last == 43)
        assert not about.mtp.executable
        assert about.limits.max_rows == about.numerics.n_ubatch == 64
    assert len({worker.about.build.patched_tree for worker in workers}) == 1
    assert len({worker.about.instance for worker in workers}) == len(workers)


def test_status_counts_what_ran(route, on_the_wire, prompt):
    workers = route(_CUTS)
    before = [worker.status for worker in workers]
    with on_the_wire.Session(workers) as session:
        session.run(prompt)
        held = [worker.status.slots_free for worker in workers]
    after = [worker.status for worker in workers]
    for was, during, now in zip(before, held, after, strict=True):
        assert now.executed_rows - was.executed_rows == 130
        assert now.executed_frames - was.executed_frames == 3
        assert during == was.slots_free - 1
        assert now.slots_free == was.slots_free
        assert now.certification == "uncertified"


# ---------------------------------------- starting and stopping


@pytest.mark.parametrize("end", ["close", "time", "second signal"])
def test_sigterm_lets_open_sessions_go_on_refuses_new_ones_and_ends_with_0(
    start_worker, tiny, on_the_wire, prompt, end
):
    seconds = 2 if end == "time" else 600
    worker = start_worker(tiny("llama"), 0, 12, drain_seconds=seconds).ready()
    session = on_the_wire.Session([worker])
    session.run(prompt[:64])
    worker.child.signal(signal.SIGTERM)
    while not worker.status.draining:
        pass
    session.run(prompt[64:])
    with pytest.raises(on_the_wire.Refused) as refused:
        on_the_wire.Session([worker])
    assert refused.value.code is _CODE.UNAVAILABLE
    if end == "close":
        session.close()
    if end == "second signal":
        worker.child.signal(signal.SIGINT)
    assert worker.child.wait(20) == 0


def test_health_is_told_for_the_range(workers):
    stub = health_pb2_grpc.HealthStub(workers[1].channel)
    known = health_pb2.HealthCheckRequest(service="dgr.shard.v1.Shard/14-29")
    assert stub.Check(known, timeout=10).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as refused:
        stub.Check(health_pb2.HealthCheckRequest(service="dgr.shard.v1.Shard/0-14"), timeout=10)
    assert refused.value.code() is _CODE.NOT_FOUND


def test_a_client_that_is_silent_loses_its_slot_after_a_lease(start_worker, tiny, on_the_wire, prompt):
    worker = start_worker(tiny("llama"), 0, 12, slots=1, lease_seconds=0.5).ready()
    assert worker.about.limits.lease_ms == 500
    gone = on_the_wire.Session([worker])
    gone.run(prompt[:64])
    for stream in (gone.execute, gone.results):
        stream.cancel()
    deadline = time.monotonic() + 20
    while not worker.status.slots_free:
        assert time.monotonic() < deadline
    with on_the_wire.Session([worker]) as after:
        after.run(prompt)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.7:0", "example.invalid:0", "127.0.0.1"])
def test_an_address_beyond_loopback_is_refused(built_cpu_lane, tiny, address):
    llama = tiny("llama")
    command = [built_cpu_lane.worker, "--model", llama.path, "--artifact-digest", llama.digest]
    command += ["--first", "0", "--last", "12", "--listen", address, "--n-ctx", "64", "--n-ubatch", "16"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "loopback" in done.stderr


@pytest.mark.parametrize("bounds", [(5, 5), (6, 5), (0, 44), (43, 44)])
def test_an_illegal_range_is_refused_at_start(built_cpu_lane, tiny, bounds):
    v4 = tiny()
    command = [built_cpu_lane.worker, "--model", v4.path, "--artifact-digest", v4.digest]
    command += ["--first", str(bounds[0]), "--last", str(bounds[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "43" in done.stderr
