"""Upstream's own tests on a tree of ours: what llama.cpp expects of every architecture must still hold.

The lane's values are used but for two: common and tests are on, since the test programs need them, and OpenMP
is on. The test takes four threads whatever the machine has, and ggml's own barriers spin: on two busy cores
it would run for half an hour instead of half a minute.

Upstream's logger writes from a thread of its own, and a program may end before it has written its last lines
(llama.cpp issue 22142 says why that stays so). A table without its summary is therefore not the whole table,
and the program is run again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.errors import CheckError
from dgr_build.lanes.upstream_build import Wanted, build_upstream
from dgr_build.process import run_lines

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix
    from dgr_build.workspace import Workspace

_PROGRAM = "test-llama-archs"
_OVERRIDES = {"LLAMA_BUILD_COMMON": "ON", "LLAMA_BUILD_TESTS": "ON", "GGML_OPENMP": "ON"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ROW = re.compile(r"^\|\s*(?P<arch>[\w.-]+)\|[^|]*\|[^|]*\|\s*(?P<verdict>OK|FAIL)\b")
_SUMMARY = re.compile(r"^Summary: ")
_ATTEMPTS = 6


@dataclass(frozen=True, kw_only=True)
class ArchsVerdict:
    """What test-llama-archs said of a tree: how many configurations passed, and which did not."""

    passed: int
    failed: tuple[str, ...]
    architectures: frozenset[str]
    seconds: float


def run_archs(ws: Workspace, matrix: Matrix, source: Path, name: str, *, epoch: int = 0) -> ArchsVerdict:
    """Build upstream's test of every architecture from `source` and run it.

    Args:
        ws: the workspace; the build goes to its folder `upstream-tests-NAME`.
        matrix: where the CPU lane's values come from.
        source: a checkout of the base or the patched tree.
        name: what to call it, such as "base".
        epoch: the time that stands for now in what is built, in seconds since 1970.

    Raises:
        BuildError: it does not configure or compile.
        CheckError: an architecture fails (which ones is in the cause), or the table never comes out whole.
    """
    build = ws.build(f"upstream-tests-{name}")
    with ws.lock(build.name):
        build_upstream(
            ws, matrix, Wanted(source=source, programs=(_PROGRAM,), overrides=_OVERRIDES), build, epoch
        )
        program = build / "bin" / _PROGRAM
    errors = ws.logs("lane") / f"{build.name}-stderr.log"
    errors.parent.mkdir(parents=True, exist_ok=True)
    return run_built(program, name, errors)


def run_built(program: Path, name: str, errors: Path) -> ArchsVerdict:
    """Run upstream's built test until its table is whole; what it says on stderr goes to the file `errors`.

    Raises:
        CheckError: an architecture fails (which ones is in the cause), or the table never comes out whole.
    """
    for _ in range(_ATTEMPTS):
        table = _run(program, name, errors)
        if table.whole or table.returncode != 0:
            break
    else:
        raise CheckError(
            f"{_PROGRAM} ended {_ATTEMPTS} times before it had written its summary ({name} tree)",
            cause="its logger writes from a thread that the end of the program does not wait for",
            remedy=f"run {program} by hand on an idle machine",
        )
    return _verdict(table, program, name, errors)


@dataclass(frozen=True, kw_only=True)
class _Table:
    rows: tuple[tuple[str, str], ...]
    whole: bool
    returncode: int
    tail: str
    seconds: float


def _run(program: Path, name: str, errors: Path) -> _Table:
    rows: list[tuple[str, str]] = []
    whole = False
    with console.progress(f"{_PROGRAM} on the {name} tree") as task:

        def on_line(line: str) -> None:
            nonlocal whole
            plain = _COLOUR.sub("", line)
            row = _ROW.match(plain)
            if row:
                rows.append((row["arch"], row["verdict"]))
                task.update(done=len(rows))
            whole = whole or _SUMMARY.match(plain) is not None

        done = run_lines([program], on_line, errors=errors)
    return _Table(
        rows=tuple(rows),
        whole=whole,
        returncode=done.returncode,
        tail="\n".join(done.stdout.splitlines()[-20:]),
        seconds=done.seconds,
    )


def _verdict(table: _Table, program: Path, name: str, errors: Path) -> ArchsVerdict:
    failed = tuple(sorted({arch for arch, verdict in table.rows if verdict == "FAIL"}))
    if table.returncode != 0 or failed or not table.rows:
        raise CheckError(
            f"{_PROGRAM} fails on the {name} tree",
            cause=f"exit code {table.returncode}, failing: {', '.join(failed) or 'none named'}\n{table.tail}",
            remedy=f"run {program} by hand; what it said on stderr is in {errors}",
        )
    return ArchsVerdict(
        passed=len(table.rows),
        failed=failed,
        architectures=frozenset(arch for arch, _ in table.rows),
        seconds=table.seconds,
    )
