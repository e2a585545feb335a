"""One of two builds of a lane that are held against each other, in a process with surroundings of its own.

`python -m dgr_build.flows.reproduce_build ORDER ANSWER` reads an order and writes an answer (see
documents/reproduce.py). The process was started with other variables, another clock and another machine's
name; the umask is set here. Everything happens in a copy of the clone, as a stranger's clone would be made.
"""

from __future__ import annotations

import os
import select
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import SupportsIndex

from dgr_build.documents.base import load_json, save_json
from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.reproduce import BuildAnswer, BuildOrder
from dgr_build.errors import EXIT_OK, DgrError
from dgr_build.flows.built_here import BuiltHere
from dgr_build.flows.lane_package import KINDS, pack
from dgr_build.flows.lane_source import publish_source
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.build import Job, Options, build_plan
from dgr_build.lanes.environment.manage import enter
from dgr_build.lanes.inspect import Inspected, ask_version, program_facts
from dgr_build.lanes.lane import BuiltLane, LanePlan, choose, plan_lane, worker_places
from dgr_build.lanes.object_set import build_objects
from dgr_build.lanes.reproduce import look_around, showing
from dgr_build.lanes.variables import build_variables
from dgr_build.workspace import Workspace

_TRACKED = ("LICENSE", "lanes", "manifests", "native", "patches")


def main() -> int:
    """Carry out an order and write the answer; the exit code is that of the error in it."""
    # The call that Python sleeps by is refused under faketime when the monotonic clock is left alone.
    time.sleep = _sleep
    order_file, answer_file = map(Path, sys.argv[1:])
    try:
        answer = carry_out(load_json(order_file, BuildOrder))
    except DgrError as error:
        told = {name: str(value) for name, value in error.to_json().items()}
        save_json(answer_file, BuildAnswer(error=told))
        return error.exit_code
    save_json(answer_file, answer)
    return EXIT_OK


def carry_out(order: BuildOrder) -> BuildAnswer:
    """Copy the clone, build the lane uncached, and pack it.

    Raises:
        DgrError: of the kind of whatever failed.
    """
    os.umask(order.umask)
    theirs = Workspace(project=order.project, root=order.root, cache=order.cache)
    ws = Workspace(project=order.copy_to, root=order.made_in, cache=order.cache)
    for name in _TRACKED:
        _copy(theirs.project / name, ws.project / name)
    _copy(theirs.store, ws.store)
    source = publish_source(ws)
    chosen = choose(
        load_matrix(ws.matrix_file),
        order.lane,
        profile=order.profile,
        host_file=ws.host_overrides,
        stated=order.settings,
    )
    made = showing(enter(theirs, chosen.matrix, chosen.lane.environment), order.shown)
    planned = plan_lane(ws, chosen, source.facts, made)
    places = worker_places(ws, chosen.folder)
    job = Job(ws=ws, matrix=chosen.matrix, plan=planned.worker, places=places, toolchain=planned.toolchain)
    options = Options(jobs=order.jobs, use_ccache=False, surroundings=order.variables)
    variables = build_variables(planned.worker.variables, chosen.matrix.defaults, {}) | order.variables
    places.build.parent.mkdir(parents=True)
    seen = look_around(made, places.build.parent, variables, order.jobs)
    if order.objects is not None:
        outputs = build_objects(job, options, order.objects)
        return BuildAnswer(digest=planned.worker.digest, outputs=_kept(outputs, order.out), seen=seen)
    built = _inspected(planned, job, options)
    packages = pack(BuiltHere(ws=ws, planned=planned, built=built, source=source), KINDS)
    outputs = {"worker": built.worker, **packages}
    return BuildAnswer(digest=built.digest, outputs=_kept(outputs, order.out), seen=seen)


def _inspected(planned: LanePlan, job: Job, options: Options) -> BuiltLane:
    """Build the worker; what it must be like was checked where the lane itself was built."""
    built = build_plan(job, options)
    facts, made = program_facts(built.program), planned.made
    command = made.command([built.program], read=(built.program.parent,), network=True)
    return BuiltLane(
        lane=planned.worker.lane,
        digest=built.digest,
        worker=built.program,
        reference=None,
        inspected=Inspected(
            sha256=sha256_file(built.program),
            size=built.program.stat().st_size,
            needed=facts.needed,
            glibc=facts.glibc,
            macos=facts.macos,
            version=ask_version(built.program, command, made.variables),
        ),
        architectures=(),
        uncached=built.uncached,
        network_cut=built.network_cut,
        steps=built.steps,
        seconds=built.seconds,
        build=built.build,
    )


def _sleep(seconds: float | SupportsIndex) -> None:
    select.select([], [], [], float(seconds))


def _copy(source: Path, target: Path) -> None:
    """Copy files as a fresh clone would have them: this process's umask decides their modes."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for entry in source.iterdir():
            _copy(entry, target / entry.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    shutil.copyfile(source, target)
    if source.stat().st_mode & stat.S_IXUSR:
        mask = os.umask(0o022)
        os.umask(mask)
        target.chmod(0o777 & ~mask)


def _kept(outputs: dict[str, Path], out: Path) -> dict[str, Path]:
    """Move outputs out of the build, so that it can go, and return where they are."""
    kept = {}
    for number, (name, path) in enumerate(outputs.items()):
        target = out / str(number) / path.name
        target.parent.mkdir(parents=True)
        shutil.move(path, target)
        kept[name] = target
    return kept


if __name__ == "__main__":
    sys.exit(main())
