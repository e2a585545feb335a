"""The story of `dgr-build run` over fake stages, and its command line."""

import json
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dgr_build.cli.main import run as cli
from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.recipe import Model, ModelFile, Recipe, TinyModel
from dgr_build.documents.tls import Tls
from dgr_build.errors import CheckError, HostError, UsageError
from dgr_build.flows import run as flow
from dgr_build.flows import run_judge
from dgr_build.flows.run_judge import Judge, judge_of
from dgr_build.route.program import Program
from dgr_build.route.reference import WholeRun
from dgr_build.route.tls import ClientTls

_TEXT = "aä€😀\n".encode()

_VOCABULARY = 1 << 20


@pytest.fixture
def recipe():
    stages = [{"name": "head", "first": 0, "last": 4}, {"name": "tail", "first": 4, "last": 9}]
    return Recipe.model_validate(
        {"name": "made", "purpose": "p", "model": {"tiny": {"arch": "llama"}}, "stages": stages}
    )


@pytest.fixture
def ws(ws, project_root):
    """The workspace, with the project's own lanes."""
    ws.matrix_file.parent.mkdir(parents=True)
    ws.matrix_file.write_bytes((project_root / "lanes" / "matrix.toml").read_bytes())
    return ws


@pytest.fixture
def faked(route_fake, recipe, monkeypatch, tmp_path):
    """`run_recipe` over fake stages; `asked` keeps jobs of the whole model, `wrong` bends its answer."""
    state = SimpleNamespace(asked=[], wrong=lambda whole: whole)

    @contextmanager
    def started(ws, recipe, programs, artifact):
        assert programs == {"cpu": Program(path=tmp_path / "dgr-shard-worker")}
        with route_fake.stages(4) as route:
            state.route = route
            yield [SimpleNamespace(address=stage.address) for stage in route]

    def whole(_ws, job):
        state.asked.append(job)
        tokens, logits = route_fake.whole(list(job.prompt), job.steps + 1)
        answer = WholeRun(tokens=tokens, logits=logits, prompt_us=5, decode_us=7, command="c")
        return state.wrong(answer)

    monkeypatch.setattr(flow, "find_recipe", lambda *_: recipe)
    monkeypatch.setattr(
        flow,
        "artifact_of",
        lambda _: SimpleNamespace(digest="ab" * 32, manifest=SimpleNamespace(n_vocab=_VOCABULARY), path=None),
    )
    monkeypatch.setattr(flow, "check_placement", lambda *_: None)
    monkeypatch.setattr(flow, "worker_of", lambda *_: Program(path=tmp_path / "dgr-shard-worker"))
    monkeypatch.setattr(flow, "reference_of", lambda *_: tmp_path / "dgr-reference")
    monkeypatch.setattr(flow, "expected_of", lambda *_: None)
    monkeypatch.setattr(flow, "workers", started)
    monkeypatch.setattr(flow, "run_whole", whole)
    return state


def request(**fields):
    return flow.RunRequest(recipe="made", **fields)


def test_a_run_gives_the_whole_models_tokens_and_says_so(faked, route_fake, ws):
    outcome = flow.run_recipe(ws, request(tokens=(5, 6, 7), max_tokens=4, compare=True))
    assert list(outcome.token_ids) == route_fake.whole([5, 6, 7], 4)[0]
    assert outcome.parity.sound
    assert outcome.parity.rows == 6
    assert (faked.asked[0].prompt, faked.asked[0].steps) == ([5, 6, 7], 3)
    assert set(outcome.seconds) == {"route_prefill", "route_decode", "whole_prefill", "whole_decode"}
    assert not any(stage.sessions for stage in faked.route)


def test_a_folder_of_certificates_reaches_workers_and_client(faked, ws, tmp_path, monkeypatch):
    seen = []
    started, client = flow.workers, flow.RouteClient

    def start(ws, recipe, programs, artifact):
        seen.append(recipe.tls)
        return started(ws, recipe, programs, artifact)

    def connect(addresses, *, tls, **options):
        seen.append(tls)
        return client(addresses, **options)  # the fake stages speak plaintext

    monkeypatch.setattr(flow, "workers", start)
    monkeypatch.setattr(flow, "RouteClient", connect)
    outcome = flow.run_recipe(ws, request(tokens=(5,), max_tokens=2, tls=tmp_path))
    files = Tls.of_folder(tmp_path)
    assert seen == [files, ClientTls.of(files)]
    assert outcome.to_json()["transport"] == "mutual TLS"
    assert flow.run_recipe(ws, request(tokens=(5,), max_tokens=2)).to_json()["transport"] == "plaintext"
    assert seen[2:] == [None, None]


