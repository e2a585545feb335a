"""What the doctor is told of an environment: how far it is made, and what stands in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build.errors import DgrError
from dgr_build.lanes.environment.manage import disk_estimate, enter
from dgr_build.lanes.environment.state import find, state
from dgr_build.lanes.environment_needs import Reach

if TYPE_CHECKING:
    from dgr_build.documents.matrix import Matrix
    from dgr_build.workspace import Workspace


def lane_reach(ws: Workspace, matrix: Matrix, lane_name: str) -> Reach:
    """Return how far the environment of a lane is made."""
    return environment_reach(ws, matrix, matrix.find(lane_name).environment)


def environment_reach(ws: Workspace, matrix: Matrix, name: str) -> Reach:
    """Return how far an environment is made."""
    definition = find(matrix, name)
    if definition.kind == "host":
        return Reach(made=True)
    here = state(ws, matrix, name)
    if here.lock is None or not here.fits:
        trouble = here.damage.message if here.damage is not None else here.described
        return Reach(made=False, trouble=trouble, remedy=f"dgr-build env lock {name}, and commit the lock")
    size = disk_estimate(definition, here.lock)
    if not here.made:
        return Reach(made=False, size=size)
    try:
        made = enter(ws, matrix, name)
        inside = tuple(made.command([], network=True)) if made.kind == "sysroot" else ()
    except DgrError as error:
        return Reach(made=True, size=size, trouble=error.message, remedy=error.remedy)
    return Reach(made=True, size=size, root=made.root, enter=inside)
