"""What must not pass for parity: each control fails, and for its own reason."""

from __future__ import annotations

import grpc
import numpy as np
import pytest

_CUTS = (14, 29)
_CODE = grpc.StatusCode


@pytest.fixture
def workers(route):
    return route(_CUTS)


@pytest.fixture(scope="module")
def prompt(on_the_wire):
    return on_the_wire.prompt(130)


@pytest.fixture(scope="module")
def expected(reference, tiny, prompt):
    return reference(tiny(), prompt, 40)[0][:130]


def test_the_untouched_run_equals_the_reference(workers, on_the_wire, prompt, expected):
    with on_the_wire.Session(workers) as session:
        assert session.run(prompt).tobytes() == expected.tobytes()


def test_one_swapped_token_id_shows_from_its_row_on(workers, on_the_wire, prompt, expected):
    assert prompt[70] != prompt[71]
    swapped = [*prompt[:70], prompt[71], prompt[70], *prompt[72:]]
    with on_the_wire.Session(workers) as session:
        logits = session.run(swapped)
    assert logits[:70].tobytes() == expected[:70].tobytes()
    assert all(
        ours.tobytes() != theirs.tobytes() for ours, theirs in zip(logits[70:], expected[70:], strict=True)
    )


def test_a_prompt_shifted_by_one_position_shows_everywhere(workers, on_the_wire, prompt, expected):
    with on_the_wire.Session(workers) as session:
        shifted = session.run([prompt[-1], *prompt[:-1]])[1:]
    equal = [a.tobytes() == b.tobytes() for a, b in zip(shifted, expected, strict=False)]
    assert not any(equal)


def test_a_frame_with_a_shifted_position_is_refused(workers, on_the_wire, prompt):
    with on_the_wire.Session(workers) as session:
        session.run(prompt[:64])
        frame = session.frame(prompt[64:128])
        frame.first_position += 1
        refused = session.refusal(frame)
    assert refused.code is _CODE.FAILED_PRECONDITION
    assert refused.miss.held_position == 64
    assert refused.miss.held_sequence == 1
    assert refused.miss.held_prefix_hash == session.hash


def test_ids_swapped_on_the_way_to_the_head_alone_are_refused_by_the_hash(workers, on_the_wire, prompt):
    with on_the_wire.Session(workers) as session:
        frame = session.frame(prompt[:64])
        frame.token_ids[3], frame.token_ids[4] = frame.token_ids[4], frame.token_ids[3]
        refused = session.refusal(frame)
    assert refused.code is _CODE.FAILED_PRECONDITION
    assert refused.miss is not None
    assert all(worker.alive for worker in workers)


@pytest.mark.parametrize("stage", [1, 2], ids=["middle", "tail"])
def test_ids_swapped_on_one_later_stage_alone_are_refused_by_the_hash(workers, on_the_wire, prompt, stage):
    """Beyond the hash layers no logit tells them apart; the frame is right but for two ids."""
    behind = workers[stage:]
    boundary = on_the_wire.boundary(64, behind[0].about.boundary.width)
    before = workers[stage - 1].peer
    with on_the_wire.Session(behind, predecessor=before) as session:
        frame = session.frame(prompt[:64], boundary=boundary)
        frame.token_ids[3], frame.token_ids[4] = frame.token_ids[4], frame.token_ids[3]
        refused = session.refusal(frame)
    assert refused.code is _CODE.FAILED_PRECONDITION
    assert refused.miss is not None
    with on_the_wire.Session(behind, predecessor=before) as session:
        assert np.isfinite(session.run(prompt[:64], boundary=boundary)).all()


def test_beyond_the_hash_layers_no_logit_tells_swapped_ids_apart(workers, on_the_wire, prompt):
    """Why the hash is the only guard there: the same residuals with other ids give the same logits."""
    tail = workers[2:]
    boundary = on_the_wire.boundary(64, tail[0].about.boundary.width)
    seen = []
    for ids in (prompt[:64], prompt[1:65]):
        with on_the_wire.Session(tail, predecessor=workers[1].peer) as session:
            seen.append(session.run(ids, boundary=boundary).tobytes())
    assert seen[0] == seen[1]


def test_a_foreign_artifact_is_refused_at_open(workers, on_the_wire, tiny):
    foreign = tiny(seed=2)
    session = on_the_wire.Session(workers, open_now=False)
    for stage, worker in enumerate(workers):
        request = session.open_request(stage)
        request.artifact_digest = foreign.digest
        with pytest.raises(on_the_wire.Refused) as refused:
            on_the_wire.ask(worker.stub.OpenSession, request)
        assert refused.value.code is _CODE.FAILED_PRECONDITION
        assert refused.value.field == "artifact_digest"


def test_a_foreign_artifact_gives_other_logits(route, on_the_wire, tiny, prompt, expected):
    with on_the_wire.Session(route((), tiny(seed=2))) as session:
        logits = session.run(prompt)
    assert not any(a.tobytes() == b.tobytes() for a, b in zip(logits, expected, strict=True))


def test_a_frame_of_a_stale_epoch_is_refused_and_touches_nothing(workers, on_the_wire, prompt, expected):
    with on_the_wire.Session(workers) as old:
        old.run(prompt[:64])
        with on_the_wire.Session(workers, name=old.name, key=old.key, epoch=2) as new:
            first = new.run(prompt[:64])
            old.connect()
            refused = old.refusal(old.frame(prompt[64:128]))
            assert refused.code in {_CODE.FAILED_PRECONDITION, _CODE.ABORTED}
            rest = new.run(prompt[64:])
    assert np.concatenate([first, rest]).tobytes() == expected.tobytes()


def test_a_late_close_of_a_stale_epoch_touches_nothing(workers, on_the_wire, prompt, expected):
    with (
        on_the_wire.Session(workers) as old,
        on_the_wire.Session(workers, name=old.name, key=old.key, epoch=2) as new,
    ):
        first = new.run(prompt[:64])
        request = on_the_wire.pb.CloseSessionRequest(session=old.name, epoch=1, key=old.key)
        for worker in workers:
            assert not worker.stub.CloseSession(request, timeout=10).closed
        rest = new.run(prompt[64:])
    assert np.concatenate([first, rest]).tobytes() == expected.tobytes()
