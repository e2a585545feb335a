"""Whether stages are the route that is meant, judged before a session is opened."""

from types import SimpleNamespace

import pytest

from dgr_build.documents.recipe import Numerics, Recipe
from dgr_build.errors import RouteError
from dgr_build.flows.run import expected_of
from dgr_build.route.agreement import Expected
from dgr_build.route.client import RouteClient
from dgr_build.route.program import Program

_LANE = "cd" * 32


@pytest.fixture
def route(route_fake, monkeypatch):
    describe = route_fake.FakeStage.Describe

    def with_threads(stage, request, context):
        about = describe(stage, request, context)
        about.numerics.n_threads = about.numerics.n_threads_batch = 1
        return about

    monkeypatch.setattr(route_fake.FakeStage, "Describe", with_threads)
    with route_fake.stages(4) as started:
        yield started


@pytest.fixture
def expected(route_fake):
    def make(**changes):
        numerics = Numerics(n_ubatch=changes.pop("n_ubatch", 4), flash_attn=changes.pop("flash_attn", "off"))
        right = {
            "artifact_digest": route_fake.ARTIFACT,
            "ranges": ((0, 4), (4, 9)),
            "lane_digests": (_LANE, _LANE),
            "numerics": numerics,
        }
        return Expected(**{**right, **changes})

    return make


def test_the_stages_of_the_recipe_are_taken(route_fake, route, expected):
    with RouteClient(route_fake.addresses(route), expected=expected()) as client:
        assert len(list(client.generate([1, 2, 3], 2))) == 2


@pytest.mark.parametrize(
    ("changes", "stage", "fact"),
    [
        ({"artifact_digest": "00" * 32}, 0, "artifact"),
        ({"ranges": ((0, 4), (4, 10))}, 1, "layers"),
        ({"lane_digests": (_LANE, "00" * 32)}, 1, "lane digest"),
        ({"n_ubatch": 8}, 0, "numerics.n_ubatch"),
        ({"flash_attn": "on"}, 0, "numerics.flash_attn"),
    ],
)
def test_a_stage_that_is_not_as_the_recipe_has_it_is_named(route_fake, route, expected, changes, stage, fact):
    with pytest.raises(RouteError) as caught:
        RouteClient(route_fake.addresses(route), expected=expected(**changes))
    assert f"stage {stage} " in caught.value.message
    assert fact in caught.value.cause
    assert route[0].epochs == []


def test_another_number_of_stages_than_the_recipe_has_is_refused(route_fake, route, expected):
    with pytest.raises(RouteError):
        RouteClient(route_fake.addresses(route), expected=expected(ranges=((0, 9),), lane_digests=(_LANE,)))


@pytest.mark.parametrize(
    ("order", "stage"),
    [((1, 0), 0), ((0,), 0), ((1,), 0), ((0, 0), 1)],
    ids=["turned", "head", "tail", "twice"],
)
def test_stages_that_do_not_join_are_refused(route_fake, route, order, stage):
    addresses = route_fake.addresses(route)
    with pytest.raises(RouteError) as caught:
        RouteClient([addresses[index] for index in order])
    assert f"stage {stage} " in caught.value.message


def test_a_run_expects_what_recipe_model_and_programs_say(tmp_path):
    worker = tmp_path / "worker"
    worker.write_text(f'#!/bin/sh\necho \'{{"lane_digest": "{_LANE}"}}\'\n')
    worker.chmod(0o755)
    stages = [{"name": "head", "first": 0, "last": 4}, {"name": "tail", "first": 4, "last": 9}]
    recipe = Recipe.model_validate(
        {"name": "made", "purpose": "p", "model": {"tiny": {"arch": "llama"}}, "stages": stages}
    )
    expected = expected_of(recipe, SimpleNamespace(digest="ab" * 32), {"cpu": Program(path=worker)})
    assert expected.ranges == ((0, 4), (4, 9))
    assert expected.lane_digests == (_LANE, _LANE)
    assert expected.artifact_digest == "ab" * 32
    assert expected.numerics == recipe.numerics
    assert not expected.mixed
