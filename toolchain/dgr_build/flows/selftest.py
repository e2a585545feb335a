"""The story of `dgr-build test`: gates, unit tests, integration tests, CTest; each really runs every time."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from dgr_build import console
from dgr_build.errors import CheckError
from dgr_build.flows.gates import GATES, Verdict
from dgr_build.flows.lane_checks import ctest_variables
from dgr_build.process import Child

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dgr_build.workspace import Workspace

PARTS = ("gates", "unit", "integration", "ctest")
_NO_TESTS = 5  # pytest's exit code when it collected nothing
_LANE = "cpu"
_STDERR = 2


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What one part of the suite counted.

    Args:
        part: its name.
        failures: the names of what failed, or what kept the part from running.
    """

    part: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: tuple[str, ...] = ()


def run_suite(ws: Workspace, parts: Sequence[str], pytest_args: Sequence[str]) -> tuple[Tally, ...]:
    """Run parts of the default test suite, in the order given, and return what each counted.

    Later parts run although an earlier one failed: a person wants the whole picture.

    Args:
        ws: where logs and caches of the tools go.
        parts: names out of `PARTS`.
        pytest_args: handed on to pytest for the unit and integration parts.
    """
    reports = ws.logs("test")
    reports.mkdir(parents=True, exist_ok=True)
    tallies = []
    for part in parts:
        if part == "gates":
            tallies.append(_gates(ws))
        elif part == "ctest":
            tallies.append(_ctest(ws, reports / "ctest.xml"))
        else:
            parallel = ["-n", "auto"] if part == "unit" else []
            tallies.append(_pytest(ws, part, reports / f"{part}.xml", [*parallel, *pytest_args]))
    return tuple(tallies)


def judge(tallies: Sequence[Tally]) -> CheckError | None:
    """Return what is wrong with a finished suite, or None when it passed."""
    failures = [f"{tally.part}: {name}" for tally in tallies for name in tally.failures]
    if failures:
        return CheckError(
            f"{len(failures)} of the tests failed",
            cause="\n       ".join(failures),
            remedy=f"dgr-build test --{_option_of(tallies)} runs that part alone; the output above says why",
        )
    if not any(tally.passed for tally in tallies):
        return CheckError(
            "no test ran",
            cause="nothing matched what was asked for",
            remedy="dgr-build test runs the whole suite",
        )
    return None


def _option_of(tallies: Sequence[Tally]) -> str:
    part = next(tally.part for tally in tallies if tally.failures)
    return "integration" if part == "ctest" else part


def _gates(ws: Workspace) -> Tally:
    passed, skipped, failures = 0, 0, []
    for gate in GATES:
        console.step(f"gate: {gate.name}")
        verdict = gate.run(ws)
        if verdict is Verdict.FAILED:
            failures.append(gate.name)
        elif verdict is Verdict.NOT_RUN:
            skipped += 1
        else:
            passed += 1
    return Tally(part="gates", passed=passed, failed=len(failures), skipped=skipped, failures=tuple(failures))


def _pytest(ws: Workspace, part: str, report: Path, arguments: Sequence[str]) -> Tally:
    console.step(f"pytest tests/{part}")
    report.unlink(missing_ok=True)
    cache = ws.root / "cache" / "pytest"
    command = [sys.executable, "-P", "-m", "pytest", f"tests/{part}", f"--junit-xml={report}"]
    command += ["-o", f"cache_dir={cache}", *arguments]
    code = _through(command, ws.project)
    if code == _NO_TESTS and arguments:
        return Tally(part=part)
    return _tally_of(part, report, code)


def _ctest(ws: Workspace, report: Path) -> Tally:
    """Run the C++ tests in the build folder of the lane that the integration tests built."""
    build = ws.build(_LANE)
    console.step(f"ctest in {build}")
    if not (build / "CTestTestfile.cmake").is_file():
        return Tally(
            part="ctest", failed=1, failures=(f"no build of lane {_LANE}: run dgr-build lane {_LANE}",)
        )
    report.unlink(missing_ok=True)
    ctest = Path(sys.executable).with_name("ctest")
    command = [str(ctest), "--test-dir", str(build), "--output-on-failure", "--no-tests=error"]
    command += ["--output-junit", str(report)]
    return _tally_of("ctest", report, _through(command, ws.project, ctest_variables(ws, _LANE)))


def _through(command: Sequence[str], cwd: Path, variables: Mapping[str, str] | None = None) -> int:
    """Run a program whose output goes straight to the person, as progress does; return its exit code."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})}
    child = Child(command, cwd=cwd, env=env, stdout=_STDERR)
    try:
        return child.wait()
    finally:
        child.stop()


def _tally_of(part: str, report: Path, code: int) -> Tally:
    """Count a JUnit report; a runner that failed without a failed test counts as one failure."""
    if not report.is_file():
        return Tally(part=part, failed=1, failures=(f"the runner ended with {code} and no report",))
    names: list[str] = []
    total = skipped = 0
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - our own child wrote it
        total += 1
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            names.append(name)
        elif case.find("skipped") is not None or case.get("status") in {"notrun", "disabled"}:
            skipped += 1
    passed = total - skipped - len(names)
    if code != 0 and not names:
        names.append(f"the runner ended with {code}")
    return Tally(part=part, passed=passed, failed=len(names), skipped=skipped, failures=tuple(names))
