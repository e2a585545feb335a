"""A benchmark of the worker as a page that a person reads. Every number on it is a field of the document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build.flows.bench_page import spread

if TYPE_CHECKING:
    from dgr_build.documents.bench_worker import MeasuredModel, Unit, WorkerBench, WorkerRow

COLUMNS = ("what", "ours", "theirs", "ratio", "target", "verdict", "pairs")
_SUMMARY = (
    "The worker and what it is held against, measured in turns; ratios are geometric means of the pairs with "
    "an interval of 95 %. A target is met when the whole interval is within it, missed when all of it is "
    "beyond."
)
_QUICK = (
    "**This was a quick run with small settings: it shows that everything can be measured, not how fast the "
    "worker is.**"
)


def page(bench: WorkerBench) -> str:
    """Return a benchmark as Markdown."""
    lines = [
        "# Speed of the shard worker",
        "",
        *([_QUICK, ""] if bench.quick else []),
        _SUMMARY,
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
        *(f"| {' | '.join(cells(row))} |" for row in bench.rows),
        "",
        *(f"- **{row.name}**: {row.ours}; against {row.theirs}.{_detail(row)}" for row in bench.rows),
        "",
        _where(bench),
        "",
        _what(bench),
        "",
        *map(_model, bench.models),
        *(f"- {name}: {value}" for name, value in bench.settings.items()),
        *(f"- {name}: {version}" for name, version in bench.tools.items()),
        "",
        "Limitations:",
        "",
        *(f"- {line}" for line in bench.limitations),
        "",
        f"Written by the tool from `record.json` beside this page, id `{bench.id}`.",
    ]
    return "\n".join(lines) + "\n"


def _where(bench: WorkerBench) -> str:
    machine = bench.environment
    return (
        f"Run at {bench.ran_at:%Y-%m-%d %H:%M} UTC on {machine.cpu}, {machine.cores} cores, {machine.os}, "
        f"kernel {machine.kernel}; load {bench.load[0]:g} before and {bench.load[1]:g} after."
    )


def _what(bench: WorkerBench) -> str:
    values = ", ".join(f"{name}={value}" for name, value in bench.upstream_values.items())
    return (
        f"Upstream's programs are of commit `{bench.pin_commit}`, unpatched, with the values of the worker's "
        f"lane but for {values}. The worker is of lane digest `{bench.lane_digest}`."
    )


def _model(model: MeasuredModel) -> str:
    return (
        f"- model {model.name}: {model.n_layer} layers, width {model.n_embd}, {model.n_bytes} bytes, digest "
        f"`{model.digest}`"
    )


def cells(row: WorkerRow) -> tuple[str, ...]:
    """Return a row as the cells of a table."""
    return (
        row.name,
        _middle(row.ours_values, row.unit),
        _middle(row.theirs_values, row.unit),
        spread(row.ratio),
        row.bound.text,
        row.verdict,
        str(len(row.ours_values)),
    )


def _middle(values: tuple[float, ...], unit: Unit) -> str:
    value = sorted(values)[len(values) // 2]
    return f"{value / 1e6:.1f} MB" if unit == "bytes" else f"{value:.3g} {unit}"


def _detail(row: WorkerRow) -> str:
    told = ", ".join(f"{name} {value:g}" for name, value in row.detail.items())
    return f" Mean: {told}." if told else ""
