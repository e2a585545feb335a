"""`dgr-build test`: the whole default test suite."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dgr_build import console
from dgr_build.flows.sanitized_tests import run_sanitized
from dgr_build.flows.selftest import PARTS, judge, run_suite
from dgr_build.workspace import Workspace

_HELP = """Run the project's own tests: gates, unit tests, integration tests, C++ tests.

Everything really runs each time. The integration tests build the CPU lane first, so a cold run takes a while.
Anything else on the line goes to pytest.

Examples:

  dgr-build test

  dgr-build test --unit -k publish -x

  dgr-build test --sanitize thread
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command("test", help=_HELP, context_settings=settings)(_test)


def _test(
    context: typer.Context,
    *,
    gates: Annotated[
        bool, typer.Option("--gates", help="Only compileall, whitespace, ruff, mypy, import-linter.")
    ] = False,
    unit: Annotated[
        bool, typer.Option("--unit", help="Only the fast tests: no compiler, no network.")
    ] = False,
    integration: Annotated[
        bool, typer.Option("--integration", help="Only real builds and real workers, and CTest.")
    ] = False,
    sanitize: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Only the C++ tests without a real engine, under the sanitizer for `address` or `thread`.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was counted as data.")] = False,
) -> None:
    asked = {"gates": gates, "unit": unit, "integration": integration, "ctest": integration}
    parts = [part for part in PARTS if asked[part]] or list(PARTS)
    ws = Workspace.open()
    tallies = (run_sanitized(ws, sanitize),) if sanitize else run_suite(ws, parts, context.args)
    wrong = judge(tallies)
    totals = {name: sum(getattr(t, name) for t in tallies) for name in ("passed", "failed", "skipped")}
    if as_json:
        console.result_json({**totals, "parts": [asdict(tally) for tally in tallies]})
    else:
        rows = [[t.part, str(t.passed), str(t.failed), str(t.skipped)] for t in tallies]
        console.table("tests", ["part", *totals], rows)
    if wrong:
        console.report(wrong)
    if not as_json:
        console.result(", ".join(f"{count} {name}" for name, count in totals.items()))
    if wrong:
        raise typer.Exit(wrong.exit_code)
