"""Packing a built worker: what goes beside it, and what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.lanes.archives import known_archives
from dgr_build.lanes.inspect import program_facts
from dgr_build.lanes.package import Subject, package_version
from dgr_build.lanes.package_licenses import linked_licenses
from dgr_build.lanes.package_tar import make_tar
from dgr_build.lanes.package_wheel import make_wheel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.flows.built_here import BuiltHere

_MAKERS = {"wheel": make_wheel, "tar": make_tar}
KINDS = tuple(_MAKERS)


def pack(here: BuiltHere, kinds: Sequence[str], out: Path | None = None) -> dict[str, Path]:
    """Pack the worker of a lane and return the files, by kind.

    Args:
        here: the lane.
        kinds: out of `KINDS`.
        out: where they go; the workspace's folder by default.

    Raises:
        CheckError: the worker is not fit for a package.
    """
    subject = subject_of(here)
    made = {kind: _MAKERS[kind](subject, out or here.ws.dist) for kind in kinds}
    for path in made.values():
        console.say(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return made


def subject_of(here: BuiltHere) -> Subject:
    """Return what is packed of a built lane."""
    ws, planned, built, source = here.ws, here.planned, here.built, here.source
    lane, toolchain, made = planned.chosen.lane, planned.toolchain, planned.made
    facts = program_facts(built.worker)
    archives = known_archives(ws, planned.chosen.environment, toolchain, planned.worker.variables)
    root = made.root if made.kind == "sysroot" and made.root is not None else Path("/")
    licenses = {"dgr-build": ws.project / "LICENSE", "llama.cpp": ws.source / "LICENSE"}
    licenses |= linked_licenses([Path(path) for path in archives], root)
    return Subject(
        lane=built.lane,
        lane_digest=built.digest,
        worker=built.worker,
        version=package_version(built.version),
        epoch=source.facts.epoch,
        needed=facts.needed,
        run_path=facts.loader_paths,
        requires=lane.wheel_requires,
        provided=lane.wheel_provides,
        licenses=licenses,
        said=built.version,
    )
