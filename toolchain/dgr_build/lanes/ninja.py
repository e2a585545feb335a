"""Running ninja: its count as progress, and what failed with its own output."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.errors import BuildError
from dgr_build.lanes.diagnose import explain, first_error
from dgr_build.lanes.known_causes import OUT_OF_MEMORY
from dgr_build.process import run_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_COUNT = re.compile(r"^\[(\d+)/(\d+)\] ")
_FAILED = re.compile(r"^FAILED: (?:\[code=-?\d+\] )?(.*)$")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One step that failed.

    Args:
        output: what the step was to make.
        file: the source it was made from, "" where it is no compile step.
        text: what the compiler printed.
        out_of_memory: the compiler did not fail, it was killed or got no more memory.
    """

    output: str
    file: str
    text: str
    out_of_memory: bool


def build(
    command: Sequence[str | Path], title: str, log: Path, *, variables: Mapping[str, str], jobs: int
) -> int:
    """Run ninja to its end and return the number of steps it ran; the whole output goes to `log`.

    Args:
        command: ninja with its arguments.
        title: what is being built.
        log: the file for the output.
        variables: the environment.
        jobs: how many compilers ran at once, for the remedy when memory did not do.

    Raises:
        BuildError: a step failed; its file and its output are in the message.
    """
    steps = total = 0
    with console.progress(title) as task:

        def on_line(line: str) -> None:
            nonlocal steps, total
            count = _COUNT.match(line)
            # A build inside the build (upstream's shader generator) counts its own, fewer steps.
            if count and int(count.group(2)) >= total:
                steps, total = int(count.group(1)), int(count.group(2))
                task.update(done=steps, total=total)

        done = run_lines(command, on_line, env=variables)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout + "\n")
    if done.returncode != 0:
        raise failed(done.stdout, log, jobs)
    return steps


def failed(output: str, log: Path, jobs: int) -> BuildError:
    """Turn the output of a failed run into an error that names the file and shows what the compiler said."""
    failures = parse_failures(output)
    cause, remedy = explain(output, log, next_step="the next run continues where this one stopped")
    if not failures:
        return BuildError("ninja failed", cause=cause, remedy=remedy)
    starved = next((failure for failure in failures if failure.out_of_memory), None)
    if starved is not None:
        return BuildError(
            f"out of memory while compiling {starved.file or starved.output}",
            cause=f"{cause}\n{jobs} compilers ran at once",
            remedy=f"give --jobs {max(1, jobs // 2)}, or the machine more memory; the next run continues "
            f"where this one stopped; the whole output is in {log}",
        )
    first = failures[0]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    what = f"compile {first.file}" if first.file else f"make {first.output}"
    return BuildError(f"cannot {what}{more}", cause=cause, remedy=remedy)


def parse_failures(output: str) -> tuple[Failure, ...]:
    """Return the failed steps in ninja's output, in order."""
    failures: list[Failure] = []
    lines = iter([*output.splitlines(), "ninja: end"])
    line = next(lines, None)
    while line is not None:
        head = _FAILED.match(line)
        if head is None:
            line = next(lines, None)
            continue
        command = next(lines, "")
        text: list[str] = []
        line = next(lines, None)
        while line is not None and not (
            _COUNT.match(line) or _FAILED.match(line) or line.startswith("ninja: ")
        ):
            text.append(line)
            line = next(lines, None)
        failures.append(_failure(head, command, "\n".join(text)))
    return tuple(failures)


def _failure(head: re.Match[str], command: str, text: str) -> Failure:
    return Failure(
        output=head.group(1).strip(),
        file=_source_of(command),
        text=text,
        out_of_memory=first_error(f"{head.group()}\n\n{text}").kind == OUT_OF_MEMORY,
    )


def _source_of(command: str) -> str:
    """Return what follows the last -c of a compile command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    places = [at for at, word in enumerate(words[:-1]) if word == "-c"]
    return words[places[-1] + 1] if places else ""
