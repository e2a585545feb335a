"""`dgr-build run`: a prompt through the workers of a recipe."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dgr_build import console
from dgr_build.errors import UsageError
from dgr_build.flows.run import DEFAULT_PROMPT, RunRequest, run_recipe
from dgr_build.flows.run_outcome import RunOutcome
from dgr_build.workspace import Workspace

_ID = re.compile(r"[0-9]{1,10}")
_ID_END = 2**31  # ids are int32 on the wire


class Against(StrEnum):
    """What a route can be compared with."""

    whole = "whole"


class Results(StrEnum):
    """How results come back."""

    direct = "direct"
    chain = "chain"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    recipe: Annotated[str, typer.Argument(help="name of a recipe in recipes/, or a file")],
    lanes: Annotated[
        str, typer.Option(help="put the stages on other lanes: one for all, or one for each: vulkan,cpu")
    ] = "",
    prompt: Annotated[str, typer.Option(help="text to go on from")] = DEFAULT_PROMPT,
    tokens: Annotated[str, typer.Option(help="token ids in place of a text: 5,6,7")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="tokens to generate")] = 16,
    compare: Annotated[
        Against | None,
        typer.Option(help="also run the whole model on the unmodified library and compare all logits"),
    ] = None,
    compare_recipe: Annotated[
        str,
        typer.Option(
            help="also run another recipe of the model, on the lane of the head, and compare all logits"
        ),
    ] = "",
    results: Annotated[
        Results | None, typer.Option(help="results straight from the tail, or back through the stages")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="choose tokens by chance, from 0.001 to 100; 0: the most likely one")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="keep so many candidates; 0: all")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="keep the candidates that hold this probability")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="keep candidates at least this likely, as a share of the likeliest")
    ] = None,
    penalty_window: Annotated[
        int | None, typer.Option(help="penalise the ids of so many last positions; unless stated: 64")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="divide the logits of ids in the window, from 0.1 to 10; 1: off")
    ] = None,
    frequency_penalty: Annotated[
        float | None, typer.Option(help="lower the logit of an id for each time it is in the window; 0: off")
    ] = None,
    presence_penalty: Annotated[
        float | None, typer.Option(help="lower the logits of ids in the window once; 0: off")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="decides the chance; unless stated: 0, so runs repeat")
    ] = None,
    tls: Annotated[
        Path | None,
        typer.Option(
            help="speak mutual TLS with the certificates of this folder: dgr-build certs dev FOLDER"
        ),
    ] = None,
    at: Annotated[
        str, typer.Option(help="use workers that run already, from head to tail: HOST:PORT,HOST:PORT")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print the outcome as JSON")] = False,
) -> None:
    """Start the workers of a recipe on this machine, run a prompt through them, and stop them.

    Tokens are shown as they come. They are chosen greedily, unless the recipe or --temperature says
    otherwise; then equal seeds give equal tokens, however the model is cut. With --compare whole, a
    difference of a single bit in any logit ends with exit code 8; on lanes that compute otherwise than their
    reference, an error above the lane's stated limit does.

    \b
    Examples:
      dgr-build run deepseek4-tiny-3stage
      dgr-build run deepseek4-tiny-12stage --prompt "Hello" --max-tokens 32 --compare whole
      dgr-build run llama-tiny-2stage --tokens 5,6,7 --json
      dgr-build run deepseek4-tiny-2stage --lanes vulkan,cpu --compare whole
      dgr-build run deepseek4-tiny-3stage --temperature 0.8 --top-p 0.95 --seed 7
      dgr-build run deepseek4-tiny-2stage --tls certs --compare whole
    """  # noqa: D301 - the escape keeps the lines of the examples apart
    sampling = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "penalty_window": penalty_window,
        "repetition_penalty": repetition_penalty,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "seed": seed,
    }
    request = RunRequest(
        recipe=recipe,
        lanes=names(lanes, "--lanes", "one lane for all stages, or one for each: --lanes vulkan,cpu"),
        prompt=prompt,
        tokens=_ids(tokens),
        max_tokens=max_tokens,
        compare=compare is not None,
        compare_recipe=compare_recipe,
        results=results.value if results else None,
        sampling={name: value for name, value in sampling.items() if value is not None},
        tls=tls,
        at=names(at, "--at", "one address for each stage, from head to tail: --at HOST:PORT,HOST:PORT"),
        on_text=(lambda _: None) if as_json else console.stream,
        on_end=(lambda: None) if as_json else (lambda: console.stream("\n")),
    )
    outcome = run_recipe(Workspace.open(), request)
    if as_json:
        console.result_json(outcome.to_json())
    else:
        show(outcome)


def show(outcome: RunOutcome) -> None:
    """Print an outcome for a person; the text itself was streamed before."""
    speeds = {name: f"{speed:.1f} tokens/s" for name, speed in outcome.tokens_per_second.items()}
    pairs: dict[str, object] = {
        "stages": " ".join(f"[{first}, {last})" for first, last in outcome.stages),
        "transport": outcome.transport,
        "tokens": " ".join(str(token) for token in outcome.token_ids),
        "chosen": outcome.sampling.to_text(),
        "artifact": outcome.digests["artifact"],
        "lane digest": outcome.digests["lane"],
        **speeds,
    }
    if outcome.parity is not None:
        how = "equal" if outcome.parity.equal else "are near"
        pairs["logits"] = (
            f"{outcome.parity.rows} rows {how} the whole model's, max |d| = {outcome.parity.max_abs_diff:g}, "
            f"nmse = {outcome.parity.nmse:.2g}"
        )
    console.facts(pairs)


def names(text: str, option: str, legal: str) -> tuple[str, ...]:
    """Return what stands between the commas of an option's value.

    Raises:
        UsageError: nothing stands between two of them; `legal` says what should.
    """
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    if not all(names):
        raise UsageError(f"{option} {text!r} leaves one out", remedy=f"give {legal}")
    return names


def _ids(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    wrong = [word for word in words if not (_ID.fullmatch(word) and int(word) < _ID_END)]
    if wrong or (text and not words):
        raise UsageError(
            f"--tokens {text!r} is not a list of ids",
            cause=f"{wrong[0]!r} is no id" if wrong else "there is no id in it",
            remedy="give ids as --tokens 5,6,7",
        )
    return tuple(int(word) for word in words)
