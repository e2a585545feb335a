"""Placement: even division, legal cuts, and recipes against artifacts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.documents.artifact import ArtifactManifest, Part
from dgr_build.documents.recipe import Model, Numerics, Recipe, Stage, TinyModel
from dgr_build.errors import UsageError
from dgr_build.recipes.placement import check_placement, even_cuts, legal_cuts
from dgr_build.recipes.seam import bytes_per_token


def _manifest(**fields):
    base = {
        "arch": "deepseek4",
        "n_layer": 43,
        "n_layer_nextn": 1,
        "n_embd": 4096,
        "n_vocab": 10,
        "hc_mult": 4,
        "n_hash_layer": 3,
        "compress_ratios": (),
        "parts": (Part(file="m.gguf", size=1, sha256="0" * 64),),
        "tensors": (),
    }
    return ArtifactManifest(**{**base, **fields})


def _recipe(*bounds, **fields):
    stages = tuple(
        Stage(name=f"s{number}", first=first, last=last)
        for number, (first, last) in enumerate(pairwise(bounds))
    )
    return Recipe(
        name="r", purpose="p", model=Model(tiny=TinyModel(arch="deepseek4")), stages=stages, **fields
    )


@given(st.data())
def test_even_cuts_cover_every_layer_once_in_order(data):
    n_layer = data.draw(st.integers(1, 200))
    n_stages = data.draw(st.integers(1, n_layer))
    ranges = even_cuts(n_layer, n_stages)
    assert [layer for part in ranges for layer in range(part.first, part.last)] == list(range(n_layer))
    sizes = [part.last - part.first for part in ranges]
    assert len(sizes) == n_stages
    assert 1 <= min(sizes) <= max(sizes) <= min(sizes) + 1


@pytest.mark.parametrize(("n_layer", "n_stages"), [(43, 44), (43, 0), (1, 2), (3, -1)])
def test_stages_without_layers_are_refused(n_layer, n_stages):
    with pytest.raises(UsageError):
        even_cuts(n_layer, n_stages)


def test_v4_can_be_cut_anywhere_but_only_up_to_40_with_its_draft_head():
    cuts = legal_cuts(_manifest())
    assert [cut.at for cut in cuts] == list(range(1, 43))
    assert [cut.at for cut in cuts if not cut.draft_head] == [41, 42]


def test_without_predicting_blocks_every_cut_is_equal():
    assert all(cut.draft_head for cut in legal_cuts(_manifest(n_layer_nextn=0)))


def test_unknown_families_run_whole_only():
    manifest = _manifest(arch="mamba")
    assert legal_cuts(manifest) == ()
    check_placement(_recipe(0, 43), manifest)
    with pytest.raises(UsageError) as caught:
        check_placement(_recipe(0, 20, 43), manifest)
    assert "one stage" in caught.value.remedy


@given(st.sets(st.integers(1, 42)))
def test_every_set_of_cuts_is_accepted_for_v4(cuts):
    check_placement(_recipe(0, *sorted(cuts), 43), _manifest())


@pytest.mark.parametrize("end", [42, 44])
def test_stages_that_end_elsewhere_than_the_model_are_refused(end):
    with pytest.raises(UsageError) as caught:
        check_placement(_recipe(0, 20, end), _manifest())
    assert "43" in caught.value.remedy


def test_v4_refuses_cache_types_that_differ_and_llama_does_not():
    recipe = _recipe(0, 20, 43, numerics=Numerics(type_k="q8_0", type_v="f16"))
    with pytest.raises(UsageError) as caught:
        check_placement(recipe, _manifest())
    assert "type_v" in caught.value.remedy
    check_placement(recipe, _manifest(arch="llama", hc_mult=1))


def test_a_seam_of_the_real_v4_costs_64_kib_a_token():
    assert bytes_per_token(_manifest()) == 64 * 1024
    assert bytes_per_token(_manifest(arch="llama", hc_mult=1)) == 16 * 1024
