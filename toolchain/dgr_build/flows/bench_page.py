"""A benchmark as a page that a person reads. Every number on it is a field of the document."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgr_build.documents.bench import Interval, Row, ToolchainBench

_SUMMARY = (
    "Two ways to the same end, run in turns; ratios are geometric means of the pairs with an interval of "
    "95 %. A target is met when the whole interval is within it, missed when all of it is beyond."
)


def page(bench: ToolchainBench) -> str:
    """Return a benchmark as Markdown."""
    lines = [
        "# Speed of the toolchain",
        "",
        _SUMMARY,
        "",
        "| what | ours, s | theirs, s | ratio | target | verdict | pairs |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(cells(row))} |" for row in bench.rows),
        "",
        *(f"- **{row.name}**: {row.ours}; against {row.theirs}." for row in bench.rows),
        "",
        _where(bench),
        "",
        *(f"- {name}: {version}" for name, version in bench.tools.items()),
        "",
        "Limitations:",
        "",
        *(f"- {line}" for line in bench.limitations),
        "",
        f"Written by the tool from `record.json` beside this page, id `{bench.id}`.",
    ]
    return "\n".join(lines) + "\n"


def _where(bench: ToolchainBench) -> str:
    machine = bench.environment
    return (
        f"Run at {bench.ran_at:%Y-%m-%d %H:%M} UTC on {machine.cpu}, {machine.cores} cores, {machine.os}, "
        f"kernel {machine.kernel}; load {bench.load[0]:g} before and {bench.load[1]:g} after."
    )


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as the cells of a table."""
    theirs = sorted(row.theirs_seconds)[len(row.theirs_seconds) // 2]
    target = "none"
    if row.target is not None:
        target = f"at most {row.target.at_most:g}" + (" s" if row.target.of == "seconds" else "")
    return (
        row.name,
        spread(row.seconds),
        f"{theirs:.3g}",
        spread(row.ratio),
        target,
        row.verdict,
        str(len(row.ours_seconds)),
    )


def spread(interval: Interval) -> str:
    """Return an interval as a person writes it."""
    return f"{interval.estimate:.3g} ({interval.low:.3g} to {interval.high:.3g})"
