"""The reference program: what it is asked, and what is made of its answer."""

import sys

import numpy as np
import pytest

from dgr_build.documents.recipe import Recipe
from dgr_build.errors import RouteError
from dgr_build.route.reference import WholeJob, run_whole

_ANSWER = """
import json, sys
import numpy as np
given = dict(zip(sys.argv[1:-1:2], sys.argv[2:-1:2]))
assert sys.argv[-1] == "--json", sys.argv
prompt = np.fromfile(given["--tokens"], "<i4").tolist()
rows = len(prompt) + int(given["--n-decode"])
(np.arange(rows * 5, dtype="<f4")).tofile(given["--logits"])
print(json.dumps({"tokens": prompt[::-1], "n_vocab": 5, "rows": rows, "prompt_us": 7, "decode_us": 9}))
"""


@pytest.fixture
def job(tmp_path):
    def make(script):
        program = tmp_path / "dgr-reference"
        body = tmp_path / "dgr-reference.py"
        body.write_text(script)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{body}" "$@"\n')  # a shebang holds no spaces
        program.chmod(0o755)
        stage = {"name": "all", "first": 0, "last": 12}
        recipe = Recipe.model_validate(
            {"name": "made", "purpose": "p", "model": {"tiny": {"arch": "llama"}}, "stages": [stage]}
        )
        return WholeJob(
            program=program, model=tmp_path / "tiny.gguf", recipe=recipe, prompt=[5, 6, 2**31 - 1], steps=4
        )

    return make


def test_tokens_go_in_and_tokens_logits_and_times_come_out(ws, job):
    whole = run_whole(ws, job(_ANSWER))
    assert whole.tokens == [2**31 - 1, 6, 5]
    np.testing.assert_array_equal(whole.logits, np.arange(35, dtype="<f4").reshape(7, 5))
    assert (whole.prompt_us, whole.decode_us) == (7, 9)
    for words in ("--n-prompt 3", "--n-decode 4", "--n-ubatch 64", "--n-ctx 512", "--flash-attn off"):
        assert words in whole.command
    assert list((ws.root / "run").iterdir()) == []


def test_the_words_of_a_program_that_fails_are_told(ws, job):
    with pytest.raises(RouteError) as caught:
        run_whole(ws, job("import sys; sys.exit('no such model')"))
    assert "no such model" in caught.value.cause
    assert "dgr-reference" in caught.value.remedy


@pytest.mark.parametrize(
    "script",
    [
        "print('not data')",
        "print('{}')",
        "print('[]')",
        'print(\'{"tokens": [], "n_vocab": 5, "prompt_us": 1, "decode_us": 1}\')',  # and no logits
        _ANSWER.replace('"n_vocab": 5', '"n_vocab": 4'),
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error_of_the_route(ws, job, script):
    with pytest.raises(RouteError) as caught:
        run_whole(ws, job(script))
    assert "dgr-build lane cpu" in caught.value.remedy
