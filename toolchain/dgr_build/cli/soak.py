"""`dgr-build soak`: many sessions over the workers of a recipe while these are killed and stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from dgr_build import console
from dgr_build.flows.soak import SoakRequest, require_sound, soak
from dgr_build.flows.soak_record import facts, record_soak
from dgr_build.workspace import Workspace

_HELP = """Let sessions talk over the workers of a recipe while these are killed and stopped at random.

Every token is held against what the whole model on the unmodified library chooses; a client that waits too
long for a token or an error, a slot that stays taken, or a stage that grows, is a failure too (exit 8). A
killed stage is started again; sessions prefill again by themselves. All stages run on lane cpu; the same seed
gives the same prompts and faults.

Examples:

  dgr-build soak --tokens 500 --faults 5

  dgr-build soak deepseek4-tiny-3stage --tokens 20000 --faults 100 --publish
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("soak", help=_HELP)(_soak)


def _soak(
    recipe: Annotated[
        str, typer.Argument(help="A recipe of the project, or a file.", metavar="RECIPE")
    ] = SoakRequest.recipe,
    *,
    tokens: Annotated[
        int, typer.Option(min=20, help="How many are yielded, all sessions together.")
    ] = SoakRequest.tokens,
    faults: Annotated[
        int, typer.Option(min=0, help="How many times a stage is killed or stopped.")
    ] = SoakRequest.faults,
    sessions: Annotated[int, typer.Option(min=1, help="How many talk at once.")] = SoakRequest.sessions,
    seed: Annotated[int, typer.Option(min=0, help="Of prompts and faults.")] = SoakRequest.seed,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also write its record to the tracked evidence folder.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was seen as data.")] = False,
) -> None:
    ws = Workspace.open()
    request = SoakRequest(recipe=recipe, tokens=tokens, faults=faults, sessions=sessions, seed=seed)
    soaked = soak(ws, request)
    written = record_soak(ws, request, soaked, publish=publish)
    if as_json:
        console.result_json({**facts(soaked), "evidence": str(written)})
    else:
        console.facts({**facts(soaked), "evidence": written})
    require_sound(soaked)
