"""`dgr-build doctor`: what lanes need of this machine, what is here, what is missing and what gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dgr_build import console
from dgr_build.errors import HostError
from dgr_build.flows.doctor import Report, consult, enough
from dgr_build.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.lanes.finding import Finding

_HELP = """Tell what lanes need of this machine, what is here, what is missing and the command that gives it.

Looks only: nothing is fetched, installed or made. Without a lane, all are shown in a table. What a lane
brings by itself (a Debian root, a toolkit of wheels, C++ packages) is listed apart and counts as there.
Whether a lane can be run here is another question than whether it can be built: only running needs a driver.

Ends with 0 when the lane can be built here (without a lane: when lane cpu can), with 3 when it cannot.

Examples:

  dgr-build doctor

  dgr-build doctor cuda

  dgr-build doctor vulkan --json
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor", help=_HELP)(doctor)


def doctor(
    lane: Annotated[
        str | None, typer.Argument(help="A lane of lanes/matrix.toml; without it all.", metavar="[LANE]")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as data.")] = False,
) -> None:
    """Tell what lanes need of this machine."""
    reports = consult(Workspace.open(), lane)
    if as_json:
        data = [report.to_json() for report in reports]
        console.result_json(data if lane is None else data[0])
    elif lane is None:
        _table(reports)
    else:
        _details(reports[0])
    if not enough(reports):
        raise typer.Exit(HostError.exit_code)


def _table(reports: Sequence[Report]) -> None:
    rows = [
        (
            report.lane,
            "yes" if report.can_build else "no",
            f"yes, on {report.runs_on}" if report.can_run else "no",
            ", ".join(_short(finding) for finding in report.missing) or "nothing",
        )
        for report in reports
    ]
    console.table("lanes on this machine", ("lane", "can build", "can run", "missing"), rows)
    if any(report.missing for report in reports):
        console.say("dgr-build doctor LANE says what gives the missing things")


def _details(report: Report) -> None:
    verdict = "can be built here" if report.can_build else "cannot be built here"
    if report.can_build:
        verdict += f" and run, on {report.runs_on}" if report.can_run else ", not run"
    console.result(f"lane {report.lane} {verdict}")
    sections = (
        ("missing", report.missing),
        (f"comes with the lane (environment {report.environment})", report.brought),
        ("here", report.here),
    )
    for title, findings in sections:
        if not findings:
            continue
        console.result(f"\n{title}:")
        for index, finding in enumerate(findings):
            said = index > 0 and findings[index - 1].remedy == finding.remedy
            _show(finding, remedy="" if said else finding.remedy)


def _show(finding: Finding, *, remedy: str) -> None:
    use = " to run" if finding.for_running else ""
    if finding.met and not finding.brought:
        console.result(f"  {finding.name}: {finding.found or finding.wanted} (needs {finding.wanted}{use})")
        return
    here = "" if finding.met else f"; here is {finding.found or 'nothing'}"
    console.result(f"  {finding.name}: needs {finding.wanted}{use}{here}")
    if remedy:
        console.result(f"    {remedy}")


def _short(finding: Finding) -> str:
    return f"{finding.name} (to run)" if finding.for_running else finding.name
