"""The standing gates: cheap checks of the whole tree that every change must pass."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build import console, process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dgr_build.workspace import Workspace

_CODE = ("toolchain", "tests")


class Verdict(Enum):
    """How a gate ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One check by its name, as a person knows it."""

    name: str
    run: Callable[[Workspace], Verdict]


def _python_tool(*arguments: str) -> Callable[[Workspace], Verdict]:
    return lambda ws: _judge(ws, [sys.executable, "-P", "-m", *arguments])


def _lint_imports(ws: Workspace) -> Verdict:
    return _judge(ws, [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"])


def _whitespace(ws: Workspace) -> Verdict:
    """Check every tracked text file: the difference from nothing to the working tree.

    Patches are left out by .gitattributes: a space at a line's end is their syntax.
    """
    git = shutil.which("git")
    if git is None:
        return _not_run("git is not installed")
    # Root in another person's checkout is fine for reading; the setting lives for this command only.
    here = [git, "-C", str(ws.project), "-c", f"safe.directory={ws.project}"]
    # A hook's variables would point git at another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    top = process.run([*here, "rev-parse", "--show-toplevel"], env=env)
    if top.returncode != 0 or Path(top.stdout.strip()) != ws.project.resolve():
        return _not_run("the project is not a git checkout of its own")
    empty = process.run([*here, "hash-object", "-t", "tree", "--stdin"], env=env).stdout.strip()
    rules = "core.whitespace=blank-at-eol,blank-at-eof,space-before-tab"
    return _judge(ws, [*here, "-c", rules, "--no-pager", "diff", "--check", empty, "--"], env)


def _not_run(reason: str) -> Verdict:
    console.say(f"not run: {reason}")
    return Verdict.NOT_RUN


def _judge(ws: Workspace, command: list[str], env: Mapping[str, str] = os.environ) -> Verdict:
    caches = ws.root / "cache"
    env = {
        **env,
        "MYPY_CACHE_DIR": str(caches / "mypy"),
        "PYTHONPYCACHEPREFIX": str(caches / "pycache"),
        "RUFF_CACHE_DIR": str(caches / "ruff"),
    }
    done = process.run_lines(command, console.say, cwd=ws.project, env=env)
    return Verdict.PASSED if done.returncode == 0 else Verdict.FAILED


GATES = (
    Gate(name="compileall", run=_python_tool("compileall", "-q", "-f", *_CODE)),
    Gate(name="git diff --check", run=_whitespace),
    Gate(name="ruff check", run=_python_tool("ruff", "check", *_CODE)),
    Gate(name="ruff format", run=_python_tool("ruff", "format", "--check", *_CODE)),
    Gate(name="mypy", run=_python_tool("mypy")),
    Gate(name="lint-imports", run=_lint_imports),
)
