"""Everything that is printed: progress and remarks on stderr, results on stdout."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dgr_build.errors import DgrError

_PIPE_WIDTH = 400
_err = Console(stderr=True, highlight=False, soft_wrap=True)
_out = Console(highlight=False, soft_wrap=True)


class Task(Protocol):
    """A running piece of work whose progress is shown."""

    def advance(self, amount: float) -> None:
        """Add `amount` units to what is done."""

    def update(self, *, done: float, total: float | None = None) -> None:
        """Set what is done, and the total where it has become known."""


def say(message: str) -> None:
    """Print a remark for the person who watches."""
    _err.print(message, markup=False)


def step(title: str) -> None:
    """Announce the next step of a longer story."""
    _err.print(f"==> {title}", style="bold", markup=False)


def warn(message: str) -> None:
    """Print a remark that deserves attention but stops nothing."""
    _err.print(f"warning: {message}", style="yellow", markup=False)


def result(text: str) -> None:
    """Print a line of the result itself, to stdout."""
    _out.print(text, markup=False)


def stream(text: str) -> None:
    """Print a piece of a result as it arrives, without a line end."""
    sys.stdout.write(text)
    sys.stdout.flush()


def result_json(data: object) -> None:
    """Print a result as one JSON document, to stdout."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as the result."""
    # A pipe has no width: wrapped names would be of no use to whoever reads it.
    out = _out if _out.is_terminal else Console(width=_PIPE_WIDTH, highlight=False)
    out.print(_grid(title, columns, rows))


@contextmanager
def live_table(title: str, columns: Sequence[str]) -> Iterator[Callable[[Sequence[Sequence[str]]], None]]:
    """Yield a function that shows the rows of a table in the place of those before.

    Where there is no terminal, each table is printed below the one before.
    """
    if not _out.is_terminal:
        yield lambda rows: table(title, columns, rows)
        return
    with Live(_grid(title, columns, ()), console=_out, auto_refresh=False) as live:
        yield lambda rows: live.update(_grid(title, columns, rows), refresh=True)


def _grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))  # brackets are brackets here, no markup
    return grid


def facts(pairs: Mapping[str, object]) -> None:
    """Print named values as the result, one a line, names aligned."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        result(f"{name:<{width}}  {value}")


def report(error: DgrError) -> None:
    """Print an error: what, why, next command."""
    _err.print(f"error: {error.message}", style="bold red", markup=False)
    if error.cause:
        _err.print(f"cause: {error.cause}", markup=False)
    if error.remedy:
        _err.print(f"next:  {error.remedy}", style="bold", markup=False)


@contextmanager
def progress(title: str, total: float | None = None, *, unit: str = "steps") -> Iterator[Task]:
    """Show the progress of one piece of work.

    Args:
        title: what is being done.
        total: how much there is to do, None when it is not known yet.
        unit: "bytes" for sizes and speeds, anything else for a plain count.

    On a terminal this is a bar; elsewhere (a CI log) a line at the start and one at every tenth.
    """
    if not _err.is_terminal:
        yield _LineTask(title, total, unit)
        return
    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    columns += [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=_err, transient=True) as bar:
        yield _BarTask(bar, title, total)


class _BarTask:
    def __init__(self, bar: Progress, title: str, total: float | None) -> None:
        self._bar = bar
        self._id = bar.add_task(title, total=total)

    def advance(self, amount: float) -> None:
        self._bar.advance(self._id, amount)

    def update(self, *, done: float, total: float | None = None) -> None:
        self._bar.update(self._id, completed=done, total=total)


class _LineTask:
    def __init__(self, title: str, total: float | None, unit: str) -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._done = 0.0
        self._tenth = 0
        say(title)

    def advance(self, amount: float) -> None:
        self.update(done=self._done + amount)

    def update(self, *, done: float, total: float | None = None) -> None:
        self._done = done
        self._total = total if total is not None else self._total
        if not self._total:
            return
        tenth = int(10 * done / self._total)
        if tenth > self._tenth:
            self._tenth = tenth
            say(f"  {self._title}: {done:.0f} of {self._total:.0f} {self._unit}")
