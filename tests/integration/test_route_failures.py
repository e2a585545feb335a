"""What happens when a stage or a client dies, hangs or computes rubbish, on real workers (W3 to W31)."""

from __future__ import annotations

import itertools
import shutil
import signal
import time

import gguf
import grpc
import numpy as np
import pytest

from dgr_build.errors import RouteError
from dgr_build.route.client import RouteClient

from .worker_process import Refused

_CODE = grpc.StatusCode
_STEPS = 6


@pytest.fixture(scope="module")
def llama(tiny):
    return tiny("llama")


@pytest.fixture(scope="module")
def prompt(on_the_wire):
    return on_the_wire.prompt(70)


@pytest.fixture(scope="module")
def expected(reference, llama, prompt):
    return reference(llama, prompt, 40)


@pytest.fixture
def stages(start_worker, llama):
    """A maker of workers of their own, which a test may kill."""
    made = []

    def make(*ranges, **settings):
        workers = [start_worker(llama, first, last, **settings) for first, last in ranges]
        made.extend(workers)
        return [worker.ready() for worker in workers]

    yield make
    for worker in made:
        worker.child.signal(signal.SIGCONT)
        worker.stop()


def _failure(session, frame):
    """Send a frame that a stage may execute before another fails; return the failure."""
    session.put(frame=frame)
    with pytest.raises(Refused) as refused:
        _read_to_the_end(session.execute)
    return refused.value


def _read_to_the_end(stream):
    while stream.take() is not None:
        pass


def _layers(refused):
    return refused.failure.range.first, refused.failure.range.last


def _settled(read, seconds=10.0):
    """Return a count once it no longer changes."""
    deadline, last = time.monotonic() + seconds, read()
    while time.monotonic() < deadline:
        time.sleep(0.3)
        if (now := read()) == last:
            return now
        last = now
    raise AssertionError("it still changes")


