"""The story of `dgr-build run`: start the workers of a recipe, run a prompt through them, stop them."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from dgr_build import console
from dgr_build.artifacts.manifest import load
from dgr_build.artifacts.tiny import provide
from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.recipe import Recipe, load_recipe
from dgr_build.documents.tls import Tls
from dgr_build.errors import ArtifactError, UsageError
from dgr_build.flows.programs import lane_digest_of, reference_of, worker_of
from dgr_build.flows.run_judge import judge_of, judged
from dgr_build.flows.run_outcome import RunOutcome
from dgr_build.flows.run_text import Text
from dgr_build.recipes.placement import check_placement
from dgr_build.route.agreement import Expected
from dgr_build.route.client import RouteClient
from dgr_build.route.reference import WholeJob, run_whole
from dgr_build.route.tls import ClientTls
from dgr_build.route.workers import workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.documents.matrix import Matrix
    from dgr_build.route.program import Program
    from dgr_build.workspace import Workspace

DEFAULT_PROMPT = "Once upon a time"


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What to run.

    Args:
        recipe: the name of a recipe of the project, or a file.
        lanes: puts its stages on other lanes, all on one or each on its own; none leaves them as they are.
        prompt: text; the head's tokenizer makes ids of it.
        tokens: token ids in place of a text.
        max_tokens: how many tokens to generate.
        compare: also run the whole model on the base library and compare all logits.
        compare_recipe: also run another recipe of the model on the lane of the head, and compare all logits.
        workers: of lanes, where they are not to be looked for.
        results: overrides how results come back.
        sampling: overrides values of how the tail chooses tokens, by name.
        tls: a folder of certificates, in place of those that the recipe names.
        at: addresses of workers that run already, from head to tail; without them they are started.
        on_text: called with each piece of text as it comes.
        on_end: called after the last piece.
    """

    recipe: str
    lanes: tuple[str, ...] = ()
    prompt: str = DEFAULT_PROMPT
    tokens: tuple[int, ...] = ()
    max_tokens: int = 16
    compare: bool = False
    compare_recipe: str = ""
    workers: Mapping[str, Program] = field(default_factory=dict)
    results: Literal["direct", "chain"] | None = None
    sampling: Mapping[str, object] = field(default_factory=dict)
    tls: Path | None = None
    at: tuple[str, ...] = ()
    on_text: Callable[[str], None] = field(default=lambda _: None)
    on_end: Callable[[], None] = field(default=lambda: None)


def run_recipe(ws: Workspace, request: RunRequest) -> RunOutcome:
    """Run a prompt through the workers of a recipe.

    Raises:
        UsageError: there is no such recipe, the prompt does not fit, or what it is to be compared with is of
            another model.
        HostError: a lane's worker was not built.
        ArtifactError: the model is not what the recipe says.
        RouteError: a worker or the route failed.
        CheckError: what it was to be compared with gives other logits or tokens.
    """
    recipe = find_recipe(ws, request.recipe)
    recipe = recipe.placed(request.lanes) if request.lanes else recipe
    recipe = recipe.sampled(request.sampling) if request.sampling else recipe
    if request.compare and not recipe.sampling.is_plain:
        raise UsageError(
            "a run that samples cannot be compared with the whole model on the unmodified library",
            cause="that program chooses greedily only",
            remedy="use --compare-recipe with a recipe of one stage, which samples alike",
        )
    if request.tls is not None:
        recipe = recipe.model_copy(update={"tls": Tls.of_folder(request.tls.absolute())})
    matrix = load_matrix(ws.matrix_file)
    other = _beside(ws, recipe, request)
    programs = _programs(ws, matrix, recipe, request.workers)
    judge = judge_of(matrix, recipe) if request.compare or request.compare_recipe else None
    reference = reference_of(ws, judge.lane) if judge is not None and request.compare else None
    outcome = _run(ws, recipe, programs, request)
    if judge is not None and other is not None:
        console.say(f"running recipe {other.name} beside it")
        quiet = replace(
            request, tokens=outcome.prompt_ids, at=(), on_text=lambda _: None, on_end=lambda: None
        )
        beside = _run(ws, other, programs, quiet)
        return judged(outcome, judge, beside.token_ids, beside.logits)
    if judge is not None and reference is not None:
        console.say("running the whole model on the unmodified library")
        job = WholeJob(
            program=reference,
            model=artifact_of(recipe).path,
            recipe=recipe,
            prompt=list(outcome.prompt_ids),
            steps=request.max_tokens - 1,
        )
        whole = run_whole(ws, job)
        spent = {"whole_prefill": whole.prompt_us / 1e6, "whole_decode": whole.decode_us / 1e6}
        return judged(replace(outcome, seconds=outcome.seconds | spent), judge, whole.tokens, whole.logits)
    return outcome


def _programs(
    ws: Workspace, matrix: Matrix, recipe: Recipe, known: Mapping[str, Program]
) -> dict[str, Program]:
    lanes = dict.fromkeys(stage.lane for stage in recipe.stages)
    return {lane: known[lane] if lane in known else worker_of(ws, matrix, lane) for lane in lanes}


