"""The surroundings of two builds that must come to the same bytes: what differs, and how it is made so."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dgr_build.errors import CheckError, HostError
from dgr_build.process import run
from dgr_build.workspace import plain_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dgr_build.lanes.environment.made import Made

_FEW = 2
PROMISED = ("folder", "umask", "TZ", "LC_ALL", "HOME", "jobs", "clock")
"""What differs between the two builds wherever this runs."""

_DAYS_S = 86400
_CLOCK_MIN_S = 30 * _DAYS_S  # so far apart that no slow build looks like another clock
# A wrong monotonic clock hangs whoever waits by it; time stamps of files are what ninja goes by.
_CLOCK_RULES = {
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "DONT_FAKE_MONOTONIC": "1",  # its name in older versions
    "NO_FAKE_STAT": "1",
    "FAKE_UTIME": "0",
}
_NAMED = ("unshare", "--user", "--map-current-user", "--uts", "--keep-caps", "--", "sh", "-c")
_PROBE = (
    r"""printf '%s\n' "$(pwd)" "$(umask)" "${TZ-}" "${LC_ALL-}" "${HOME-}" "$(date +%s)" "$(uname -n)" """
)
_PROBED = ("folder", "umask", "TZ", "LC_ALL", "HOME", "clock", "host")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is around one build and must not get into what it makes.

    Args:
        name: of the build.
        folder: where everything of it lies, below a folder of its own.
        umask: for the modes of all that it writes.
        variables: of the toolchain and of every program it starts.
        jobs: compilers at once.
        days: how far the clock is ahead.
        host: the name of the machine, where it can be given one; "" for its own.
    """

    name: str
    folder: str
    umask: int
    variables: Mapping[str, str]
    jobs: int
    days: int = 0
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The library that gives programs another clock.

    Args:
        library: where it lies here; the path has no spaces.
        foreign: an environment of its own does not have it, so it must be shown in there.
    """

    library: Path
    foreign: bool

    def variables(self, days: int) -> dict[str, str]:
        """Return what gives a program a clock that is so many days ahead; nothing for the real one."""
        if not days:
            return {}
        return {"LD_PRELOAD": str(self.library), "FAKETIME": f"{days:+d}d", **_CLOCK_RULES}


def two_surroundings(cores: int) -> tuple[Surroundings, Surroundings]:
    """Return surroundings that differ in everything that must not matter.

    Args:
        cores: compilers that may run at once.
    """
    first = Surroundings(
        name="a",
        folder="clone",
        umask=0o022,
        variables={"TZ": "UTC", "LC_ALL": "C.UTF-8", "HOME": "/nowhere", "PYTHONHASHSEED": "1"},
        jobs=cores,
    )
    second = Surroundings(
        name="b",
        folder="ein Ordner mit ä und Leerzeichen/tief darin/und noch tiefer/der Klon",
        umask=0o077,
        variables={
            "TZ": "Pacific/Kiritimati",
            # Where it is not installed, programs fall back to the bare C locale: also another one.
            "LC_ALL": "tr_TR.UTF-8",
            "LANGUAGE": "tr:de",
            "HOME": "/somewhere/else",
            "USER": "somebody",
            "LOGNAME": "somebody",
            "PYTHONHASHSEED": "2",
        },
        jobs=cores - 1 if cores > _FEW else cores + 1,  # few cores are better asked too much than left idle
        days=400,
        host="elsewhere",
    )
    return first, second


@contextmanager
def other_clock(made: Made) -> Iterator[Clock]:
    """Find the library of faketime, in a folder that can be shown in the environment where that is needed.

    Raises:
        HostError: faketime is not installed, or does not work.
    """
    program = shutil.which("faketime")
    # Where the library lies depends on the distribution; a program that has it loaded knows.
    told = run([program, "-f", "+0", "cat", "/proc/self/maps"]).stdout if program is not None else ""
    places = (line.split(maxsplit=5)[-1] for line in told.splitlines())
    library = next((Path(place) for place in places if "libfaketime" in place), None)
    if library is None or not library.is_file():
        raise HostError(
            "faketime is missing, so no build can have another clock",
            cause="its library was not loaded" if program else "the program is not on PATH",
            remedy="apt-get install faketime",
        )
    if made.kind != "sysroot":
        yield Clock(library=library, foreign=False)
        return
    # Its own path cannot appear inside a root that is only read.
    with plain_folder() as folder:
        shown = folder / library.name
        shutil.copyfile(library, shown)
        yield Clock(library=shown, foreign=True)


def showing(made: Made, clock: Path | None) -> Made:
    """Return an environment in which a library of this machine can be read."""
    return made if clock is None else replace(made, seen=(*made.seen, clock))


def named_machine(host: str) -> tuple[str, ...]:
    """Return the words before a command that give the machine a name, none where that is not allowed here."""
    if not host or shutil.which(_NAMED[0]) is None:
        return ()
    words = (*_NAMED, f'hostname {host} && exec "$@"', "sh")
    return words if run([*words, "true"], timeout=30).returncode == 0 else ()


def look_around(made: Made, folder: Path, variables: Mapping[str, str], jobs: int) -> dict[str, str]:
    """Return what a program of a build sees of its surroundings, by name.

    Args:
        made: the environment.
        folder: where the build is.
        variables: those of the build's programs.
        jobs: compilers at once; as given.
    """
    done = run(made.command(["sh", "-c", _PROBE], read=(folder,)), cwd=folder, env=variables, timeout=60)
    seen = dict(zip(_PROBED, done.stdout.splitlines(), strict=False))
    # A root is entered at the folder that the caller is in only where it has that folder.
    return {**seen, "folder": str(folder), "jobs": str(jobs)}


def require_different(first: Mapping[str, str], second: Mapping[str, str], *, clock: bool = True) -> None:
    """Check that two builds had the surroundings that they were promised, by what their programs saw.

    Args:
        first: see `look_around`.
        second: of the other build.
        clock: whether the clock must differ too.

    Raises:
        CheckError: something was the same, so that equal bytes would show nothing about it.
    """
    same = [name for name in PROMISED if name != "clock" and first.get(name) == second.get(name)]
    if clock and abs(int(second.get("clock") or 0) - int(first.get("clock") or 0)) < _CLOCK_MIN_S:
        same.append("clock")
    if same:
        raise CheckError(
            "the two builds were not in different surroundings",
            cause=f"both had the same {', '.join(same)}: "
            + "; ".join(f"{name} {first.get(name)!r} and {second.get(name)!r}" for name in same),
            remedy="dgr-build lane NAME --reproduce needs faketime and a shell in the lane's environment",
        )
