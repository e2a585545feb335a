"""The smoke run of a built lane: a tiny V4 over three workers beside the whole model."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.flows.lane_checks import Check
from dgr_build.flows.run import RunRequest, run_recipe

if TYPE_CHECKING:
    from dgr_build.workspace import Workspace

RECIPE = "deepseek4-tiny-3stage"
_TOKENS = 16
_LEFT_OUT = ("text", "seconds", "logs")


def run_trial(ws: Workspace) -> Check:
    """Run a 43-layer tiny V4 over three workers beside the whole model, and compare their logits.

    Raises:
        RouteError: a worker or the route failed.
        CheckError: the logits or the tokens differ.
    """
    started = time.monotonic()
    data = run_recipe(ws, RunRequest(recipe=RECIPE, max_tokens=_TOKENS, compare=True)).to_json()
    speeds = ", ".join(f"{name} {value:.1f} tokens/s" for name, value in data["tokens_per_second"].items())
    console.say(f"tokens {data['token_ids']}")
    console.say(f"max |d| of {data['rows_compared']} rows of logits: {data['max_abs_diff']:g}; {speeds}")
    return Check(
        result={name: value for name, value in data.items() if name not in _LEFT_OUT},
        argv=("dgr-build", "run", RECIPE, "--max-tokens", str(_TOKENS), "--compare", "whole"),
        seconds=round(time.monotonic() - started, 2),
    )
