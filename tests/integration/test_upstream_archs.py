"""The stack changes nothing for a whole model: upstream's own test, and bits, on both trees."""

from __future__ import annotations

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.flows.lane_source import publish_source
from dgr_build.lanes.upstream_tests import run_archs
from dgr_build.recipes.placement import STAGED


@pytest.fixture(scope="module")
def verdicts(project_workspace):
    ws = project_workspace
    epoch = publish_source(ws).facts.epoch
    trees = {"base": ws.base_source, "patched": ws.source}
    matrix = load_matrix(ws.matrix_file)
    return {name: run_archs(ws, matrix, tree, name, epoch=epoch) for name, tree in trees.items()}


@pytest.mark.parametrize("tree", ["base", "patched"])
def test_upstreams_test_of_every_architecture_passes(verdicts, tree, record_property):
    verdict = verdicts[tree]
    record_property("configurations", verdict.passed)
    assert verdict.failed == ()
    assert verdict.passed > 100
    assert set(STAGED) <= verdict.architectures


def test_the_stack_neither_adds_nor_loses_a_configuration(verdicts):
    assert verdicts["base"].passed == verdicts["patched"].passed
    assert verdicts["base"].architectures == verdicts["patched"].architectures


@pytest.mark.parametrize("arch", STAGED)
def test_a_whole_model_gives_the_same_bits_on_both_libraries(route, reference, tiny, on_the_wire, arch):
    model = tiny(arch)
    prompt = on_the_wire.prompt(130)
    with on_the_wire.Session(route((), model)) as session:
        logits, tokens = session.generate(prompt, 20)
    wanted, wanted_tokens, _ = reference(model, prompt, 20)
    assert logits.tobytes() == wanted.tobytes()
    assert tokens == wanted_tokens
