"""How tokens are chosen: as a document, on the wire, through the client and on the command line."""

import math

import grpc
import pytest

from dgr_build.documents.base import digest, parse
from dgr_build.documents.recipe import Recipe
from dgr_build.documents.sampling import Sampling
from dgr_build.errors import RouteError, UsageError
from dgr_build.route import wire
from dgr_build.route.client import RouteClient
from dgr_build.route.sampling import to_wire

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
_WARM = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=2**64 - 1)


@pytest.fixture
def recipe():
    stages = [{"name": "whole", "first": 0, "last": 9}]
    model = {"tiny": {"arch": "llama"}}
    return Recipe.model_validate({"name": "made", "purpose": "p", "model": model, "stages": stages})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [-0.1, 0.0009, 100.1, math.nan, math.inf]),
        ("top_k", [-1, 2**20 + 1, 1.5]),
        ("top_p", [0, -1, 1.01, math.nan]),
        ("min_p", [-0.1, 1.01, math.nan]),
        ("penalty_window", [-1, 2**20 + 1]),
        ("repetition_penalty", [0, 0.09, 10.1, math.nan]),
        ("frequency_penalty", [-100.1, 100.1, math.nan, math.inf]),
        ("presence_penalty", [-100.1, 100.1, math.nan, -math.inf]),
        ("seed", [-1, 2**64]),
        ("topk", [1]),
    ],
)
def test_a_value_outside_its_range_is_refused_by_name(field, values):
    for value in values:
        with pytest.raises(UsageError) as caught:
            parse({field: value}, Sampling, "here")
        assert field in caught.value.cause


def test_a_penalty_needs_a_window():
    for penalty in ({"repetition_penalty": 1.1}, {"frequency_penalty": 0.1}, {"presence_penalty": -1}):
        with pytest.raises(UsageError) as caught:
            parse({"penalty_window": 0, **penalty}, Sampling, "here")
        assert "penalty_window" in caught.value.cause
        assert parse(penalty, Sampling, "here").penalty_window == 64


def test_the_wire_carries_every_value_and_nothing_where_nothing_is_asked():
    assert to_wire(Sampling()) is None
    assert to_wire(Sampling(seed=5, top_k=3)) is None  # greedy still
    sampling = _WARM.model_copy(update={"repetition_penalty": 1.5, "presence_penalty": -0.5, "seed": 7})
    message = to_wire(sampling)
    names = [field.name for field in wire.pb2.Sampling.DESCRIPTOR.fields]
    assert names == list(Sampling.model_fields)
    for name in names:
        assert getattr(message, name) == pytest.approx(getattr(sampling, name), rel=1e-7)
    assert to_wire(Sampling(presence_penalty=1)).temperature == 0  # greedy, but not the model's own choice


def test_a_recipe_states_its_sampling_and_keeps_its_digest_where_it_has_none(recipe):
    data = recipe.model_dump()
    assert recipe.sampling.is_plain
    assert Recipe.model_validate({**data, "sampling": {}}).digest() == recipe.digest()
    warm = Recipe.model_validate({**data, "sampling": {"temperature": 0.5, "seed": 3}})
    assert warm.sampling == Sampling(temperature=0.5, seed=3)
    assert warm.digest() != recipe.digest()
    before = recipe.model_dump(mode="json", exclude={"sampling", "tls"})
    assert recipe.digest() == digest(before)
    with pytest.raises(UsageError):
        parse({**data, "sampling": {"top_p": 2}}, Recipe, "here")


def test_values_of_a_recipe_are_changed_one_by_one(recipe):
    warm = recipe.sampled({"temperature": 0.8, "seed": 4})
    assert warm.sampled({"seed": 5}).sampling == Sampling(temperature=0.8, seed=5)
    assert warm.sampled({"temperature": 0}).sampling.is_plain
    for idle in ({"seed": 1}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.5}):
        with pytest.raises(UsageError) as caught:
            recipe.sampled(idle)
        assert "temperature" in caught.value.remedy
    assert recipe.sampled({"repetition_penalty": 2.0}).sampling.to_text() == "repetition_penalty 2.0"


@pytest.mark.parametrize("results", ["direct", "chain"])
def test_the_tail_alone_is_asked_and_the_seed_decides(route_fake, results):
    seen = {}
    with (
        route_fake.stages(2, 7) as route,
        RouteClient(route_fake.addresses(route), results=results) as client,
    ):
        for index, stage in enumerate(route):
            stage.on_open = lambda request, index=index: seen.setdefault(index, []).append(request)

        def tokens(sampling):
            return [step.token for step in client.generate(PROMPT, 6, sampling=sampling)]

        one, again = tokens(_WARM), tokens(_WARM)
        other, greedy = tokens(_WARM.model_copy(update={"seed": 3})), tokens(Sampling())
    assert one == again != other
    assert greedy == route_fake.whole(PROMPT, 6)[0] != one
    assert [r.HasField("sampling") for r in seen[2]] == [True, True, True, False]
    assert not any(r.HasField("sampling") for r in seen[0] + seen[1])
    assert seen[2][0].sampling == to_wire(_WARM)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("sequence", [1, 4], ids=["prefill", "decode"])
def test_a_replaced_stage_changes_no_token(route_fake, index, sequence):
    def generate(route):
        with RouteClient(route_fake.addresses(route)) as client:
            return [step.token for step in client.generate(PROMPT, 6, sampling=_WARM)]

    with route_fake.stages(2, 7) as route:
        undisturbed = generate(route)
    with route_fake.stages(2, 7) as route:
        stage = route[index]

        def lose(frame):
            if frame.sequence == sequence and stage.epochs == [1]:
                stage.forget()
                stage.instance = "another"
                raise route_fake.Refused(grpc.StatusCode.UNAVAILABLE, "connection reset")

        stage.on_frame = lose
        assert generate(route) == undisturbed
        assert [one.epochs for one in route] == [[1, 2]] * 3


def test_a_tail_that_would_choose_greedily_is_found_out_at_open(route_fake):
    with route_fake.stages(4) as route, RouteClient(route_fake.addresses(route)) as client:
        route[1].takes_sampling = False
        with pytest.raises(RouteError) as caught:
            next(client.generate(PROMPT, 2, sampling=_WARM))
        assert "stage 1" in caught.value.message
        assert "greedily" in caught.value.cause
        assert next(client.generate(PROMPT, 2)).token == route_fake.whole(PROMPT, 1)[0][0]
