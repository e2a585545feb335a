"""The story of `dgr-build top`: which stages are meant, and how a look at them reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build.documents.tls import Tls
from dgr_build.errors import UsageError
from dgr_build.flows.run import find_recipe
from dgr_build.route.tls import ClientTls
from dgr_build.route.workers import running

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dgr_build.route.watch import Look
    from dgr_build.workspace import Workspace

COLUMNS = (
    "stage", "address", "state", "health", "load", "queue", "tokens/s", "in/s", "out/s", "sessions", "epoch",
    "memory",
)  # fmt: skip
_UNITS = ("B", "kB", "MB", "GB", "TB")


def stages_of(
    ws: Workspace, route: str, at: Sequence[str], tls: Path | None
) -> tuple[list[str], ClientTls | None]:
    """Return the addresses of a route's stages, and how they are spoken to.

    Args:
        ws: the workspace, for recipes and for what runs from it.
        route: addresses from head to tail with commas between, or a recipe.
        at: addresses of a recipe's workers; without them those that `dgr-build run` has started here.
        tls: a folder of certificates, in place of those that the recipe names.

    Raises:
        UsageError: there is no such recipe, nothing of it runs here, or its stages are not as many as the
            addresses.
    """
    client = None if tls is None else ClientTls.of(Tls.of_folder(tls.absolute()))
    if ":" in route:
        if at:
            raise UsageError(
                "the addresses are given twice", cause=f"{route} and --at", remedy="leave one of them out"
            )
        addresses = [name.strip() for name in route.split(",")]
        if not all(addresses):
            raise UsageError(f"{route!r} leaves an address out", remedy="give HOST:PORT,HOST:PORT")
        return addresses, client
    recipe = find_recipe(ws, route)
    addresses = list(at) or running(ws, recipe)
    if not addresses:
        raise UsageError(
            f"no workers of recipe {recipe.name} run from this clone",
            cause=f"none were started by dgr-build run {route}, or they have ended",
            remedy=f"name those that you started: dgr-build top {route} --at HOST:PORT,HOST:PORT",
        )
    if len(addresses) != len(recipe.stages):
        raise UsageError(
            f"recipe {recipe.name} has {len(recipe.stages)} stages",
            cause=f"{len(addresses)} addresses were given",
            remedy="give one for each stage, from head to tail: --at HOST:PORT,HOST:PORT",
        )
    return addresses, client or ClientTls.of(recipe.tls)


def row(look: Look) -> list[str]:
    """Return the cells of a stage, in the order of COLUMNS."""
    if look.problem:
        code = look.problem.partition(":")[0]  # the rest would be wrapped; it is in the JSON
        return ["?", look.address, look.state, code, *[""] * (len(COLUMNS) - 4)]
    status, rates = look.status, look.rates
    load, tokens, into, out = ("", "", "", "")
    if rates is not None:
        load, tokens = f"{rates.load:.0%}", f"{rates.tokens:.1f}"
        into, out = human_bytes(rates.bytes_in), human_bytes(rates.bytes_out)
    return [
        f"[{status.range.first}, {status.range.last})",
        look.address,
        look.state,
        look.health,
        load,
        str(status.queued_frames),
        tokens,
        into,
        out,
        f"{status.slots_total - status.slots_free}/{status.slots_total}",
        str(status.newest_epoch or ""),
        human_bytes(status.resident_bytes),
    ]


def to_json(look: Look) -> dict[str, object]:
    """Return a stage as data; speeds are null where there was no look before."""
    if look.problem:
        return {"address": look.address, "state": look.state, "problem": look.problem}
    status, rates = look.status, look.rates
    return {
        "address": look.address,
        "state": look.state,
        "health": look.health,
        "instance": status.instance,
        "range": [status.range.first, status.range.last],
        "load": None if rates is None else rates.load,
        "queued": status.queued_frames,
        "tokens_per_second": None if rates is None else rates.tokens,
        "bytes_in_per_second": None if rates is None else rates.bytes_in,
        "bytes_out_per_second": None if rates is None else rates.bytes_out,
        "sessions": status.slots_total - status.slots_free,
        "slots": status.slots_total,
        "epoch": status.newest_epoch,
        "resident_bytes": status.resident_bytes,
        "executed_frames": status.executed_frames,
        "executed_rows": status.executed_rows,
        "failed_frames": status.failed_frames,
        "rejected_frames": status.rejected_frames,
        "uptime_seconds": status.uptime_us / 1e6,
    }


def human_bytes(number: float) -> str:
    """Return a number of bytes with three digits and a unit."""
    for unit in _UNITS:
        if number < 999.5 or unit == _UNITS[-1]:  # noqa: PLR2004 - rounds to 1000
            digits = 0 if unit == "B" or number >= 99.95 else 1 if number >= 9.995 else 2  # noqa: PLR2004
            return f"{number:.{digits}f} {unit}"
        number /= 1000
    raise AssertionError
