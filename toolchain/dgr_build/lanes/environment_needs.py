"""What a lane requires by its own table: looked for here, or in its environment, as far as that is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.lanes.compatibility import known
from dgr_build.lanes.finding import Finding
from dgr_build.lanes.requirements import Place, look

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.matrix import Matrix

_INSIDE = ("/bin", "/usr/bin")  # of a toolkit of wheels, and of a Debian root


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far an environment is made.

    Args:
        made: whether it is there, whole.
        size: bytes that it takes, or will take; 0 where that is not known.
        root: where it lies, None while it is not made.
        enter: what to put before a command to run it inside; () for a toolkit that runs from outside.
        trouble: why it cannot be made or used as it is, "" where nothing stands in the way.
        remedy: what ends the trouble.
    """

    made: bool
    size: int = 0
    root: Path | None = None
    enter: tuple[str, ...] = ()
    trouble: str = ""
    remedy: str = ""


NOT_MADE = Reach(made=False)


def look_for_required(
    matrix: Matrix, lane_name: str, here: Place, reach: Reach, done: set[str]
) -> list[Finding]:
    """Look for what the lane itself requires: on the machine, or in its environment once that is made."""
    lane = matrix.lane[lane_name]
    environment = matrix.environment[lane.environment]
    device = known().device.get(lane.backend)
    left = [
        needed
        for needed in lane.requires
        if needed.name not in done and (device is None or needed.name != device.name)
    ]
    if environment.kind == "host":
        return [look(needed, here) for needed in left]
    found = [_environment(lane.environment, reach)]
    found += [look(needed, here) for needed in left if needed.for_running]
    inside = [needed for needed in left if not needed.for_running]
    if reach.made and reach.root is not None:
        place = Place(folders=_INSIDE, root=reach.root, enter=reach.enter)
        again = f"dgr-build env remove {lane.environment} && dgr-build env create {lane.environment}"
        return found + [look(needed, place, again) for needed in inside]
    for needed in inside:
        called = " or ".join(needed.any_program or needed.any_file)
        found.append(
            Finding(
                name=needed.name,
                kind="build",
                wanted=f"{called} {needed.minimum or ''}".strip(),
                met=True,
                brought=True,
                remedy=f"dgr-build env create {lane.environment}",
            )
        )
    return found


def _environment(name: str, reach: Reach) -> Finding:
    size = f"{reach.size / 1e9:.1f} GB" if reach.size else ""
    return Finding(
        name=f"environment {name}",
        kind="build",
        wanted="to be made once, from its definition" + (f" ({size})" if size and not reach.made else ""),
        met=not reach.trouble,
        brought=not reach.made and not reach.trouble,
        remedy=reach.remedy or f"dgr-build env create {name}",
        path=str(reach.root or ""),
        note=reach.trouble or (size if reach.made else ""),
    )
