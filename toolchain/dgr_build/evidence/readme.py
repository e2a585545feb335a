"""A record as a page that a person reads. Every fact on it is a field of the record."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dgr_build.documents.evidence import Record, Result

_UNIT = 1 << 30


def render(record: Record, title: str, summary: str) -> str:
    """Return a record as Markdown.

    Args:
        record: what is shown.
        title: the heading.
        summary: a paragraph below it that says what the page is about; it must claim nothing.
    """
    parts = [
        f"# {title}",
        summary,
        _verdict(record),
        "## Criteria",
        _criteria(record),
        "## What ran",
        _commands(record),
        "## What it ran on",
        _digests(record),
        "### Models",
        _models(record),
        "### Machine",
        _machine(record),
        "## Raw metrics",
        _metrics(record),
        "## Changed upstream files",
        _table(
            ("file", "before", "after"), ((_code(f.path), f.before, f.after) for f in record.changed_files)
        ),
        "## Limitations",
        _list(record.limitations),
        "## What the next step takes over",
        _list(record.next),
        f"Written by the tool from record `{record.id}`; `record.json` beside this page is that record.",
    ]
    return "\n\n".join(parts) + "\n"


def _verdict(record: Record) -> str:
    held = sum(result.passes for result in record.results)
    failed = sum(result.verdict == "failed" for result in record.results)
    lines = [f"`passes: {_bool(record.passes)}`: {held} of {len(record.results)} criteria hold"]
    lines += [f"; {failed} failed when run"] if failed else []
    open_ones = sum(bool(result.needs) for result in record.results)
    lines += [f"; {open_ones} need what this run did not have, and are not claimed"] if open_ones else []
    return "".join(lines) + "."


def _criteria(record: Record) -> str:
    rows = (
        (result.criterion, _command_of(record, result), _outcome(result), f"`passes: {_bool(result.passes)}`")
        for result in record.results
    )
    return _table(("criterion", "command", "result", "claim"), rows)


def _command_of(record: Record, result: Result) -> str:
    if result.command is None:
        return "none"
    return _code(shlex.join(record.commands[result.command].argv))


def _outcome(result: Result) -> str:
    text = f"**{result.verdict}**"
    text += f": {result.shown}" if result.shown else ""
    return text + (f" *Needs: {result.needs}.*" if result.needs else "")


def _commands(record: Record) -> str:
    rows = ((_code(shlex.join(c.argv)), str(c.exit_code), f"{c.seconds:.1f}") for c in record.commands)
    return _table(("command", "exit code", "seconds"), rows)


def _digests(record: Record) -> str:
    known = record.digests
    pairs = [
        ("upstream commit", f"{known.pin_commit} (proof: {known.proof})"),
        ("upstream tree", known.pin_tree),
        ("patched tree", known.patched_tree),
        ("patch series, sha256", known.series_sha256),
        (f"lane {known.lane}, digest", known.lane_digest or "nothing was built"),
        ("worker, sha256", known.worker_sha256 or "nothing was built"),
        ("reference program, sha256", known.reference_sha256 or "took no part"),
        *((f"recipe {name}", value) for name, value in sorted(known.recipes.items())),
        *((f"numerics, {name}", value) for name, value in sorted(known.numerics.items())),
    ]
    return _table(("what", "value"), ((name, _code(value)) for name, value in pairs))


def _models(record: Record) -> str:
    rows = [
        (
            model.name + (" (synthetic weights)" if model.synthetic else ""),
            f"{model.arch}, {model.n_layer} main layers",
            _code(model.digest),
            f"{part.size}",
            _code(part.sha256),
        )
        for model in record.digests.artifacts
        for part in model.parts
    ]
    return _table(("model", "architecture", "artifact digest", "part, bytes", "part, sha256"), rows)


def _machine(record: Record) -> str:
    here = record.environment
    pairs = [
        ("processor", f"{here.cpu}, {here.cores} cores in use"),
        ("memory", f"{here.memory_bytes / _UNIT:.1f} GiB"),
        ("system", f"{here.os}, kernel {here.kernel}"),
        ("compiler", here.compiler),
        ("backend", here.backend),
        ("driver", here.driver),
        ("network", here.network),
    ]
    return _table(("what", "value"), pairs)


def _metrics(record: Record) -> str:
    if not record.metrics:
        return "None."
    rows = (
        (name, _code(json.dumps(value, sort_keys=True))) for name, value in sorted(record.metrics.items())
    )
    return _table(("measured", "value"), rows)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "None."


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    if len(cells) == 2:  # noqa: PLR2004 - heading and rule only
        return "None."
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in cells)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`"


def _bool(value: bool) -> str:
    return "true" if value else "false"