def _until(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def test_w3_a_killed_stage_is_named_at_the_client_and_other_sessions_go_on(
    stages, on_the_wire, prompt, expected
):
    head, doomed, spare, tail = stages((0, 4), (4, 8), (4, 8), (8, 12))
    with (
        on_the_wire.Session([head, doomed, tail]) as lost,
        on_the_wire.Session([head, spare, tail]) as kept,
    ):
        lost.run(prompt)
        first = kept.run(prompt[:64])
        doomed.child.signal(signal.SIGKILL)
        refused = _failure(lost, lost.frame([3]))
        rest = kept.run(prompt[64:])
    assert refused.code is _CODE.UNAVAILABLE
    assert _layers(refused) == (4, 8)
    assert np.concatenate([first, rest]).tobytes() == expected[0][:70].tobytes()
    assert head.alive
    assert tail.alive


def test_w31_when_the_tail_dies_the_error_is_the_tails_and_no_timeout(stages, on_the_wire, prompt):
    workers = stages((0, 4), (4, 8), (8, 12))
    with on_the_wire.Session(workers) as session:
        session.run(prompt)
        workers[2].child.signal(signal.SIGKILL)
        refused = _failure(session, session.frame([3]))
    assert refused.code is _CODE.UNAVAILABLE
    assert _layers(refused) == (8, 12)
    assert refused.failure.cause


@pytest.mark.parametrize("stopped", [0, 1, 2], ids=["head", "middle", "tail"])
def test_w5_a_stage_that_hangs_costs_a_frame_its_time_and_no_more(stages, prompt, expected, stopped):
    workers = stages((0, 4), (4, 8), (8, 12))
    with RouteClient([worker.address for worker in workers]) as client:
        steps = client.generate(prompt, _STEPS, frame_s=1.0)
        assert next(steps).token == expected[1][0]
        workers[stopped].child.signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(RouteError):
            next(steps)
        waited = time.monotonic() - began
        workers[stopped].child.signal(signal.SIGCONT)
        assert waited < 40  # a second for the frame, and seconds each for closing and for asking who is there
        again = [step.token for step in client.generate(prompt, _STEPS)]
    assert again == list(expected[1][:_STEPS])


def test_w5_cancelling_works_while_the_next_stage_hangs(stages, on_the_wire, prompt):
    workers = stages((0, 6), (6, 12), slots=1)
    session = on_the_wire.Session(workers)
    session.run(prompt)
    workers[1].child.signal(signal.SIGSTOP)
    session.send(session.frame([3]))
    session.execute.cancel()
    request = on_the_wire.pb.CloseSessionRequest(session=session.name, epoch=1, key=session.key)
    assert workers[0].stub.CloseSession(request, timeout=5).closed
    assert workers[0].status.slots_free == 1
    workers[1].child.signal(signal.SIGCONT)
    session.close()
    with on_the_wire.Session(workers) as again:  # the only slot of both
        again.run(prompt)


@pytest.mark.parametrize(
    ("cuts", "failing"),
    [((6, 9), (6, 9)), ((6,), (6, 12)), ((8,), (0, 8))],
    ids=["middle", "tail", "head"],
)
def test_w9_a_stage_that_computes_nan_is_named_before_it_poisons_an_answer(
    start_worker, llama, on_the_wire, prompt, tmp_path, cuts, failing
):
    poisoned = tmp_path / "poisoned.gguf"
    shutil.copyfile(llama.path, poisoned)
    weights = next(t for t in gguf.GGUFReader(poisoned).tensors if t.name == "blk.7.ffn_down.weight")
    with poisoned.open("r+b") as file:
        file.seek(weights.data_offset)
        file.write(np.float32(np.nan).tobytes())
    bounds = [0, *cuts, 12]
    started = [start_worker(llama, *pair, model=poisoned) for pair in itertools.pairwise(bounds)]
    workers = [worker.ready() for worker in started]
    with on_the_wire.Session(workers) as session:
        refused = _failure(session, session.frame(prompt[:3]))
    assert refused.code is _CODE.INTERNAL
    assert _layers(refused) == failing
    assert all(worker.alive for worker in workers)
    for worker in workers:
        worker.stop()


def test_w12_clients_that_vanish_leave_no_slot_behind(stages, on_the_wire, prompt, expected):
    """Streams that end without a word; the name is opened again under a higher epoch, as a client would."""
    workers = stages((0, 6), (6, 12), slots=1)
    session = None
    for epoch in range(1, 1001):
        session = on_the_wire.Session(workers, name="again", key=b"k" * 32, epoch=epoch)
        if epoch % 2:
            session.send(session.frame(prompt[:64]))  # some vanish amid a frame
        for stream in (session.execute, session.results):
            stream.cancel()
    session.close()
    _until(lambda: all(worker.status.slots_free == 1 for worker in workers))
    with on_the_wire.Session(workers) as after:
        assert after.run(prompt).tobytes() == expected[0][:70].tobytes()


def test_w18_nothing_more_is_computed_once_the_client_is_gone(stages, on_the_wire):
    (worker,) = stages((0, 12))
    with on_the_wire.Session([worker]) as session:
        frames = [session.frame([3])]
        session.send(frames[0])
        session.result()
        for _ in range(400):
            session.send(session.frame([3]))
        session.result()
        session.execute.cancel()
        with pytest.raises(Refused):
            _read_to_the_end(session.results)
        ended = worker.status.executed_frames
        assert _settled(lambda: worker.status.executed_frames) <= ended + 1
        assert ended < 401


@pytest.mark.parametrize("mode", ["exact", "throughput"])
def test_w19_a_bad_position_of_one_session_is_its_own_affair(stages, on_the_wire, prompt, expected, mode):
    workers = stages((0, 6), (6, 12), slots=3, mode=mode)
    with on_the_wire.Session(workers) as bad, on_the_wire.Session(workers) as good:
        bad.run(prompt[:64])
        parts = [good.run(prompt[:64])]
        frame = bad.frame(prompt[64:])
        frame.first_position += 1
        refused = bad.refusal(frame)
        parts.append(good.run(prompt[64:]))
    assert refused.code in {_CODE.INVALID_ARGUMENT, _CODE.FAILED_PRECONDITION}
    assert (
        np.concatenate(parts).tobytes() == expected[0][:70].tobytes()
    )  # alone in its calls, so exact in both


def test_w19_a_repeated_frame_is_answered_again_and_not_run_again(stages, on_the_wire, prompt):
    workers = stages((0, 6), (6, 12))
    with on_the_wire.Session(workers) as session:
        start = session.hash
        frame = session.frame(prompt[:64])
        session.send(frame)
        first = session.result()
        ran = [worker.status.executed_frames for worker in workers]
        for stream in (session.execute, session.results):
            stream.cancel()
        session.sequence, session.position, session.hash = 0, 0, start
        session.listen()
        session.connect()
        session.send(frame)
        assert session.result().logits == first.logits
        assert [worker.status.executed_frames for worker in workers] == ran