def test_workers_that_run_already_are_used_as_they_are(faked, route_fake, ws, monkeypatch):
    monkeypatch.setattr(flow, "workers", lambda *_: pytest.fail("started"))
    with route_fake.stages(4) as route:
        at = tuple(route_fake.addresses(route))
        outcome = flow.run_recipe(ws, request(tokens=(5, 6, 7), max_tokens=4, at=at))
    assert list(outcome.token_ids) == route_fake.whole([5, 6, 7], 4)[0]


def test_a_cache_that_is_lost_on_the_way_does_not_disturb_the_comparison(faked, ws):
    lost = []

    def lose():
        def hook(frame):
            if frame.sequence == 3 and not lost:
                lost.append(frame)
                faked.route[1].forget()

        faked.route[1].on_frame = hook

    outcome = flow.run_recipe(
        ws, request(tokens=(5, 6, 7, 8, 9), max_tokens=4, compare=True, on_text=lambda _: lost or lose())
    )
    assert lost
    assert outcome.parity.sound


def test_the_prompt_becomes_ids_at_the_head(faked, ws):
    assert flow.run_recipe(ws, request(prompt="ab", max_tokens=1)).prompt_ids == (97 % 37, 98 % 37)
    assert faked.asked == []


def flip_a_bit(whole):
    whole.logits.view("<u4")[-1, 3] ^= 1
    return whole


@pytest.mark.parametrize(
    "wrong",
    [
        flip_a_bit,
        lambda whole: replace(whole, logits=whole.logits[:-1]),
        lambda whole: replace(whole, tokens=[*whole.tokens[:-1], 0]),
    ],
    ids=["bit", "row", "token"],
)
def test_a_difference_from_the_whole_model_fails_the_check(faked, ws, wrong):
    faked.wrong = wrong
    with pytest.raises(CheckError):
        flow.run_recipe(ws, request(tokens=(5, 6, 7), max_tokens=4, compare=True))


def test_beside_another_recipe_of_the_model_the_text_is_told_once(faked, ws, route_fake):
    pieces, ends = [], []
    outcome = flow.run_recipe(
        ws,
        request(
            tokens=(5, 6, 7),
            max_tokens=4,
            compare_recipe="other",
            on_text=pieces.append,
            on_end=lambda: ends.append(1),
        ),
    )
    assert outcome.parity.sound
    assert faked.asked == []  # the whole model was not run
    assert "".join(pieces) == outcome.text
    assert len(ends) == 1


def test_a_recipe_of_another_model_is_no_comparison(faked, ws, recipe, monkeypatch):
    other = recipe.model_copy(update={"model": Model(tiny=TinyModel(arch="deepseek4"))})
    monkeypatch.setattr(flow, "find_recipe", lambda _, name: other if name == "other" else recipe)
    with pytest.raises(UsageError):
        flow.run_recipe(ws, request(tokens=(5, 6, 7), compare_recipe="other"))
    with pytest.raises(UsageError):
        flow.run_recipe(ws, request(tokens=(5, 6, 7), compare_recipe="made", compare=True))


def test_a_worker_that_is_handed_in_is_the_one_that_runs(faked, ws, monkeypatch, tmp_path):
    monkeypatch.setattr(flow, "worker_of", lambda *_: pytest.fail("looked for a worker"))
    workers = {"cpu": Program(path=tmp_path / "dgr-shard-worker")}
    assert flow.run_recipe(ws, request(tokens=(5,), max_tokens=1, workers=workers)).token_ids


def test_a_model_is_the_same_wherever_its_file_lies():
    files = [
        Model(file=ModelFile(path=path, digest=digit * 64))
        for path, digit in (("a", "1"), ("b", "1"), ("a", "2"))
    ]
    assert files[0].identity == files[1].identity != files[2].identity
    assert Model(tiny=TinyModel(arch="llama")).identity != Model(tiny=TinyModel(arch="deepseek4")).identity


