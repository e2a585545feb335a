"""The client of a route against fake stages: results, lost caches, failures, and what is left behind."""

import threading
import time

import grpc
import numpy as np
import pytest

from dgr_build.errors import RouteError, UsageError
from dgr_build.route import session as session_module
from dgr_build.route import wire
from dgr_build.route.client import RouteClient

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]  # three frames of n_ubatch 4


@pytest.fixture(params=["direct", "chain"])
def results(request):
    return request.param


def run(route_fake, route, *, results="direct", n=6, prompt=PROMPT, **options):
    with RouteClient(route_fake.addresses(route), results=results) as client:
        steps = list(client.generate(prompt, n, logits=True, **options))
    return [step.token for step in steps], np.concatenate([step.logits for step in steps])


def once_at(sequence, act):
    """A hook for frames that acts at one sequence, the first time it comes."""
    done = []

    def hook(frame):
        if frame.sequence == sequence and not done:
            done.append(sequence)
            act()

    return hook


def fail(error):
    raise error


@pytest.mark.parametrize("cuts", [(), (4,), (2, 7)])
def test_a_route_gives_the_tokens_and_logits_of_the_whole_model(route_fake, cuts, results):
    with route_fake.stages(*cuts) as route:
        tokens, logits = run(route_fake, route, results=results)
    expected_tokens, expected_logits = route_fake.whole(PROMPT, 6)
    assert tokens == expected_tokens
    np.testing.assert_array_equal(logits, expected_logits)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8])
