"""A stage replaced while a route runs, frames on their way at a time, and stages that hang at the end."""

import threading
import time

import grpc
import numpy as np
import pytest

from dgr_build.errors import RouteError
from dgr_build.route import session as session_module
from dgr_build.route.client import RouteClient

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


@pytest.fixture(params=["direct", "chain"])
def results(request):
    return request.param


def replace_at(route_fake, stage, sequence, **changes):
    """Have a stage break its stream at a frame of the first epoch and come back as another, empty process."""

    def hook(frame):
        if frame.sequence == sequence and stage.epochs == [1]:
            stage.forget()
            stage.instance = "another"
            for name, value in changes.items():
                setattr(stage, name, value)
            raise route_fake.Refused(grpc.StatusCode.UNAVAILABLE, "connection reset")

    stage.on_frame = hook


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("sequence", [1, 4], ids=["prefill", "decode"])
def test_a_replaced_stage_gets_the_tokens_again(route_fake, results, index, sequence, capsys):
    with route_fake.stages(2, 7) as route:
        replace_at(route_fake, route[index], sequence)
        with RouteClient(route_fake.addresses(route), results=results) as client:
            steps = list(client.generate(PROMPT, 6, logits=True))
        assert [stage.epochs for stage in route] == [[1, 2]] * 3
    tokens, logits = route_fake.whole(PROMPT, 6)
    assert [step.token for step in steps] == tokens
    np.testing.assert_array_equal(np.concatenate([step.logits for step in steps]), logits)
    assert "epoch 2" in capsys.readouterr().err


@pytest.mark.parametrize("mixed", [False, True])
def test_what_is_run_again_is_cut_as_at_first_where_bits_are_promised(route_fake, monkeypatch, mixed):
    monkeypatch.setattr(RouteClient, "mixed", mixed)
    rows = []
    with route_fake.stages(4) as route:
        replace_at(route_fake, route[1], 5)
        route[0].on_frame = lambda frame: rows.append((route[0].epochs[-1], len(frame.token_ids)))
        with RouteClient(route_fake.addresses(route)) as client:
            tokens = [step.token for step in client.generate(PROMPT, 5)]
    assert tokens == route_fake.whole(PROMPT, 5)[0]
    assert [n for epoch, n in rows if epoch == 1] == [4, 4, 2, 1, 1, 1]
    assert [n for epoch, n in rows if epoch == 2] == ([4, 4, 4, 1, 1] if mixed else [4, 4, 2, 1, 1, 1, 1])


def test_a_stage_that_comes_back_with_other_settings_ends_the_run(route_fake):
    with route_fake.stages(2, 7) as route:
        replace_at(route_fake, route[1], 4, last=6)
        with RouteClient(route_fake.addresses(route)) as client, pytest.raises(RouteError) as caught:
            list(client.generate(PROMPT, 6))
    assert "stage 2 " in caught.value.message
    assert "first layer" in caught.value.cause


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_failure_is_told_by_the_place_and_address_of_its_author(route_fake, results, index):
    def fail(frame):
        if frame.sequence == 3:
            raise route[index].failure(grpc.StatusCode.INTERNAL, "not finite")

    with route_fake.stages(2, 7) as route:
        route[index].on_frame = fail
        with pytest.raises(RouteError) as caught:
            list(RouteClient(route_fake.addresses(route), results=results).generate(PROMPT, 6))
    stage = route[index]
    assert f"stage {index} [{stage.first}, {stage.last}) at {stage.address}" in caught.value.message


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_as_many_frames_are_on_their_way_as_every_stage_allows(route_fake, limit, monkeypatch):
    describe = route_fake.FakeStage.Describe

    def limited(stage, request, context):
        about = describe(stage, request, context)
        about.limits.max_inflight_frames = limit if stage.is_tail else 3
        return about

    monkeypatch.setattr(route_fake.FakeStage, "Describe", limited)
    arrived, go_on = [], threading.Event()

    def hold(frame):
        if frame.sequence == 0:
            go_on.wait(5)

    with route_fake.stages(4) as route:
        route[0].on_frame = lambda frame: arrived.append(frame.sequence)
        route[1].on_frame = hold
        with RouteClient(route_fake.addresses(route)) as client:
            steps = client.generate(PROMPT, 4)  # a prompt of three frames
            tokens = []
            runner = threading.Thread(target=lambda: tokens.extend(step.token for step in steps))
            runner.start()
            deadline = time.monotonic() + 3
            while len(arrived) < limit and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.1)
            assert arrived == list(range(limit))
            go_on.set()
            runner.join(5)
    assert tokens == route_fake.whole(PROMPT, 4)[0]


def test_stages_that_hang_are_waited_for_once_at_the_end(route_fake, monkeypatch):
    monkeypatch.setattr(session_module, "_AFTER_END_S", 0.5)
    go_on = threading.Event()
    monkeypatch.setattr(route_fake.FakeStage, "CloseSession", lambda *_: go_on.wait(5))
    with route_fake.stages(2, 4, 6, 8) as route, RouteClient(route_fake.addresses(route)) as client:
        begin = time.monotonic()
        list(client.generate(PROMPT, 1))
        assert time.monotonic() - begin < 2
        go_on.set()