def test_text_comes_in_whole_characters_whatever_the_tokens_cut(faked, ws, route_fake, monkeypatch):
    bytes_left = iter(_TEXT)
    monkeypatch.setattr(flow.RouteClient, "detokenize", lambda *_: bytes([next(bytes_left)]))
    pieces = []
    outcome = flow.run_recipe(ws, request(tokens=(5,), max_tokens=len(_TEXT), on_text=pieces.append))
    assert pieces == ["a", "ä", "€", "😀", "\n"]
    assert outcome.text == _TEXT.decode()


@pytest.mark.parametrize(
    ("data", "text"), [(b"a\xe2\x82", "a\ufffd"), (b"\xffb", "\ufffdb"), (b"\xc3(\xc3\xa4", "\ufffd(ä")]
)
def test_bytes_that_are_no_text_are_marked_and_nothing_is_lost(faked, ws, monkeypatch, data, text):
    left = iter(data)
    monkeypatch.setattr(flow.RouteClient, "detokenize", lambda *_: bytes([next(left)]))
    pieces = []
    outcome = flow.run_recipe(ws, request(tokens=(5,), max_tokens=len(data), on_text=pieces.append))
    assert outcome.text == "".join(pieces) == text


def test_an_unknown_recipe_names_those_there_are(ws):
    ws.recipes.mkdir(parents=True)
    (ws.recipes / "one.toml").touch()
    (ws.recipes / "two.toml").touch()
    with pytest.raises(UsageError) as caught:
        flow.find_recipe(ws, "three")
    assert "one, two" in caught.value.cause


def test_a_recipe_file_that_is_missing_is_named(ws, tmp_path):
    with pytest.raises(UsageError) as caught:
        flow.find_recipe(ws, str(tmp_path / "three.toml"))
    assert "three.toml" in caught.value.message


def test_a_token_outside_the_vocabulary_is_the_callers_mistake(ws, faked):
    with pytest.raises(UsageError) as caught:
        flow.run_recipe(ws, flow.RunRequest(recipe="made", tokens=(5, _VOCABULARY)))
    assert str(_VOCABULARY) in caught.value.message


@pytest.mark.parametrize("name", ["llama-tiny-2stage", "recipes/llama-tiny-2stage.toml"])
def test_a_recipe_is_found_by_name_and_by_file(project_root, ws, name, monkeypatch):
    monkeypatch.chdir(project_root)
    assert flow.find_recipe(replace(ws, project=project_root), name).name == "llama-tiny-2stage"


@pytest.mark.parametrize(("built", "missing"), [(False, "dgr-shard-worker"), (True, "dgr-reference")])
def test_a_lane_that_was_not_built_is_told_before_a_model_is_made(ws, recipe, monkeypatch, built, missing):
    monkeypatch.setattr(flow, "find_recipe", lambda *_: recipe)
    monkeypatch.setattr(flow, "artifact_of", lambda _: pytest.fail("a model was made"))
    if built:
        worker = ws.build("cpu") / "bin" / "dgr-shard-worker"
        worker.parent.mkdir(parents=True)
        worker.write_text("#!/bin/sh\necho '{}'\n")
        worker.chmod(0o755)
    with pytest.raises(HostError) as caught:
        flow.run_recipe(ws, request(compare=True))
    assert missing in caught.value.message
    assert caught.value.remedy == "dgr-build lane cpu"


@pytest.mark.parametrize("tokens", ["5,x", "-1", "1.5", "2147483648", "9" * 5000, ",", " ", "0x5"])
def test_tokens_that_are_no_ids_are_a_mistake_in_typing(tokens, isolated, capsys):
    assert cli(["run", "llama-tiny-2stage", f"--tokens={tokens}", "--json"]) == 2
    assert "--tokens 5,6,7" in json.loads(capsys.readouterr().out)["remedy"]


