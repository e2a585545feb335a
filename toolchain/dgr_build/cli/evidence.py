"""`dgr-build evidence`: what was shown, on which digests, and the flow that shows the V4 adapter."""

from __future__ import annotations

from typing import Annotated

import typer

from dgr_build import console
from dgr_build.evidence import record as records
from dgr_build.evidence.readme import render
from dgr_build.flows.adapter_evidence import prove_adapter
from dgr_build.flows.noise_floor import measure
from dgr_build.workspace import Workspace

_LIST = """List the evidence records of this workspace, oldest first.

Example:

  dgr-build evidence list
"""
_SHOW = """Show one record as a page: criteria, commands, digests, machine, numbers, limitations.

A record that was changed after it was written is refused.

Example:

  dgr-build evidence show 3f9a01
"""
_DGR_051 = """Run everything that shows the V4 adapter and the standing gates, and write page and record.

Patch stack, gates, unit and C++ tests, parity over gRPC with its controls, rules of the wire, upstream's own
test on both trees: minutes on two cores, longer where something must be compiled first. The result lies in
the workspace; --publish also puts it into the tracked evidence folder, when nothing failed.

Example:

  dgr-build evidence dgr-051 --publish
"""


_NOISE_FLOOR = """Measure how far apart right computations of the same logits are, on lane cpu.

The whole model on the unmodified library, under numerics that all are legal: threads, frames, flash
attention, types of the K and V cache. Lanes that compute in another order than the CPU (lane vulkan) state
their limit from this; half a minute.

Example:

  dgr-build evidence noise-floor
"""


def register(app: typer.Typer) -> None:
    """Add the command group to the application."""
    group = typer.Typer(help="Evidence records: what was run, on which digests, with which outcome.")
    group.command("list", help=_LIST)(_list)
    group.command("show", help=_SHOW)(_show)
    group.command("dgr-051", help=_DGR_051)(_dgr_051)
    group.command("noise-floor", help=_NOISE_FLOOR)(_noise_floor)
    app.add_typer(group, name="evidence")


_Json = Annotated[bool, typer.Option("--json", help="Print the result as data.")]


def _list(*, as_json: _Json = False) -> None:
    found = records.read_all(Workspace.open().evidence)
    if as_json:
        rows = [
            {"id": r.id, "subject": r.subject, "ran_at": r.ran_at.isoformat(), "sound": r.sound}
            for r in found
        ]
        console.result_json(rows)
        return
    columns = ("id", "subject", "ran at", "lane digest", "failures")
    lines = [
        (
            r.id[:12],
            r.subject,
            f"{r.ran_at:%Y-%m-%d %H:%M}",
            (r.digests.lane_digest or "-")[:12],
            "none" if r.sound else "yes",
        )
        for r in found
    ]
    console.table("evidence", columns, lines)


def _show(
    name: Annotated[str, typer.Argument(help="A record's id, or the beginning of it.", metavar="ID")],
    *,
    as_json: _Json = False,
) -> None:
    record = records.read(records.find(Workspace.open().evidence, name))
    if as_json:
        console.result_json({"id": record.id, **record.model_dump(mode="json")})
        return
    console.result(render(record, record.subject, f"Run at {record.ran_at:%Y-%m-%d %H:%M} UTC."))


def _dgr_051(
    *,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also write to the tracked evidence folder.")
    ] = False,
    as_json: _Json = False,
) -> None:
    written = prove_adapter(Workspace.open(), publish=publish)
    data = written.to_json()
    if as_json:
        console.result_json(data)
        return
    console.facts({name: value for name, value in data.items() if name != "results"})


def _noise_floor(
    *,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also write to the tracked evidence folder.")
    ] = False,
    as_json: _Json = False,
) -> None:
    floor, path = measure(Workspace.open(), publish=publish)
    if as_json:
        console.result_json(floor.model_dump(mode="json"))
        return
    rows = [
        (recipe, variant, f"{error:.2g}")
        for recipe, errors in floor.nmse.items()
        for variant, error in errors.items()
    ]
    console.table("noise floor", ("recipe", "what was otherwise", "nmse"), rows)
    console.facts({"written to": path})
