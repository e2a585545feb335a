"""What a user who is not root needs to make a Debian root: ids for files in it that are of nobody outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.lanes.finding import Finding

if TYPE_CHECKING:
    from dgr_build.lanes.host import Host
    from dgr_build.lanes.requirements import Place

_MAPPERS = ("newuidmap", "newgidmap")
_FILES = {"subuids": "/etc/subuid", "subgids": "/etc/subgid"}  # by usermod's name for them
_COUNT = 65536  # ids of a Debian system: the highest is nobody's, 65534
_FIRST = 100000  # where distributions begin to give them out
_FALLBACK = "fakechroot"  # what mmdebstrap takes where it cannot have ids


def examine_ids(host: Host, place: Place) -> tuple[Finding, ...]:
    """Look for what lets this user map other ids; nothing is needed of root.

    Args:
        host: the machine, and who asks.
        place: where the user's programs lie.
    """
    if host.uid == 0:
        return ()
    fallback = place.find(_FALLBACK)
    note = f"{place.shown(fallback)}, which mmdebstrap takes in place of them" if fallback else ""
    return (_mappers(place, note), _ids(host, place, note))


def _mappers(place: Place, fallback: str) -> Finding:
    found = {name: place.find(name) for name in _MAPPERS}
    lacking = [name for name, path in found.items() if path is None]
    first = found[_MAPPERS[0]]
    return Finding(
        name="programs that map ids",
        kind="build",
        wanted=" and ".join(_MAPPERS),
        met=not lacking or bool(fallback),
        remedy="apt-get install uidmap",
        path=str(place.shown(first)) if first is not None and not lacking else "",
        note=(fallback or f"no {' and no '.join(lacking)}") if lacking else "",
    )


def _ids(host: Host, place: Place, fallback: str) -> Finding:
    given = {kind: _ranges(place, file) for kind, file in _FILES.items()}
    lacking = [
        kind
        for kind, ranges in given.items()
        # mmdebstrap reads the first entry alone, and knows the user by name only
        if next((one.count for one in ranges if one.user == host.user), 0) < _COUNT
    ]
    words = [f"--add-{kind} {_free(given[kind])}" for kind in lacking]
    return Finding(
        name=f"subordinate ids of {host.user}",
        kind="build",
        wanted=f"{_COUNT} each in {' and '.join(_FILES.values())}",
        met=not lacking or bool(fallback),
        remedy=f"usermod {' '.join(words)} {host.user} (as root)" if lacking else "",
        note=(fallback or f"not enough in {' and '.join(_FILES[kind] for kind in lacking)}")
        if lacking
        else "",
    )


@dataclass(frozen=True)
class _Range:
    """Ids that a user may map: a line such as `somebody:100000:65536`."""

    user: str
    first: int
    count: int


def _ranges(place: Place, file: str) -> list[_Range]:
    try:
        lines = place.outside(file).read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = (line.split(":") for line in lines)
    return [
        _Range(name, int(first), int(count))
        for name, first, count in (parts for parts in words if len(parts) == len(("user", "first", "count")))
        if first.isdecimal() and count.strip().isdecimal()
    ]


def _free(ranges: list[_Range]) -> str:
    """Return the next ids that nobody has, as usermod takes them."""
    first = max([_FIRST, *(one.first + one.count for one in ranges)])
    return f"{first}-{first + _COUNT - 1}"