def test_the_command_prints_the_outcome_as_data_alone(faked, route_fake, capsys):
    assert (
        cli(["run", "made", "--tokens", "5, 6 7", "--max-tokens", "3", "--compare", "whole", "--json"]) == 0
    )
    data = json.loads(capsys.readouterr().out)
    tokens = route_fake.whole([5, 6, 7], 3)[0]
    assert (data["prompt_ids"], data["token_ids"], data["whole_token_ids"]) == ([5, 6, 7], tokens, tokens)
    assert (data["max_abs_diff"], data["logits_equal"], data["rows_compared"]) == (0.0, True, 5)
    assert data["stages"] == [[0, 4], [4, 9]]
    assert set(data["digests"]) == {"artifact", "recipe", "lane", "patched_tree", "numerics"}
    assert {"recipe", "text", "seconds", "tokens_per_second", "logs"} <= set(data)


def test_the_command_streams_the_text_and_then_tells_what_ran(faked, route_fake, capsys):
    assert cli(["run", "made", "--tokens", "5", "--max-tokens", "2"]) == 0
    tokens = route_fake.whole([5], 2)[0]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "".join(f"<{token}>" for token in tokens)
    assert any(line.split() == ["stages", "[0,", "4)", "[4,", "9)"] for line in lines)


@pytest.mark.parametrize("results", ["direct", "chain"])
def test_the_way_of_results_can_be_chosen(faked, results, monkeypatch):
    ways = []
    client = flow.RouteClient
    monkeypatch.setattr(
        flow,
        "RouteClient",
        lambda *a, results, **rest: ways.append(results) or client(*a, results=results, **rest),
    )
    assert cli(["run", "made", "--tokens", "5", "--max-tokens", "2", "--results", results]) == 0
    assert ways == [results]


def test_a_difference_ends_the_command_with_its_own_code(faked, capsys):
    faked.wrong = lambda whole: replace(whole, logits=np.nextafter(whole.logits, np.float32(9)))
    assert cli(["run", "made", "--tokens", "5,6", "--compare", "whole"]) == CheckError.exit_code == 8


@pytest.fixture
def near(faked, ws, monkeypatch):
    """A run whose head is on lane vulkan, which is judged by nearness to lane cpu's reference."""
    faked.judges = []
    monkeypatch.setattr(
        flow, "reference_of", lambda _, lane: faked.judges.append(lane) or ws.root / "dgr-reference"
    )
    started = flow.workers

    @contextmanager
    def on_two_lanes(ws, recipe, programs, artifact):
        assert list(programs) == ["vulkan", "cpu"]
        assert recipe.mode == "mixed"
        with started(ws, recipe, {"cpu": programs["cpu"]}, artifact) as serving:
            yield serving

    monkeypatch.setattr(flow, "workers", on_two_lanes)
    return lambda: flow.run_recipe(
        ws, request(lanes=("vulkan", "cpu"), tokens=(5, 6, 7), max_tokens=4, compare=True)
    )


def test_lanes_that_promise_no_bits_are_held_against_the_lane_that_they_name(faked, near):
    faked.wrong = lambda whole: replace(whole, logits=whole.logits * np.float32(1.001))  # nmse 1e-6
    outcome = near()
    assert faked.judges == ["cpu"]
    assert outcome.lanes == ("vulkan", "cpu")
    assert not outcome.parity.equal
    assert 0 < outcome.parity.nmse < 1e-3
    assert outcome.to_json()["nmse"] == outcome.parity.nmse


def test_logits_too_far_from_the_other_lanes_fail_the_check_with_limit_and_error(faked, near, ws):
    faked.wrong = lambda whole: replace(whole, logits=whole.logits * np.float32(1.5))
    with pytest.raises(CheckError) as caught:
        near()
    limit = load_matrix(ws.matrix_file).lane["vulkan"].closeness.nmse["llama"]
    assert f"{limit:g}" in caught.value.cause


def test_where_tokens_part_only_the_rows_before_are_compared(faked, near):
    def part(whole):
        logits = whole.logits.copy()
        logits[4:] = -logits[4:]  # rows that followed another token
        return replace(whole, logits=logits, tokens=[whole.tokens[0], whole.tokens[1] + 1, *whole.tokens[2:]])

    faked.wrong = part
    outcome = near()
    assert outcome.parity.rows == 4  # three of the prompt, one after the token that both chose
    assert outcome.parity.equal


