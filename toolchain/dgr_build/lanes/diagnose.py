"""The first real error in the log of a failed build, and its cause where that is known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from dgr_build.lanes.known_causes import KNOWN_CAUSES, KnownCause

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SHOWN_LINES = 8
_CONTEXT_LINES = 3
_LAST_LINES = 5
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ERRORS = (
    r"^[^\s:][^:]*(?::\d+){1,2}: (?:fatal )?error: ",  # gcc, clang, glslc: FILE:LINE[:COLUMN]
    r"^[^\s:][^:]*\(\d+\): (?:catastrophic )?error",  # nvcc's front end: FILE(LINE)
    r"^(?:nvcc|ptxas|nvlink|fatbinary)\b.*\b(?:fatal|error)\s*: ",
    r"^(?:\S*/)?[\w.+-]+: (?:fatal )?error: ",  # a compiler driver or lld about itself
    r"^(?:fatal )?error: ",
    r"^CMake Error",
    r"^ninja: (?:error|fatal): ",
    r": undefined reference to |: multiple definition of ",
    r"^\S*\bld(?:\.\w+)?: (?:cannot |final link failed)",
    r"^[^\s:]+(?::\d+)?: (?:Fatal error|Error): ",  # the assembler
    r"^E: ",  # apt, mmdebstrap
    r"^\S*sh: .*: (?:command )?not found$",
    r"^\S+: (?:execvp )?(?:\S+: )?No such file or directory$",
    r"^(?:Killed|Illegal instruction|Segmentation fault|Bus error|Aborted)\b",
    r"^virtual memory exhausted|^LLVM ERROR: |: error while loading shared libraries: ",
)
# What only says that something failed before.
_AFTERMATHS = (
    r"^ninja: (?:build stopped|error: rebuilding)",
    r"collect2: error: ld returned|linker command failed|clang frontend command failed",
    r"^ptxas fatal\s*: Ptx assembly aborted",
    r"^CMake Error: CMAKE_\w+_COMPILER not set, after EnableLanguage",
    r"^E: (?:apt|mmdebstrap failed|Some (?:files|index files) |Unable to fetch some)",
)
_ERROR, _AFTERMATH = (re.compile("|".join(patterns)) for patterns in (_ERRORS, _AFTERMATHS))
_CONTEXT = re.compile(
    r"^In file included from |^ +from |: In .*(?:function|constructor|lambda|instantiation)|: in function "
    r"|: At global scope:|: Assembler messages:"
)
_OF_MACHINE = tuple(known for known in KNOWN_CAUSES if known.of_machine)
_OF_STEP = tuple(known for known in KNOWN_CAUSES if not known.of_machine)
_QUOTED = re.compile(r"^\s*\d*\s*\|")  # source, as compilers quote it
_STEP_ENDS = re.compile(r"^\[\d+/\d+\] |^ninja: ")
_FAILED = "FAILED: "


@dataclass(frozen=True)
class Diagnosis:
    """What a log says about a failure.

    Args:
        lines: the first real error, in a few lines; the end of the log where none was recognised.
        cause: what it means, "" where that is not known.
        remedy: what to do about it, likewise.
        kind: the name of the known cause, likewise.
    """

    lines: tuple[str, ...]
    cause: str = ""
    remedy: str = ""
    kind: str = ""


def first_error(log_text: str) -> Diagnosis:
    """Find the first real error in the log of a build, a configure run or the making of an environment.

    Warnings, what merely follows from an error and what announces it do not count. A lack of memory or space
    explains the run wherever it shows.
    """
    lines = [_ESCAPES.sub("", line).rstrip() for line in log_text.splitlines()]
    struck = _of_machine(lines)
    if struck is not None:
        known, at = struck
        return _diagnosis(_block(lines, at), (known,), lines[at : at + 1])
    first = _first(lines)
    if first is None:
        last = tuple(line for line in lines if line and not _AFTERMATH.search(line))[-_LAST_LINES:]
        return _diagnosis(last, _OF_STEP, last)
    block = _block(lines, first)
    return _diagnosis(block, _OF_STEP, block, _step(lines, first))


def explain(log_text: str, log: Path, *, next_step: str = "") -> tuple[str, str]:
    """Return cause and remedy of an error about a failed run.

    Args:
        log_text: what the run printed.
        log: where all of it was written.
        next_step: what else to say to the person who reads it.
    """
    found = first_error(log_text)
    cause = "\n".join((found.cause, *found.lines) if found.cause else found.lines)
    remedy = "; ".join(part for part in (found.remedy, f"the whole output is in {log}", next_step) if part)
    return cause, remedy


def _diagnosis(block: tuple[str, ...], causes: Sequence[KnownCause], *places: Sequence[str]) -> Diagnosis:
    """Name the cause: the first that shows in the nearest place."""
    for lines in places:
        text = "\n".join(line for line in lines if not _QUOTED.match(line))
        for known in causes:
            match = known.find(text)
            if match is not None:
                return Diagnosis(block, match.expand(known.cause), match.expand(known.remedy), known.kind)
    return Diagnosis(block)


def _of_machine(lines: Sequence[str]) -> tuple[KnownCause, int] | None:
    for known in _OF_MACHINE:
        for at, line in enumerate(lines):
            announced = at > 0 and lines[at - 1].startswith(_FAILED)  # the command, not what it printed
            if not announced and not _QUOTED.match(line) and known.find(line) is not None:
                return known, at
    return None


def _first(lines: Sequence[str]) -> int | None:
    """Return the place of the first error: after the first failed step, or where ninja announced none."""
    failed = next((at for at, line in enumerate(lines) if line.startswith(_FAILED)), None)
    after = range(len(lines)) if failed is None else range(failed + 2, len(lines))
    found = next((at for at in after if _is_error(lines[at])), None)
    if found is None:  # cmake started by ninja has printed its error before
        found = next((at for at, line in enumerate(lines) if _is_error(line)), None)
    return failed if found is None else found


def _is_error(line: str) -> bool:
    return _ERROR.search(line) is not None and _AFTERMATH.search(line) is None and not _QUOTED.match(line)


def _block(lines: Sequence[str], at: int) -> tuple[str, ...]:
    """Return an error with what belongs to it, a few lines in all."""
    if lines[at].startswith(_FAILED):
        return (lines[at], *_step(lines, at)[1:][:_CONTEXT_LINES])
    end = at + 1
    while end < len(lines) and (not lines[end] or lines[end].startswith((" ", "\t", ">>>"))):
        if not lines[end] and not lines[at].startswith("CMake Error"):
            break
        end += 1
    if lines[at].startswith("CMake Error"):
        return _cmake_block(lines[at], [line for line in lines[at + 1 : end] if line])
    start = at
    while start > max(0, at - _CONTEXT_LINES) and _CONTEXT.search(lines[start - 1]):
        start -= 1
    return tuple(lines[start:end][:_SHOWN_LINES])


def _cmake_block(head: str, body: Sequence[str]) -> tuple[str, ...]:
    """Return CMake's message; of a compiler's output inside it only the error and what led to it."""
    inner = [line.strip() for line in body]
    at = next((at for at, line in enumerate(inner) if _is_error(line)), None)
    if at is None:
        return (head, *body[: _SHOWN_LINES - 1])
    error = takewhile(lambda at: not _AFTERMATH.search(inner[at]), range(at, len(inner)))
    return (head, *body[:2], *(body[i] for i in islice(error, _CONTEXT_LINES)))


def _step(lines: Sequence[str], at: int) -> Sequence[str]:
    """Return all that the failed step of a line has printed; the whole log where there are no steps."""
    start = next((i for i in range(at, -1, -1) if lines[i].startswith(_FAILED)), None)
    if start is None:
        return lines
    stop = range(start + 1, len(lines))
    end = next((i for i in stop if _STEP_ENDS.match(lines[i]) or lines[i].startswith(_FAILED)), len(lines))
    return [lines[start], *lines[start + 2 : end]]