def _beside(ws: Workspace, recipe: Recipe, request: RunRequest) -> Recipe | None:
    """Return the recipe that is run too, on the lane of the head; None where none was asked for."""
    if not request.compare_recipe:
        return None
    if request.compare:
        raise UsageError(
            "a run is compared with the whole model or with a recipe, not with both",
            remedy="leave --compare or --compare-recipe out",
        )
    other = find_recipe(ws, request.compare_recipe)
    if other.model.identity != recipe.model.identity:
        raise UsageError(
            f"recipes {recipe.name} and {other.name} are of different models",
            cause="logits of two models have nothing to do with each other",
            remedy="name a recipe of the same model; dgr-build run --help",
        )
    return other.placed((recipe.stages[0].lane,)).model_copy(update={"sampling": recipe.sampling})


def _run(ws: Workspace, recipe: Recipe, programs: Mapping[str, Program], request: RunRequest) -> RunOutcome:
    artifact = artifact_of(recipe)
    check_placement(recipe, artifact.manifest)
    logits = request.compare or bool(request.compare_recipe)
    seconds: dict[str, float] = {}
    with ExitStack() as stack:
        addresses = stack.enter_context(_serving(ws, recipe, programs, artifact, request.at))
        client = stack.enter_context(
            RouteClient(
                addresses,
                results=request.results or recipe.results,
                expected=expected_of(recipe, artifact, programs),
                tls=ClientTls.of(recipe.tls),
            )
        )
        prompt = list(request.tokens) or client.tokenize(request.prompt)
        _require_known(prompt, artifact)
        begin = time.monotonic()
        ids: list[int] = []
        rows = []
        pieces = Text(client, request.on_text)
        for step in client.generate(prompt, request.max_tokens, logits=logits, sampling=recipe.sampling):
            seconds.setdefault("route_prefill", time.monotonic() - begin)
            ids.append(step.token)
            rows.append(step.logits)
            pieces.add(step.token)
        seconds["route_decode"] = time.monotonic() - begin - seconds["route_prefill"]
        text = pieces.end()
        request.on_end()
        about = client.stages[0].about
    return RunOutcome(
        recipe=recipe.name,
        stages=tuple((stage.first, stage.last) for stage in recipe.stages),
        lanes=tuple(stage.lane for stage in recipe.stages),
        transport="plaintext" if recipe.tls is None else "mutual TLS",
        prompt_ids=tuple(prompt),
        token_ids=tuple(ids),
        text=text,
        digests={
            "artifact": artifact.digest,
            "recipe": recipe.digest(),
            "lane": about.build.lane_digest,
            "patched_tree": about.build.patched_tree,
            "numerics": about.numerics.digest.hex(),
        },
        seconds=seconds,
        logits=np.concatenate(rows),
        logs=ws.logs("route") / recipe.name,
        sampling=recipe.sampling,
    )


@contextmanager
def _serving(
    ws: Workspace,
    recipe: Recipe,
    programs: Mapping[str, Program],
    artifact: Artifact,
    at: tuple[str, ...],
) -> Iterator[list[str]]:
    """Yield the addresses of workers: of those that run already, or of some that run while the block does."""
    if at:
        yield list(at)
        return
    with workers(ws, recipe, programs, artifact) as started:
        yield [worker.address for worker in started]


def find_recipe(ws: Workspace, name: str) -> Recipe:
    """Return a recipe by its name in the project, or from a file.

    Raises:
        UsageError: there is none; those of the project are named.
    """
    if Path(name).suffix == ".toml" or "/" in name:
        return load_recipe(Path(name))
    path = ws.recipes / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(recipe.stem for recipe in ws.recipes.glob("*.toml")))
        raise UsageError(
            f"no recipe is called {name}",
            cause=f"the project has {known}",
            remedy="name one, or a .toml file",
        )
    return load_recipe(path)


def _require_known(token_ids: Sequence[int], artifact: Artifact) -> None:
    n_vocab = artifact.manifest.n_vocab
    unknown = next((token for token in token_ids if not 0 <= token < n_vocab), None)
    if unknown is not None:
        raise UsageError(
            f"the model has no token {unknown}",
            cause=f"its vocabulary is 0 to {n_vocab - 1}",
            remedy="give ids of its vocabulary, or a --prompt",
        )


def artifact_of(recipe: Recipe) -> Artifact:
    """Return the model of a recipe; a made one is made where it is missing.

    Raises:
        ArtifactError: its file is not what the recipe says.
    """
    file = recipe.model.file
    if file is None:
        return provide(recipe.model)
    artifact = load(file.path)
    if artifact.digest != file.digest:
        raise ArtifactError(
            f"{file.path} is not the model of recipe {recipe.name}",
            cause=f"its digest is {artifact.digest}, the recipe names {file.digest}",
            remedy=f"dgr-build model verify {file.path}",
        )
    return artifact


def expected_of(recipe: Recipe, artifact: Artifact, programs: Mapping[str, Program]) -> Expected:
    """Return what the stages have to say of themselves; one that reads a setting otherwise is found out."""
    digests = {lane: lane_digest_of(program) for lane, program in programs.items()}
    return Expected(
        artifact_digest=artifact.digest,
        ranges=tuple((stage.first, stage.last) for stage in recipe.stages),
        lane_digests=tuple(digests[stage.lane] for stage in recipe.stages),
        numerics=recipe.numerics,
        mixed=recipe.mode == "mixed",
        mode=recipe.worker_mode,
    )
