"""Sampled runs over real workers: the seed decides, not where the model is cut nor what was lost."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys

import grpc
import numpy as np
import pytest

from dgr_build.documents.sampling import Sampling
from dgr_build.route.client import RouteClient

_CODE = grpc.StatusCode
_N = 32
_CUTS = {"deepseek4": [(), (21,), (14, 29)], "llama": [(), (6,), (4, 8)]}
_WARM = Sampling(
    temperature=0.9,
    top_k=60,
    top_p=0.97,
    min_p=0.01,
    penalty_window=40,
    repetition_penalty=1.1,
    frequency_penalty=0.05,
    presence_penalty=0.1,
    seed=2**64 - 59,
)
_WAYS = [_WARM, Sampling(temperature=1.5, seed=1), Sampling(presence_penalty=2.0, penalty_window=8)]


def _run(workers, prompt, sampling, *, logits=False, results="direct"):
    with RouteClient([worker.address for worker in workers], results=results) as client:
        steps = list(client.generate(prompt, _N, sampling=sampling, logits=logits))
    return [step.token for step in steps], np.concatenate([step.logits for step in steps])


@pytest.mark.parametrize("arch", _CUTS)
@pytest.mark.parametrize("sampling", _WAYS, ids=Sampling.to_text)
def test_the_same_seed_gives_the_same_tokens_whole_and_cut(route, tiny, on_the_wire, arch, sampling):
    prompt = on_the_wire.prompt(70)
    runs = [_run(route(cuts, tiny(arch)), prompt, sampling, logits=True) for cuts in _CUTS[arch]]
    tokens, logits = runs[0]
    assert len(set(tokens)) > _N // 4
    for other_tokens, other_logits in runs[1:]:
        assert other_tokens == tokens
        assert other_logits.tobytes() == logits.tobytes()
    quiet, _ = _run(route(_CUTS[arch][2], tiny(arch)), prompt, sampling, results="chain")
    assert quiet == tokens
    assert tokens != _run(route((), tiny(arch)), prompt, Sampling())[0]
    if sampling.temperature:
        other = sampling.model_copy(update={"seed": 12})
        assert tokens != _run(route((), tiny(arch)), prompt, other)[0]


def test_nothing_asked_is_the_greedy_choice_of_the_unmodified_library(route, reference, tiny, on_the_wire):
    prompt = on_the_wire.prompt(70)
    workers = route(_CUTS["deepseek4"][2])
    _, wanted, _ = reference(tiny(), prompt, _N - 1)
    assert _run(workers, prompt, _WARM)[0] != wanted  # the slot was used for another way before
    for sampling in (Sampling(), Sampling(seed=5, top_k=7, top_p=0.5)):
        assert _run(workers, prompt, sampling)[0] == wanted


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["head", "middle", "tail"])
@pytest.mark.parametrize(("arch", "after"), [("llama", 1), ("llama", 13), ("deepseek4", 13)])
def test_a_stage_that_is_killed_and_replaced_changes_no_token(
    route, start_worker, tiny, on_the_wire, lost, arch, after
):
    artifact, cuts = tiny(arch), _CUTS[arch][2]
    prompt = on_the_wire.prompt(70)
    undisturbed, logits = _run(route(cuts, artifact), prompt, _WARM, logits=True)
    bounds = list(itertools.pairwise((0, *cuts, artifact.manifest.n_layer)))
    workers = [start_worker(artifact, *layers) for layers in bounds]
    workers = [worker.ready() for worker in workers]
    tokens, rows, epochs = [], [], []
    with RouteClient([worker.address for worker in workers]) as client:
        opened = client.open
        client.open = lambda session, epoch, *rest: epochs.append(epoch) or opened(session, epoch, *rest)
        for step in client.generate(prompt, _N, sampling=_WARM, logits=True):
            tokens.append(step.token)
            rows.append(step.logits)
            if len(tokens) == after:
                workers[lost].child.signal(signal.SIGKILL)
                workers[lost].child.wait(20)
                again = start_worker(artifact, *bounds[lost], listen=workers[lost].address).ready()
                workers[lost].channel.close()
                workers[lost] = again
    assert epochs == [1, 2]
    assert tokens == undisturbed
    assert np.concatenate(rows).tobytes() == logits.tobytes()
    for worker in workers:
        worker.stop()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("top_k", 2**20 + 1),
        ("top_p", 0.0),
        ("min_p", 1.5),
        ("penalty_window", 2**32 - 1),
        ("repetition_penalty", 0.0),
        ("frequency_penalty", math.inf),
        ("presence_penalty", -101.0),
    ],
)
def test_a_bad_value_is_refused_by_name_with_what_is_legal(route, on_the_wire, field, value):
    workers = route((14, 29))
    before = workers[-1].status.slots_free
    request = on_the_wire.Session(workers, open_now=False).open_request(2)
    request.sampling.temperature = 1
    setattr(request.sampling, field, value)
    with pytest.raises(on_the_wire.Refused) as refused:
        on_the_wire.ask(workers[-1].stub.OpenSession, request)
    assert refused.value.code is _CODE.INVALID_ARGUMENT
    assert refused.value.field == f"sampling.{field}"
    assert " to " in refused.value.rejected.legal
    assert workers[-1].status.slots_free == before
    assert workers[-1].alive


def test_a_stage_that_is_not_the_tail_refuses_it(route, on_the_wire):
    workers = route((14, 29))
    request = on_the_wire.Session(workers, open_now=False).open_request(1)
    request.sampling.temperature = 1
    with pytest.raises(on_the_wire.Refused) as refused:
        on_the_wire.ask(workers[1].stub.OpenSession, request)
    assert (refused.value.code, refused.value.field) == (_CODE.INVALID_ARGUMENT, "sampling")


def test_the_run_command_samples_alike_whole_and_cut(built_cpu_lane, project_root):
    command = [sys.executable, "-m", "dgr_build", "run", "deepseek4-tiny-3stage", "--max-tokens", "12"]
    command += ["--temperature", "0.8", "--top-p", "0.95", "--seed", "7"]
    command += ["--compare-recipe", "deepseek4-tiny-whole", "--json"]
    done = subprocess.run(
        command, cwd=project_root, capture_output=True, check=False, env=os.environ, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["logits_equal"]
    assert said["token_ids"] == said["whole_token_ids"]
    assert (said["sampling"]["temperature"], said["sampling"]["top_p"], said["sampling"]["seed"]) == (
        0.8,
        0.95,
        7,
    )
