"""Fuzzing the worker: builds a target, runs it for a bounded time, keeps what ended it."""

from __future__ import annotations

import os
import random
import re
import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.errors import CheckError, UsageError
from dgr_build.flows.lane_checks import ctest_variables
from dgr_build.lanes.sanitized import build_sanitized, sanitizer_variables
from dgr_build.process import run_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dgr_build.workspace import Workspace

TARGETS = {
    "messages": "every message of the wire contract, spoilt, given to the code that reads it",
    "sequences": "sequences of calls on stages with a fake engine",
    "engine": "sequences of frames on real engines over tiny models",
}
_ENGINE = ("engine",)  # those that link upstream's libraries
_LANE = "cpu"
_LONGEST = 512  # bytes an input
_SLOWEST_S = 60  # a run that takes longer is a finding
_SEEDS = 24
_SHOWN_LINES = 40
_PROGRESS = re.compile(r"^#(\d+)\s+\S+\s+cov: (\d+) ft: (\d+)(?: corp: (\d+))?")
_UNITS = re.compile(r"^stat::number_of_executed_units:\s+(\d+)")
_KEPT = re.compile(r"Test unit written to (\S+)")


@dataclass(frozen=True, kw_only=True)
class Fuzzed:
    """What came of running one target.

    Args:
        target: its name.
        executions: inputs that were run.
        seconds: what that took.
        coverage: edges of the code that were reached, in all runs of the corpus.
        features: those with how often they were reached, as libFuzzer counts them.
        corpus: inputs kept, each for something that no other reaches.
        findings: inputs that ended the process, now and in earlier runs.
        again: the command that runs a finding again, "" without one.
    """

    target: str
    executions: int
    seconds: float
    coverage: int
    features: int
    corpus: int
    findings: tuple[str, ...]
    again: str

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        return asdict(self)


def chosen_targets(names: Sequence[str]) -> tuple[str, ...]:
    """Return the targets that were asked for, all of them when none was.

    Raises:
        UsageError: one does not exist.
    """
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise UsageError(
            f"no fuzz target is called {unknown[0]!r}",
            cause=f"there are {', '.join(TARGETS)}",
            remedy="dgr-build fuzz --list says what each does",
        )
    return tuple(names) or tuple(TARGETS)


def fuzz(ws: Workspace, names: Sequence[str], seconds: int, *, jobs: int | None = None) -> tuple[Fuzzed, ...]:
    """Build targets with the address and undefined-behaviour sanitizers and run them one after the other.

    Args:
        ws: where build, corpus and findings lie.
        names: out of `TARGETS`.
        seconds: for each.
        jobs: compilers at once, None to let cores and memory decide.

    Raises:
        BuildError: a target could not be built.
        CheckError: a target stopped without a word of libFuzzer's.
        HostError: clang is missing.
    """
    engine = any(name in _ENGINE for name in names)
    console.step(f"building {', '.join(names)}")
    programs = [f"dgr-fuzz-{name}" for name in names]
    build = build_sanitized(ws, "address", programs, engine=engine, jobs=jobs)
    return tuple(_run(ws, build / "fuzz" / f"dgr-fuzz-{name}", name, seconds) for name in names)


def judge(fuzzed: Sequence[Fuzzed]) -> CheckError | None:
    """Return what is wrong, or None when nothing was found."""
    found = [one for one in fuzzed if one.findings]
    if not found:
        return None
    return CheckError(
        f"fuzzing found something in {', '.join(one.target for one in found)}",
        cause="\n       ".join(path for one in found for path in one.findings),
        remedy=f"{found[0].again} runs it again; delete the file when it is mended",
    )


def _run(ws: Workspace, program: Path, name: str, seconds: int) -> Fuzzed:
    console.step(f"fuzzing {name} for {seconds} s")
    corpus, findings = ws.fuzz(name) / "corpus", ws.fuzz(name) / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    _sow(corpus, name)
    variables = dict(sanitizer_variables(ws))
    if name in _ENGINE:
        variables |= ctest_variables(ws, _LANE)
    options = [f"-max_total_time={seconds}", f"-max_len={_LONGEST}", f"-timeout={_SLOWEST_S}"]
    options += [
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        "-len_control=0",
        f"-artifact_prefix={findings}/",
    ]
    seen = _Seen()
    with console.progress(f"fuzzing {name}", unit="inputs") as task:

        def on_line(line: str) -> None:
            seen.read(line)
            task.update(done=seen.executions)

        done = run_lines([program, *options, corpus], on_line, env={**os.environ, **variables})
    log = ws.logs("fuzz") / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout + "\n")
    kept = tuple(sorted(str(path) for path in findings.iterdir()))
    if done.returncode != 0:
        console.say("\n".join(done.stdout.splitlines()[-_SHOWN_LINES:]))
        if not seen.kept:
            raise CheckError(
                f"fuzzing {name} ended with {done.returncode} and kept no input",
                cause="\n".join(done.stdout.splitlines()[-_SHOWN_LINES:]),
                remedy=f"the whole output is in {log}",
            )
    return Fuzzed(
        target=name,
        executions=seen.executions,
        seconds=round(done.seconds, 1),
        coverage=seen.coverage,
        features=seen.features,
        corpus=sum(1 for _ in corpus.iterdir()),
        findings=kept,
        again=_again(variables, program, kept[0]) if kept else "",
    )


def _again(variables: dict[str, str], program: Path, path: str) -> str:
    """Return the command that runs one input again."""
    stated = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*stated, shlex.join([str(program), path])])


def _sow(corpus: Path, name: str) -> None:
    """Put first inputs into a corpus that is empty: bytes of several lengths, the same on every machine."""
    corpus.mkdir(parents=True, exist_ok=True)
    if any(corpus.iterdir()):
        return
    source = random.Random(name)  # noqa: S311 - no secret
    for number in range(_SEEDS):
        length = _LONGEST * (number + 1) // _SEEDS
        (corpus / f"seed-{number:02}").write_bytes(source.randbytes(length))


class _Seen:
    """What libFuzzer has said so far."""

    def __init__(self) -> None:
        self.executions = self.coverage = self.features = 0
        self.kept = False

    def read(self, line: str) -> None:
        if progress := _PROGRESS.match(line):
            self.executions, self.coverage, self.features = (int(progress.group(i)) for i in (1, 2, 3))
        elif units := _UNITS.match(line):
            self.executions = int(units.group(1))
        elif _KEPT.search(line):
            self.kept = True
