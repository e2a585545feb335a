"""The story of `dgr-build lane NAME --reproduce`: two builds in different surroundings, the same bytes."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dgr_build import console
from dgr_build.documents.base import load_json, save_json
from dgr_build.documents.reproduce import BuildAnswer, BuildOrder
from dgr_build.errors import BuildError, CheckError, DgrError
from dgr_build.flows.lane_checks import REPRODUCED, Check
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.differences import Difference, compare, explain
from dgr_build.lanes.jobs import available_memory, cores, job_count
from dgr_build.lanes.reproduce import (
    PROMISED,
    Clock,
    Surroundings,
    named_machine,
    other_clock,
    require_different,
    two_surroundings,
)
from dgr_build.process import run_lines
from dgr_build.workspace import remove, require_space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dgr_build.lanes.environment.made import Made
    from dgr_build.lanes.lane import Chosen
    from dgr_build.workspace import Workspace

OBJECTS = "a few object files, compiled twice in different surroundings, are the same bytes"
_SHOWN = tuple(name for name in PROMISED if name not in {"folder", "clock"})
_DAY_S = 86400
_MODULE = "dgr_build.flows.reproduce_build"
_NEED_BYTES = 2_500_000_000
_EXPLAIN_S = 300.0
_EXPLAINED = 3  # differences; the others are named
_SHOWN_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is built twice.

    Args:
        ws: the clone's workspace; it has the source and the packages, and its lanes are locked.
        chosen: the lane.
        made: its environment.
        objects: how many objects to compile, None for the whole worker and its packages.
        keep: leave the two build folders where they are.
        own: the worker of the lane's own build, which must be the same; None where there is none.
    """

    ws: Workspace
    chosen: Chosen
    made: Made
    objects: int | None = None
    keep: bool = False
    own: Path | None = None

    @property
    def clock_compiles(self) -> bool:
        """Whether compilers can have another clock: NVIDIA's front end hangs under faketime."""
        device = self.chosen.lane.device
        return device is None or device.language != "CUDA"


def reproduce(wanted: Wanted, pair: tuple[Surroundings, Surroundings] | None = None) -> Check:
    """Build a lane twice, uncached, in different surroundings, and compare every output.

    Args:
        wanted: the lane.
        pair: the surroundings; by default those that differ in all that must not matter.

    Raises:
        BuildError, DgrError: a build failed; of the kind that it failed with.
        CheckError: the outputs differ, or the surroundings did not.
        HostError: there is no faketime, or not enough space.
    """
    ws, start = wanted.ws, time.monotonic()
    pair = pair or two_surroundings(job_count(cores(), available_memory()))
    remove(ws.reproduction(""))
    require_space(ws.reproduction(""), _NEED_BYTES, "two builds")
    with other_clock(wanted.made) as clock:
        first, second = (_build(wanted, around, clock) for around in pair)
    require_different(first.seen, second.seen, clock=wanted.clock_compiles)
    differences = list(compare(first.outputs, second.outputs))
    if wanted.own is not None and "worker" in first.outputs:
        ours, theirs = {"worker": wanted.own}, {"worker": first.outputs["worker"]}
        differences += [] if differences else compare(ours, theirs)
    if first.digest != second.digest:
        raise CheckError(
            f"lane {wanted.chosen.name} has two digests",
            cause=f"{first.digest} and {second.digest}: the plan depends on where the clone lies",
            remedy="compare the two plans with dgr-build lane NAME --dry-run in both clones",
        )
    if differences:
        raise _differ(wanted, differences)
    result = _result(wanted, first, second)
    if not wanted.keep:
        remove(ws.reproduction(""))
    return Check(
        criterion=OBJECTS if wanted.objects is not None else REPRODUCED,
        result=result,
        argv=_argv(wanted),
        seconds=round(time.monotonic() - start, 2),
    )


