"""A model over any number of workers gives exactly the logits of the unsplit model on the base library.

Both sides compute on one thread; logits are compared as bytes; the reference links nothing of ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack

import numpy as np
import pytest

_STEPS = 40
_LAYERS = 43


def _even(stages):
    return tuple(round(_LAYERS * stage / stages) for stage in range(1, stages))


# W27, W29: each number of stages, cut, prompt length and ubatch at least once; more where it is cheap.
_MATRIX = [
    pytest.param(cuts, n_ubatch, lengths, id=f"{name}-ubatch{n_ubatch}")
    for name, cuts, n_ubatch, lengths in (
        ("whole", (), 64, (127, 128, 129, 130, 300)),
        ("whole", (), 17, (130, 300)),
        ("whole", (), 512, (128, 300)),
        ("2stages", _even(2), 512, (129, 300)),
        ("2stages", _even(2), 17, (128, 300)),
        ("3stages", _even(3), 64, (127, 128, 129, 130, 300)),
        ("4stages", _even(4), 17, (127, 130, 300)),
        ("7stages", _even(7), 512, (127, 300)),
        ("12stages", _even(12), 64, (128, 300)),
        ("43stages", _even(43), 64, (129, 300)),
        ("cut1", (1,), 64, (128, 300)),
        ("cut2", (2,), 17, (127, 130)),
        ("cuts1and2", (1, 2), 64, (129, 300)),
    )
]


def _require_equal(logits, tokens, expected, record_property, **facts):
    wanted, wanted_tokens, said = expected
    assert logits.shape == wanted.shape
    assert np.isfinite(logits).all()
    assert len({row.tobytes() for row in logits}) > len(logits) // 2, "a constant output proves nothing"
    difference = float(np.abs(logits.astype("f8") - wanted).max())
    measured = {"rows": len(logits), "max_abs_diff": difference, "reference_decode_us": said["decode_us"]}
    record_property("metric", json.dumps(facts | measured))
    assert logits.tobytes() == wanted.tobytes(), f"max |d| is {difference}"
    assert tokens == wanted_tokens


@pytest.mark.parametrize(("cuts", "n_ubatch", "lengths"), _MATRIX)
def test_a_split_equals_the_whole_bit_for_bit(
    cuts, n_ubatch, lengths, route, reference, tiny, on_the_wire, record_property
):
    workers = route(cuts, n_ubatch=n_ubatch)
    for length in lengths:
        prompt = on_the_wire.prompt(length)
        expected = reference(tiny(), prompt, _STEPS, n_ubatch=n_ubatch)
        start = time.monotonic()
        with on_the_wire.Session(workers) as session:
            logits, tokens = session.generate(prompt, _STEPS)
        facts = {
            "stages": len(workers),
            "cuts": cuts,
            "n_ubatch": n_ubatch,
            "prompt": length,
            "steps": _STEPS,
        }
        facts["route_s"] = round(time.monotonic() - start, 3)
        _require_equal(logits, tokens, expected, record_property, **facts)


def test_w30_two_sessions_in_turn_equal_each_alone(route, reference, tiny, on_the_wire, record_property):
    workers = route(_even(3), n_ubatch=64)
    prompts = [on_the_wire.prompt(300, seed=1), on_the_wire.prompt(129, seed=2)]
    with on_the_wire.Session(workers) as one, on_the_wire.Session(workers) as other:
        sessions = (one, other)
        parts = ([], [])
        # prefill frames in turn, then decode steps in turn
        for at in range(0, 300, 64):
            for session, prompt, logits in zip(sessions, prompts, parts, strict=True):
                if at < len(prompt):
                    logits.append(session.run(prompt[at : at + 64]))
        runs = [(s, p, [int(p[-1][-1].argmax())]) for s, p in zip(sessions, parts, strict=True)]
        outcomes = on_the_wire.finish(runs, _STEPS)
    for (logits, tokens), prompt in zip(outcomes, prompts, strict=True):
        expected = reference(tiny(), prompt, _STEPS)
        _require_equal(logits, tokens, expected, record_property, sessions=2, stages=3, prompt=len(prompt))


@pytest.mark.parametrize("crowd", [4, 8])
def test_w30_sessions_in_random_order_equal_each_alone(
    route, reference, tiny, on_the_wire, record_property, crowd
):
    workers = route(_even(3), slots=8, n_ctx=256)
    prompts = [on_the_wire.prompt(120 + 7 * number, seed=number) for number in range(crowd)]
    order = np.random.default_rng(crowd)
    with ExitStack() as stack:
        sessions = [stack.enter_context(on_the_wire.Session(workers)) for _ in prompts]
        parts, ran = [[] for _ in prompts], [0] * crowd
        while waiting := [at for at in range(crowd) if ran[at] < len(prompts[at])]:
            at = order.choice(waiting)
            parts[at].append(sessions[at].run(prompts[at][ran[at] : ran[at] + 64]))
            ran[at] += 64
        runs = [(s, p, [int(p[-1][-1].argmax())]) for s, p in zip(sessions, parts, strict=True)]
        for _ in range(10):
            on_the_wire.finish([runs[at] for at in order.permutation(crowd)], 1)
        outcomes = on_the_wire.finish(runs, 0)
    for (logits, tokens), prompt in zip(outcomes, prompts, strict=True):
        expected = reference(tiny(), prompt, 10, n_ctx=256, n_seq_max=8)
        _require_equal(logits, tokens, expected, record_property, sessions=crowd, prompt=len(prompt))


_DENSE = [
    pytest.param(arch, cuts, n_ubatch, id=f"{arch}-{len(cuts) + 1}-ubatch{n_ubatch}")
    for arch, cuts, n_ubatch in (
        ("llama", (), 64),
        ("llama", (6,), 64),
        ("llama", (1, 11), 64),
        ("llama", (3, 7, 9), 64),
        ("qwen3", (), 64),
        ("qwen3", (4,), 17),
        ("qwen3", (1, 7), 64),
        # gemma3's layers 5 and 11 alone see past a window: some stages have but one kind of layer
        ("gemma3", (), 64),
        ("gemma3", (5,), 17),
        ("gemma3", (5, 6, 11), 64),
        ("gemma3", tuple(range(1, 12)), 512),
    )
]


@pytest.mark.parametrize(("arch", "cuts", "n_ubatch"), _DENSE)
def test_a_dense_model_equals_the_whole_too(
    arch, cuts, n_ubatch, route, reference, tiny, on_the_wire, record_property
):
    model = tiny(arch)
    workers = route(cuts, model, n_ubatch=n_ubatch)
    for length in (130,) if arch == "llama" else (33, 300):
        prompt = on_the_wire.prompt(length)
        with on_the_wire.Session(workers) as session:
            logits, tokens = session.generate(prompt, _STEPS)
        expected = reference(model, prompt, _STEPS, n_ubatch=n_ubatch)
        facts = {"arch": arch, "stages": len(workers), "n_ubatch": n_ubatch, "prompt": length}
        _require_equal(logits, tokens, expected, record_property, **facts)


@pytest.mark.parametrize(
    "recipe",
    [
        *(f"deepseek4-tiny-{n}" for n in ("whole", "2stage", "3stage", "4stage", "12stage")),
        "llama-tiny-2stage",
        "qwen3-tiny-2stage",
        "gemma3-tiny-3stage",
    ],
)
def test_the_run_command_finds_no_difference(recipe, built_cpu_lane, project_root, record_property):
    command = [sys.executable, "-m", "dgr_build", "run", recipe, "--prompt", "Once upon"]
    command += ["--max-tokens", "12", "--compare", "whole", "--json"]
    done = subprocess.run(
        command, cwd=project_root, capture_output=True, check=False, env=os.environ, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    told = ("max_abs_diff", "rows_compared", "tokens_per_second", "seconds")
    record_property("metric", json.dumps({"recipe": recipe} | {name: said[name] for name in told}))
    assert said["logits_equal"]
    assert said["max_abs_diff"] == 0
    assert said["rows_compared"] > 12
    assert said["token_ids"] == said["whole_token_ids"]
