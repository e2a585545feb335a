"""The evidence record of a soak: what was inflicted, what the clients saw, and what was left in the end."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from dgr_build.documents.evidence import Command, Record, Result
from dgr_build.documents.series import load_series
from dgr_build.errors import CheckError
from dgr_build.evidence.publish import publish_page
from dgr_build.evidence.record import write
from dgr_build.evidence.subject import changed_files, digests_of
from dgr_build.evidence.surroundings import environment, private_folders
from dgr_build.flows.lane import Request, run_lane
from dgr_build.flows.soak import LANE, LIMIT_S, Soaked, SoakRequest

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.workspace import Workspace

NAME = "soak"
_SUMMARY = "Sessions that talk on and on while stages are killed and stopped under them."
_LIMITATIONS = (
    "Weights are synthetic: mechanics and bits are shown, nothing about a real model.",
    "All workers and clients ran on one machine over loopback; no packet was lost or late.",
)


def facts(soaked: Soaked) -> dict[str, Any]:
    """Return what a soak saw, as data."""
    tally = soaked.tally
    return {
        "tokens": tally.tokens,
        "wrong_tokens": len(tally.wrong),
        "generations": tally.generations,
        "prefills": tally.prefills,
        "errors": dict(sorted(tally.errors.items())),
        "faults": dict(sorted(Counter(fault.kind for fault in soaked.faults).items())),
        "longest_wait_s": round(tally.longest_s, 2),
        "slots_free": [free for free, _ in soaked.slots],
        "memory_bytes": [{"first": first, "last": last} for first, last in soaked.memory],
        "seconds": round(soaked.seconds, 1),
    }


def record_soak(ws: Workspace, request: SoakRequest, soaked: Soaked, *, publish: bool) -> Path:
    """Write the record of a soak and return where it lies.

    Args:
        ws: the workspace.
        request: what was asked for.
        soaked: what was seen.
        publish: write it into the tracked evidence folder too, as record and page.

    Raises:
        CheckError: the worker was built anew in the meantime, or the record would name this machine.
    """
    built = run_lane(ws, Request(lane=LANE, only="inspect")).built
    if built is None:
        raise CheckError(f"lane {LANE} was not built", remedy=f"dgr-build lane {LANE}")
    argv = ["dgr-build", "soak", soaked.recipe.name, "--tokens", str(request.tokens)]
    argv += [
        "--faults",
        str(request.faults),
        "--sessions",
        str(request.sessions),
        "--seed",
        str(request.seed),
    ]
    made = Record(
        subject=f"soak of {soaked.recipe.name}",
        ran_at=soaked.began,
        commands=(Command(argv=tuple(argv), exit_code=0, seconds=round(soaked.seconds, 2)),),
        digests=digests_of(ws, built, {soaked.recipe.name: soaked.artifact}, recipes=[soaked.recipe]),
        environment=environment(
            "of the lane", f"{', '.join(built.version['backends'])} ({built.version['isa']})"
        ),
        metrics={
            **facts(soaked),
            "inflicted": [vars(fault) for fault in soaked.faults],
        },
        results=_results(soaked),
        changed_files=changed_files(load_series(ws.series_file)),
        limitations=_LIMITATIONS,
    )
    private = private_folders(ws)
    if publish:
        folder = ws.published_evidence / NAME
        publish_page(folder, made, f"Soak of {soaked.recipe.name}", _SUMMARY, private)
    return write(ws.evidence, made, private)


def _results(soaked: Soaked) -> tuple[Result, ...]:
    seen, tally = facts(soaked), soaked.tally
    return (
        _held(
            "every token is what the whole model on the unmodified library chooses there: none is wrong, "
            "missing or there twice",
            {name: seen[name] for name in ("tokens", "wrong_tokens", "generations", "prefills", "errors")},
            holds=not tally.wrong,
        ),
        _held(
            f"no client waits longer than {LIMIT_S:.0f} s for a token or an error",
            {"longest_wait_s": seen["longest_wait_s"], "faults": seen["faults"]},
            holds=tally.longest_s <= LIMIT_S,
        ),
        _held(
            "in the end every slot is free, and no stage holds a tenth more memory than after its first "
            "sessions",
            {"slots_free": seen["slots_free"], "memory_bytes": seen["memory_bytes"]},
            holds=not any(line.startswith("stage ") for line in soaked.wrong),
        ),
    )


def _held(criterion: str, shown: object, *, holds: bool) -> Result:
    return Result(
        criterion=criterion,
        command=0,
        verdict="passed" if holds else "failed",
        shown=json.dumps(shown, sort_keys=True),
        passes=holds,
    )