def _build(wanted: Wanted, around: Surroundings, clock: Clock) -> BuildAnswer:
    """Make one of the builds in a process of its own and return what it answered."""
    ws, chosen = wanted.ws, wanted.chosen
    base, out = ws.reproduction(around.name), ws.reproduction(f"{around.name}-outputs")
    copy_to = base / around.folder
    ticking = clock.variables(around.days)
    order = BuildOrder(
        project=ws.project,
        root=ws.root,
        cache=ws.cache,
        copy_to=copy_to,
        made_in=copy_to / ".dgr",
        out=out,
        lane=chosen.name,
        profile=chosen.profile,
        settings=tuple(f"{one.key}={one.value}" for one in chosen.overrides if not one.overridden_by),
        umask=around.umask,
        jobs=around.jobs,
        variables={**around.variables, **(ticking if wanted.clock_compiles else {})},
        shown=clock.library if ticking and clock.foreign and wanted.clock_compiles else None,
        objects=wanted.objects,
    )
    base.mkdir(parents=True)
    out.mkdir(parents=True)
    order_file, answer_file = out / "order.json", out / "answer.json"
    save_json(order_file, order)
    console.say(f"build {around.name} in {copy_to}")
    command = [*named_machine(around.host), sys.executable, "-P", "-m", _MODULE]
    done = run_lines(
        [*command, str(order_file), str(answer_file)],
        lambda line: console.say(f"  {around.name}: {line}"),
        cwd=base,
        env={**os.environ, **around.variables, **ticking},
    )
    if not answer_file.is_file():
        raise BuildError(
            f"build {around.name} of lane {chosen.name} ended without an answer",
            cause="\n".join(done.stdout.splitlines()[-_SHOWN_LINES:]),
            remedy=f"what it left is in {base}",
        )
    answer = load_json(answer_file, BuildAnswer)
    if answer.error:
        raise _failed(answer.error, around, base)
    if not wanted.keep:
        remove(base)
    return answer


def _failed(error: Mapping[str, str | int], around: Surroundings, base: Path) -> DgrError:
    """Return the error of a build, as if it had happened here."""
    kinds = {kind.kind: kind for kind in DgrError.__subclasses__()}
    return kinds.get(str(error["error"]), DgrError)(
        f"build {around.name}: {error['message']}",
        cause=str(error["cause"]),
        remedy=f"{error['remedy']}; what the build left is in {base}",
    )


def _differ(wanted: Wanted, differences: Sequence[Difference]) -> CheckError:
    """Have the differences explained and return them as the error that they are."""
    logs = wanted.ws.logs("reproduce")
    lines: list[str] = []
    for number, difference in enumerate(differences):
        lines.append(difference.line)
        if number < _EXPLAINED and difference.first is not None and difference.second is not None:
            report = logs / f"{wanted.chosen.folder}-{difference.output.replace('/', '-')}.txt"
            with console.progress(f"diffoscope looks at {difference.output}"):
                lines.append(explain(difference, report, _EXPLAIN_S))
    names = ", ".join(difference.output for difference in differences)
    return CheckError(
        f"lane {wanted.chosen.name} is not reproducible: {names}",
        cause="\n".join(lines),
        remedy=f"the whole reports are in {logs}, both outputs in {wanted.ws.reproduction('')}",
    )


def _result(wanted: Wanted, first: BuildAnswer, second: BuildAnswer) -> dict[str, Any]:
    varied: dict[str, Any] = {name: [first.seen[name], second.seen[name]] for name in _SHOWN}
    # Names of this machine have no place in a record.
    varied["folder"] = "differs; one with spaces and a letter beyond ASCII"
    varied["host"] = "differs" if first.seen.get("host") != second.seen.get("host") else "the same"
    varied["clock"] = _clock(wanted, first, second)
    return {
        "lane_digest": first.digest,
        "sha256": {name: sha256_file(path) for name, path in first.outputs.items()},
        "surroundings": varied,
        **({"same_as_the_lanes_own_build": True} if wanted.own is not None else {}),
    }


def _clock(wanted: Wanted, first: BuildAnswer, second: BuildAnswer) -> str:
    if not wanted.clock_compiles:
        return "the same for the compilers: that of CUDA does not run under faketime"
    ahead = int(second.seen["clock"]) - int(first.seen["clock"])
    return f"{ahead // _DAY_S} days apart"


def _argv(wanted: Wanted) -> tuple[str, ...]:
    objects = ("--objects", str(wanted.objects)) if wanted.objects is not None else ()
    return ("dgr-build", "lane", *wanted.chosen.words, "--only", "reproduce", *objects)
