"""`dgr-build fuzz`: random input for the worker, with sanitizers."""

from __future__ import annotations

from typing import Annotated

import typer

from dgr_build import console
from dgr_build.flows.fuzz import TARGETS, chosen_targets, fuzz, judge
from dgr_build.workspace import Workspace

_HELP = """Fuzz the worker with libFuzzer under the address and undefined-behaviour sanitizers, for a while.

Builds the targets with clang in .dgr/build/asan, and runs them one after the other. The corpus grows from run
to run in .dgr/fuzz; an input that ends the process is kept there too (exit 8), with the command that runs it
again.
The target `engine` links upstream's libraries as the lane cpu has built them, without sanitizers.

Examples:

  dgr-build fuzz

  dgr-build fuzz sequences --seconds 3600

  dgr-build fuzz --list
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("fuzz", help=_HELP)(_fuzz)


def _fuzz(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="What to fuzz; everything when none is named.", metavar="TARGET"),
    ] = None,
    *,
    seconds: Annotated[int, typer.Option(min=1, help="How long to run each target.")] = 60,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Compilers at once; by default what cores and memory allow.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Say what the targets are; run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was run as data.")] = False,
) -> None:
    targets = chosen_targets(names or ())
    if show:
        console.facts({name: TARGETS[name] for name in targets})
        return
    fuzzed = fuzz(Workspace.open(), targets, seconds, jobs=jobs)
    wrong = judge(fuzzed)
    if as_json:
        console.result_json({"targets": [one.to_json() for one in fuzzed]})
    else:
        columns = ("target", "executions", "seconds", "coverage", "features", "corpus")
        rows = [
            [one.target, *map(str, (one.executions, one.seconds, one.coverage, one.features, one.corpus))]
            for one in fuzzed
        ]
        console.table("fuzzing", columns, rows)
    if wrong:
        console.report(wrong)
        raise typer.Exit(wrong.exit_code)
