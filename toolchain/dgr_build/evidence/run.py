"""Running the commands of a record and counting what their reports say."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from dgr_build import console
from dgr_build.documents.evidence import Command, Result
from dgr_build.process import run_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dgr_build.workspace import Workspace

_CTEST_LABELS = "cmake_labels"  # how CTest sorts its tests: no measurement


@dataclass(frozen=True, kw_only=True)
class Case:
    """One test of a report.

    Args:
        name: as the runner calls it, with its parameters.
        passed: it ran and passed.
        properties: what it measured, in order; a name may come several times.
    """

    name: str
    passed: bool
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A command to run.

    Args:
        key: what criteria call it.
        typed: as a person would type it in the project's folder.
        argv: as it is started.
        report: where it leaves a JUnit report, None where its exit code says all.
    """

    key: str
    typed: tuple[str, ...]
    argv: tuple[str, ...]
    report: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A command that was run, with the tests that it reported."""

    key: str
    command: Command
    cases: tuple[Case, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """What must hold, and which tests of which command show it.

    Args:
        text: the criterion.
        command: key of the command, "" where nothing of this run can show it.
        cases: pattern of the names of the tests that show it; "" is all of the command's.
        needs: what it further demands that this run does not have.
    """

    text: str
    command: str = ""
    cases: str = ""
    needs: str = ""


def own_command(key: str, *arguments: str, report: Path | None = None) -> Plan:
    """Return a command of this project."""
    argv = (sys.executable, "-P", "-m", "dgr_build", *arguments)
    return Plan(key=key, typed=("dgr-build", *arguments), argv=argv, report=report)


def pytest_command(ws: Workspace, key: str, file: str) -> Plan:
    """Return a run of one file of integration tests, with a report."""
    report = ws.logs("evidence") / f"{key}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    arguments = ("-m", "pytest", file)
    options = (f"--junit-xml={report}", "-o", f"cache_dir={ws.root / 'cache' / 'pytest'}")
    argv = (sys.executable, "-P", *arguments, *options)
    return Plan(key=key, typed=(".venv/bin/python", *arguments), argv=argv, report=report)


def run_plan(ws: Workspace, plan: Plan) -> Ran:
    """Run one command in the project's folder; what it prints goes to the person who watches."""
    if plan.report is not None:
        plan.report.unlink(missing_ok=True)
    start = time.monotonic()
    done = run_lines(plan.argv, console.say, cwd=ws.project)
    seconds = round(time.monotonic() - start, 2)
    command = Command(argv=plan.typed, exit_code=done.returncode, seconds=seconds)
    return Ran(key=plan.key, command=command, cases=read_report(plan.report))


def read_report(report: Path | None) -> tuple[Case, ...]:
    """Return the tests of a JUnit report, none where there is no report."""
    if report is None or not report.is_file():
        return ()
    cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - our own child wrote it
    return tuple(
        Case(
            name=case.get("name", ""),
            passed=case.get("status", "run") == "run"
            and all(case.find(bad) is None for bad in ("failure", "error", "skipped")),
            properties=tuple((p.get("name", ""), p.get("value", "")) for p in case.iter("property")),
        )
        for case in cases
    )


def judge(criteria: Sequence[Criterion], ran: Sequence[Ran]) -> tuple[Result, ...]:
    """Return the result of each criterion; what ran without the tests named does not pass."""
    index = {one.key: at for at, one in enumerate(ran)}
    return tuple(_judge(criterion, ran, index.get(criterion.command)) for criterion in criteria)


def _judge(criterion: Criterion, ran: Sequence[Ran], at: int | None) -> Result:
    if at is None:
        return Result(criterion=criterion.text, verdict="not run", needs=criterion.needs, passes=False)
    one = ran[at]
    asked = [case for case in one.cases if re.search(criterion.cases, case.name)]
    good = sum(case.passed for case in asked)
    counted = bool(one.cases) or bool(criterion.cases)
    sound = one.command.exit_code == 0 and good == len(asked) and (bool(asked) or not counted)
    return Result(
        criterion=criterion.text,
        command=at,
        verdict="passed" if sound else "failed",
        shown=f"{good} of {len(asked)} tests passed" if counted else f"exit code {one.command.exit_code}",
        needs=criterion.needs,
        passes=sound and not criterion.needs,
    )


def measured(ran: Sequence[Ran]) -> dict[str, list[str]]:
    """Return every property that a test measured, as it stands in the report, by test and name."""
    found: dict[str, list[str]] = {}
    for one in ran:
        for case in one.cases:
            for name, value in case.properties:
                if name == _CTEST_LABELS:
                    continue
                found.setdefault(f"{case.name}: {name}", []).append(value)
    return found


def mentioned(found: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """Return the different values of one property over all tests, in order."""
    values = (value for key, all_of in found.items() if key.endswith(f": {name}") for value in all_of)
    return tuple(dict.fromkeys(values))