def test_a_prompt_is_run_in_frames_of_at_most_n_ubatch_rows(route_fake, n):
    rows = []
    with route_fake.stages(4) as route:
        route[1].on_frame = lambda frame: rows.append(len(frame.token_ids))
        tokens, _ = run(route_fake, route, n=1, prompt=PROMPT[:n])
    assert rows == [4] * (n // 4) + [n % 4] * (n % 4 > 0)
    assert tokens == route_fake.whole(PROMPT[:n], 1)[0]


def test_no_logits_come_where_none_were_asked_for(route_fake):
    with route_fake.stages() as route, RouteClient(route_fake.addresses(route)) as client:
        assert [step.logits.size for step in client.generate(PROMPT, 2)] == [0, 0]


def test_a_session_is_filled_to_its_last_position_and_no_further(route_fake):
    with route_fake.stages(4, n_ctx=12) as route:
        assert run(route_fake, route, n=3)[0] == route_fake.whole(PROMPT, 3)[0]  # the last token is not run
        with pytest.raises(UsageError):
            run(route_fake, route, n=4)
        with pytest.raises(UsageError):
            run(route_fake, route, n=1, prompt=[])


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("sequence", [1, 2, 3, 5])
def test_a_lost_cache_is_prefilled_again_without_a_gap_or_a_repeat(
    route_fake, results, lost, sequence, capsys
):
    with route_fake.stages(2, 7) as route:
        route[lost].on_frame = once_at(sequence, route[lost].forget)
        tokens, logits = run(route_fake, route, results=results)
        assert [stage.epochs for stage in route] == [[1, 2]] * 3
        assert not any(stage.sessions for stage in route)
    expected_tokens, expected_logits = route_fake.whole(PROMPT, 6)
    assert tokens == expected_tokens
    np.testing.assert_array_equal(logits, expected_logits)
    assert "epoch 2" in capsys.readouterr().err


@pytest.mark.parametrize("lost", [0, 1])
def test_a_cache_that_is_lost_before_the_hello_is_prefilled_again(route_fake, results, lost):
    with route_fake.stages(4) as route:
        route[lost].on_hello = lambda hello: hello.epoch == 1 and route[lost].forget()
        tokens, _ = run(route_fake, route, results=results)
        assert route[0].epochs == [1, 2]
    assert tokens == route_fake.whole(PROMPT, 6)[0]


def test_an_epoch_that_a_stage_finds_stale_is_followed_by_a_higher_one(route_fake):
    with route_fake.stages(4) as route:
        route[1].on_open = lambda asked: asked.epoch < 3 and fail(route[1]._miss(None, "stale epoch"))
        tokens, _ = run(route_fake, route)
        assert route[0].epochs == [3]
    assert tokens == route_fake.whole(PROMPT, 6)[0]


def test_caches_that_are_lost_again_and_again_end_the_run(route_fake, results):
    with route_fake.stages(4) as route:
        route[1].on_frame = lambda _: route[1].forget()
        with pytest.raises(RouteError) as caught:
            run(route_fake, route, results=results)
        assert route[0].epochs == [1, 2, 3, 4, 5]
    assert "5 times" in caught.value.message


def test_results_that_are_stale_or_come_twice_are_passed_over(route_fake, results):
    old = []

    def disturb(response):
        stale_epoch, early = type(response)(), type(response)()
        stale_epoch.CopyFrom(response)
        stale_epoch.epoch += 1
        stale_epoch.result.token += 1
        early.CopyFrom(response)
        early.result.sequence += 7
        early.result.token += 1
        old.append(response)
        return [stale_epoch, early, *old, response]

    with route_fake.stages(4) as route:
        route[1].on_result = disturb
        tokens, logits = run(route_fake, route, results=results)
    assert tokens == route_fake.whole(PROMPT, 6)[0]
    np.testing.assert_array_equal(logits, route_fake.whole(PROMPT, 6)[1])


def test_results_that_were_announced_twice_are_passed_over(route_fake):
    def announce(response):
        return [wire.pb2.ResultsResponse(epoch=response.epoch, ready=wire.pb2.Ready()), response]

    with route_fake.stages() as route:
        route[0].on_result = announce
        assert run(route_fake, route)[0] == route_fake.whole(PROMPT, 6)[0]


@pytest.mark.parametrize("dead", [1, 2])
@pytest.mark.parametrize("sequence", [1, 4])
def test_a_stage_that_dies_is_named_with_its_layers_and_address(route_fake, results, dead, sequence):
    with route_fake.stages(2, 7) as route:
        route[0].on_frame = once_at(sequence, route[dead].kill)
        begin = time.monotonic()
        with pytest.raises(RouteError) as caught:
            run(route_fake, route, results=results)
        assert time.monotonic() - begin < 5
    assert caught.value.exit_code == 10
    assert f"[{route[dead].first}, {route[dead].last})" in caught.value.message
    assert "UNAVAILABLE" in caught.value.message
    assert route[dead].address in caught.value.cause


def test_a_head_that_dies_is_named(route_fake, results):
    with route_fake.stages(4) as route, RouteClient(route_fake.addresses(route), results=results) as client:
        steps = client.generate(PROMPT, 6)
        next(steps)
        route[0].kill()
        with pytest.raises(RouteError) as caught:
            list(steps)
    assert "stage 0 [0, 4)" in caught.value.message


def test_a_stage_that_is_not_there_is_named_before_anything_runs(route_fake):
    with route_fake.stages(4) as route:
        route[1].kill()
        with pytest.raises(RouteError) as caught:
            RouteClient(route_fake.addresses(route))
    assert route[1].address in caught.value.message


@pytest.mark.parametrize("slow", [0, 1])
def test_a_frame_that_is_not_answered_in_time_ends_the_run(route_fake, results, slow, monkeypatch):
    monkeypatch.setattr("dgr_build.route.client._GRACE_S", 0.1)
    released = threading.Event()
    with route_fake.stages(4) as route:
        route[slow].on_frame = once_at(3, lambda: released.wait(10))
        begin = time.monotonic()
        with pytest.raises(RouteError) as caught:
            run(route_fake, route, results=results, frame_s=0.3)
        released.set()
        assert time.monotonic() - begin < 5
    assert "frame 3" in caught.value.cause


def test_stale_results_do_not_prolong_the_wait(route_fake, monkeypatch):
    monkeypatch.setattr("dgr_build.route.client._GRACE_S", 0.0)
    stop = threading.Event()

    def repeat(response):
        response.result.sequence += 7
        while not stop.wait(0.02):
            yield response

    with route_fake.stages() as route:
        route[0].on_result = repeat
        begin = time.monotonic()
        with pytest.raises(RouteError):
            run(route_fake, route, frame_s=0.3)
        stop.set()
        assert time.monotonic() - begin < 5


def test_the_time_that_a_frame_has_is_stated_and_never_zero(route_fake):
    stated = []
    with route_fake.stages() as route:
        route[0].on_frame = lambda frame: stated.append(frame.remaining_ms)
        run(route_fake, route, n=1, frame_s=0.0004)
    assert stated == [1, 1, 1]


def test_a_failure_of_a_later_stage_reaches_the_user_with_its_layers(route_fake, results):
    with route_fake.stages(2, 7) as route:
        broken = route[2].failure(grpc.StatusCode.INTERNAL, "a value is not finite")
        route[2].on_frame = once_at(4, lambda: fail(broken))
        with pytest.raises(RouteError) as caught:
            run(route_fake, route, results=results)
    assert "[7, 9)" in caught.value.message
    assert "INTERNAL" in caught.value.message
    assert "a value is not finite" in caught.value.cause


def test_the_status_of_frames_outranks_that_of_results(route_fake):
    with route_fake.stages(4) as route:

        def end_results_first(_):
            for held in route[1].sessions.values():
                held.results.put(route_fake.Refused(grpc.StatusCode.ABORTED, "frames stopped coming"))
            time.sleep(0.3)
            raise route[1].failure(grpc.StatusCode.INTERNAL, "the real cause")

        route[1].on_frame = end_results_first
        with pytest.raises(RouteError) as caught:
            run(route_fake, route)
    assert "INTERNAL" in caught.value.message
    assert "the real cause" in caught.value.cause


def test_the_status_of_results_is_told_where_frames_say_nothing(route_fake, monkeypatch):
    monkeypatch.setattr(session_module, "_AFTER_END_S", 0.2)
    with route_fake.stages(4) as route:

        def end_results(_):
            for held in route[1].sessions.values():
                held.results.put(route_fake.Refused(grpc.StatusCode.ABORTED, "displaced"))
            return []

        route[1].on_result = end_results
        with pytest.raises(RouteError) as caught:
            run(route_fake, route)
    assert "stage 1 [4, 9)" in caught.value.message
    assert "displaced" in caught.value.cause


def test_a_stream_that_ends_in_order_but_too_early_is_an_error(route_fake):
    with route_fake.stages() as route:
        route[0].on_result = lambda _: [None]  # ends the stream of results
        session_wait = session_module._AFTER_END_S
        session_module._AFTER_END_S = 0.2
        try:
            with pytest.raises(RouteError) as caught:
                run(route_fake, route)
        finally:
            session_module._AFTER_END_S = session_wait
    assert "ABORTED" in caught.value.message


@pytest.mark.parametrize("refusing", [0, 1, 2])
def test_a_refused_open_names_stage_and_field_and_leaves_no_session(route_fake, refusing):
    with route_fake.stages(2, 7) as route:
        differs = route_fake._rejected(grpc.StatusCode.FAILED_PRECONDITION, "cache.type_k", "differs")
        route[refusing].on_open = lambda _: fail(differs)
        with pytest.raises(RouteError) as caught:
            run(route_fake, route)
        assert not any(stage.sessions for stage in route)
    assert f"stage {refusing} " in caught.value.message
    assert "cache.type_k" in caught.value.message


def test_stages_are_opened_from_tail_to_head(route_fake):
    opened = []
    with route_fake.stages(2, 7) as route:
        for stage in route:
            stage.on_open = lambda asked: opened.append(asked.range.first)
        run(route_fake, route, n=1)
    assert opened == [7, 2, 0]


def test_logits_of_another_size_than_stated_are_an_error(route_fake):
    def shorten(response):
        response.result.logits = response.result.logits[:-4]
        return [response]

    with route_fake.stages() as route:
        route[0].on_result = shorten
        with pytest.raises(RouteError) as caught:
            run(route_fake, route)
    assert "result.logits" in caught.value.message


@pytest.mark.parametrize("end", [KeyboardInterrupt, None])
def test_sessions_are_closed_everywhere_when_the_run_is_given_up(route_fake, results, end):
    with (
        route_fake.stages(2, 7) as route,
        RouteClient(route_fake.addresses(route), results=results) as client,
    ):
        steps = client.generate(PROMPT, 6)
        next(steps)
        assert all(stage.sessions for stage in route)
        if end is None:
            steps.close()
        else:
            with pytest.raises(end):
                steps.throw(end())
        assert not any(stage.sessions for stage in route)


def test_nothing_runs_on_after_a_route(route_fake, results):
    with route_fake.stages(4) as route:
        run(route_fake, route, results=results)
        before = threading.active_count()
        for _ in range(10):
            run(route_fake, route, results=results, n=1)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("route-")]
        deadline = time.monotonic() + 5
        while threading.active_count() > before + 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert threading.active_count() <= before + 4  # idle threads of the fakes' pools come late
        assert not any(stage.sessions for stage in route)


def test_a_route_is_driven_directly_whatever_proxy_the_environment_names(route_fake, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with route_fake.stages() as route:
        assert run(route_fake, route, n=1)[0] == route_fake.whole(PROMPT, 1)[0]


def test_text_becomes_ids_and_ids_become_bytes_at_the_head(route_fake):
    with route_fake.stages(4) as route, RouteClient(route_fake.addresses(route)) as client:
        assert client.tokenize("ab") == [97 % 37, 98 % 37]
        assert client.detokenize([5]) == b"<5>"
        assert client.n_ubatch == 4
        assert client.n_ctx == 64
