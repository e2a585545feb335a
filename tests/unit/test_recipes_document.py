"""Recipes as documents: what is accepted, what is refused, and the ones that ship."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.artifacts.tiny import tiny_spec
from dgr_build.documents.base import parse, save_toml
from dgr_build.documents.recipe import Numerics, Recipe, load_recipe
from dgr_build.errors import UsageError
from dgr_build.recipes.placement import even_cuts

_SHIPPED = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def _data(**fields):
    base = {
        "name": "two",
        "purpose": "p",
        "model": {"tiny": {"arch": "deepseek4"}},
        "stages": [{"name": "head", "first": 0, "last": 20}, {"name": "tail", "first": 20, "last": 43}],
    }
    return {**base, **fields}


def _stages(*bounds):
    return [{"name": f"s{n}", "first": first, "last": last} for n, (first, last) in enumerate(bounds)]


@pytest.mark.parametrize("path", _SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipe_is_named_after_its_file_and_covers_its_model(path):
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    assert recipe.model.tiny is not None
    keys = {key.name: key.value for key in tiny_spec(recipe.model.tiny).keys}
    n_layer = keys["block_count"] - keys.get("nextn_predict_layers", 0)
    wanted = even_cuts(n_layer, len(recipe.stages))
    assert [(stage.first, stage.last) for stage in recipe.stages] == [
        (part.first, part.last) for part in wanted
    ]


def test_the_promised_recipes_ship():
    counts = {"whole": 1, "2stage": 2, "3stage": 3, "4stage": 4, "12stage": 12}
    shipped = {path.stem: load_recipe(path) for path in _SHIPPED}
    for word, count in counts.items():
        assert len(shipped[f"deepseek4-tiny-{word}"].stages) == count
    assert len(shipped["llama-tiny-2stage"].stages) == 2
    assert len(shipped["qwen3-tiny-2stage"].stages) == 2
    assert len(shipped["gemma3-tiny-3stage"].stages) == 3


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"stages": []}, "stages"),
        ({"stages": _stages((1, 43))}, "0 expected"),
        ({"stages": _stages((0, 10), (11, 43))}, "gap"),
        ({"stages": _stages((0, 10), (9, 43))}, "overlap"),
        ({"stages": _stages((0, 10), (10, 10), (10, 43))}, "no layer"),
        ({"stages": [{"name": "a", "first": 0, "last": 1}, {"name": "a", "first": 1, "last": 2}]}, "twice"),
        ({"stages": [{"name": "A b", "first": 0, "last": 1}]}, "name"),
        ({"model": {}}, "either"),
        ({"model": {"tiny": {"arch": "llama"}, "file": {"path": "/x", "digest": "0" * 64}}}, "either"),
        ({"model": {"tiny": {"arch": "deepseek4", "tied": True}}}, "tied"),
        ({"model": {"tiny": {"arch": "gemma3", "tied": True}}}, "tied"),
        ({"model": {"tiny": {"arch": "deepseek4", "split": 0}}}, "split"),
        ({"model": {"file": {"path": "/x", "digest": "abc"}}}, "digest"),
        ({"n_ctx": 32}, "n_ubatch"),
        ({"mode": "fastest"}, "mode"),
        ({"boundary": "f16"}, "boundary"),
        ({"numerics": {"flash_attn": "auto"}}, "flash_attn"),
        ({"numerics": {"type_v": "q8_0"}}, "flash_attn"),
        ({"numerics": {"n_threads": 0}}, "n_threads"),
        ({"n_slot": 2}, "n_slot"),
    ],
)
def test_wrong_recipes_are_refused_by_field(fields, named):
    with pytest.raises(UsageError) as caught:
        parse(_data(**fields), Recipe, "recipe.toml")
    assert named in caught.value.cause


@pytest.mark.parametrize("mode", [{}, {"mode": "exact"}, {"mode": "throughput"}])
def test_stages_on_unlike_lanes_are_mixed(mode):
    stages = _data()["stages"]
    stages[1]["lane"] = "vulkan"
    with pytest.raises(UsageError) as caught:
        parse(_data(stages=stages, **mode), Recipe, "recipe.toml")
    assert "cpu and vulkan" in caught.value.cause
    assert 'mode = "mixed"' in caught.value.cause
    assert parse(_data(stages=stages, mode="mixed"), Recipe, "recipe.toml").mode == "mixed"


@pytest.mark.parametrize("path", _SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_keep_their_mode_on_whatever_one_lane_they_are_put(path):
    recipe = load_recipe(path)
    moved = recipe.placed(("vulkan",))
    assert {stage.lane for stage in moved.stages} == {"vulkan"}
    assert moved.mode == recipe.mode
    assert moved.placed((recipe.stages[0].lane,)) == recipe


@given(st.lists(st.sampled_from(["cpu", "cuda", "vulkan"]), min_size=2, max_size=2).map(tuple))
def test_a_recipe_is_placed_stage_by_stage_and_is_exact_on_one_lane_only(lanes):
    recipe = parse(_data(), Recipe, "here")
    placed = recipe.placed(lanes)
    assert tuple(stage.lane for stage in placed.stages) == lanes
    assert placed.mode == ("exact" if len(set(lanes)) == 1 else "mixed")
    assert Recipe.model_validate(placed.model_dump()) == placed
    unlike = {"stages": recipe.stages, "mode": recipe.mode}
    assert placed.model_copy(update=unlike) == recipe


@pytest.mark.parametrize("lanes", [(), ("cpu", "cpu", "cpu")])
def test_lanes_that_do_not_match_the_stages_are_refused(lanes):
    with pytest.raises(UsageError) as caught:
        parse(_data(), Recipe, "here").placed(lanes)
    assert "one" in caught.value.remedy


def test_a_recipe_survives_being_written(tmp_path):
    recipe = parse(_data(), Recipe, "here")
    save_toml(tmp_path / "two.toml", recipe)
    assert load_recipe(tmp_path / "two.toml") == recipe
    assert load_recipe(tmp_path / "two.toml").digest() == recipe.digest()


def test_numerics_digest_tells_every_field_apart():
    changes = [
        {"n_ubatch": 17},
        {"n_threads": 2},
        {"n_threads_batch": 2},
        {"flash_attn": "on"},
        {"type_k": "q8_0"},
        {"type_v": "f32"},
    ]
    digests = {Numerics(**change).digest() for change in changes} | {Numerics().digest()}
    assert {name for change in changes for name in change} == set(Numerics.model_fields)
    assert len(digests) == len(changes) + 1