@pytest.mark.parametrize(
    ("ours", "theirs", "rows"),
    [([1, 2, 3], [1, 2, 3], 12), ([1, 2, 3], [1, 2, 4], 12), ([1, 2, 3], [1, 9, 3], 11), ([1], [2], 10)],
)
def test_rows_that_followed_the_same_tokens(ours, theirs, rows):
    """Of a prompt of ten: the token that differs first was chosen from a row that is still comparable."""
    assert run_judge._common(ours, theirs, 10) == rows


def test_exact_lanes_are_judged_by_their_own_reference_to_the_bit(project_root, recipe):
    matrix = load_matrix(project_root / "lanes" / "matrix.toml")
    assert judge_of(matrix, recipe) == Judge(lane="cpu", nmse=0.0)


def test_of_several_lanes_the_loosest_limit_of_the_models_family_counts(project_root, recipe):
    matrix = load_matrix(project_root / "lanes" / "matrix.toml")
    loose = matrix.lane["cuda"]
    nearness = loose.closeness.model_copy(update={"nmse": {"llama": 0.25, "deepseek4": 0.5}})
    lanes = {**matrix.lane, "cuda": loose.model_copy(update={"closeness": nearness})}
    matrix = matrix.model_copy(update={"lane": lanes})
    assert judge_of(matrix, recipe.placed(("vulkan", "cuda"))) == Judge(lane="cpu", nmse=0.25)


def test_a_family_without_a_limit_is_not_compared(project_root, recipe):
    matrix = load_matrix(project_root / "lanes" / "matrix.toml")
    vulkan = matrix.lane["vulkan"]
    nearness = vulkan.closeness.model_copy(update={"nmse": {"deepseek4": 0.5}})
    lanes = {**matrix.lane, "vulkan": vulkan.model_copy(update={"closeness": nearness})}
    with pytest.raises(UsageError) as caught:
        judge_of(matrix.model_copy(update={"lane": lanes}), recipe.placed(("vulkan",)))
    assert "--compare" in caught.value.remedy


def test_another_recipe_can_be_the_other_side(faked, ws):
    outcome = flow.run_recipe(ws, request(tokens=(5, 6, 7), max_tokens=4, compare_recipe="whole"))
    assert outcome.parity.sound
    assert outcome.whole_ids == outcome.token_ids
    assert not faked.asked  # the reference program takes no part


def test_the_command_line_reaches_the_tail_and_the_outcome(faked, capsys):
    words = ["--temperature", "0.7", "--top-k", "9", "--top-p", "0.9", "--min-p", "0.1", "--seed", "5"]
    words += ["--penalty-window", "32", "--repetition-penalty", "1.25", "--frequency-penalty", "0.5"]
    words += ["--presence-penalty", "-0.5"]
    assert cli(["run", "made", "--tokens", "5,6", "--max-tokens", "3", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sampling"] == {
        "temperature": 0.7,
        "top_k": 9,
        "top_p": 0.9,
        "min_p": 0.1,
        "penalty_window": 32,
        "repetition_penalty": 1.25,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "seed": 5,
    }
    assert cli(["run", "made", "--tokens", "5,6", "--max-tokens", "3", "--temperature", "1"]) == 0
    assert "temperature 1.0" in capsys.readouterr().out
    assert cli(["run", "made", "--tokens", "5", "--max-tokens", "2"]) == 0
    assert "greedy" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", "1"],
        ["--temperature", "-1"],
        ["--temperature", "1", "--top-p", "0"],
        ["--temperature", "1", "--compare", "whole"],
        ["--presence-penalty", "1", "--compare", "whole"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_refused_before_a_worker_starts(faked, capsys, words):
    assert cli(["run", "made", "--tokens", "5", *words]) == UsageError.exit_code
    assert not hasattr(faked, "route")


def test_another_recipe_samples_alike_beside_it(faked, ws):
    asked = request(
        tokens=(5, 6), max_tokens=4, compare_recipe="other", sampling={"temperature": 1, "seed": 2}
    )
    outcome = flow.run_recipe(ws, asked)
    assert outcome.parity.sound
    assert outcome.whole_ids == outcome.token_ids
