"""Running the C++ tests of a lane."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from dgr_build import console
from dgr_build.errors import CheckError
from dgr_build.lanes.environment.made import Made
from dgr_build.process import run_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_DONE = re.compile(r"^\s*(\d+)/(\d+) Test\s+#\d+: ")
_SHOWN_LINES = 60
# Where the C++ tests find the tiny model of each family.
TINY = {
    "deepseek4": "DGR_TINY_V4",
    "llama": "DGR_TINY_LLAMA",
    "qwen3": "DGR_TINY_QWEN3",
    "gemma3": "DGR_TINY_GEMMA3",
}
REFERENCE = "DGR_REFERENCE"


@dataclass(frozen=True, kw_only=True)
class Tests:
    """What CTest counted.

    Args:
        passed: the number of tests that passed; none failed, none was left out.
        seconds: what all took.
        report: the JUnit report.
    """

    passed: int
    seconds: float
    report: Path


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """What is run, and how.

    Args:
        build: the built folder.
        report: where the JUnit report goes.
        variables: see `test_variables`; added to the caller's environment.
        ctest: the program, as the environment knows it.
        made: the environment; this machine by default.
        read: what the tests read beside the build folder.
        write: what they write beside it.
        exclude: a pattern of the names of tests that are left out, "" for none.
    """

    __test__ = False  # no test of pytest's

    build: Path
    report: Path
    variables: Mapping[str, str]
    ctest: Path
    made: Made = field(default_factory=lambda: Made(name="host", kind="host", digest=""))
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    exclude: str = ""


def test_variables(tiny: Mapping[str, Path], *, reference: Path | None) -> dict[str, str]:
    """Return what the C++ tests find their models, given by family, and the reference program by."""
    found = {variable: str(tiny[arch]) for arch, variable in TINY.items()}
    return found if reference is None else {**found, REFERENCE: str(reference)}


def run_ctest(asked: TestRun, *, jobs: int = 1) -> Tests:
    """Run the tests of a build folder.

    Args:
        asked: what is run.
        jobs: tests at once.

    Raises:
        CheckError: a test failed or did not run, or there is none; each is named.
    """
    build, report = asked.build, asked.report
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    words: list[str | Path] = [asked.ctest, "--test-dir", build, "-j", str(jobs)]
    words += ["--no-tests=error", "--output-on-failure", "--output-junit", report]
    words += ["-E", asked.exclude] if asked.exclude else []
    command = asked.made.command(
        words, read=asked.read, write=(build, report.parent, *asked.write), network=True
    )
    with console.progress("C++ tests", unit="tests") as task:

        def on_line(line: str) -> None:
            count = _DONE.match(line)
            if count:
                task.update(done=int(count.group(1)), total=int(count.group(2)))

        done = run_lines(command, on_line, env={**os.environ, **asked.variables})
    log = report.with_suffix(".log")
    log.write_text(done.stdout + "\n")
    names, passed = _count(report)
    if done.returncode != 0 or names or not passed:
        tail = "\n".join(done.stdout.splitlines()[-_SHOWN_LINES:])
        what = ", ".join(names) or (f"ctest ended with {done.returncode}" if passed else "no test ran")
        raise CheckError(
            f"C++ tests did not pass: {what}",
            cause=tail,
            remedy=f"the whole output is in {log}; the lane with --only test runs them again",
        )
    return Tests(passed=passed, seconds=done.seconds, report=report)


def _count(report: Path) -> tuple[list[str], int]:
    """Return the names of the tests that did not pass, and the number of those that did."""
    if not report.is_file():
        return [], 0
    cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 - our own child wrote it
    bad = [case.get("name", "") for case in cases if case.get("status") != "run"]
    return bad, len(cases) - len(bad)
