"""The comparisons that take seconds: source, patches, and a lane with nothing to do."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.documents.bench import Target
from dgr_build.documents.pin import load_pin
from dgr_build.documents.series import load_series
from dgr_build.errors import CheckError, HostError
from dgr_build.flows.bench_ground import git, patched_clone, started
from dgr_build.flows.bench_measure import Comparison, Way
from dgr_build.lanes.stamp import read_stamp
from dgr_build.lanes.toolchain import own_program
from dgr_build.workspace import remove

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.flows.bench_ground import Ground

LANE = "cpu"
_VERIFY = "dgr-build patch verify: every tree, there and back, with the source resolved"


def source(ground: Ground) -> Comparison:
    """Compare resolving from the source distribution with merely unpacking it.

    Raises:
        HostError: the archive is not in the cache.
    """
    archive = ground.archive()
    unpacked = ground.place / "unpacked"

    def empty() -> None:
        remove(unpacked)
        unpacked.mkdir()

    return Comparison(
        name="source",
        ours=Way(
            what="dgr-build source resolve into an empty workspace, the archive being in the cache: extract, "
            "prove every object, pack",
            prepare=lambda: remove(ground.private),
            run=lambda: _quiet(ground, "source", "resolve", "--provider", "sdist", "--offline"),
        ),
        theirs=Way(
            what="tar xzf of the same archive",
            prepare=empty,
            run=lambda: _done(started(["tar", "xzf", archive, "-C", unpacked])),
        ),
        target=Target(of="ratio", at_most=2.0),
    )


def verify(ground: Ground) -> Comparison:
    """Compare proving the stack both ways with git doing it in a clone that is made for it.

    Neither touches anything of the person's, and both start from the objects in the store.

    Raises:
        HostError: the source or git is not there.
    """
    stack = _Stack.of(ground, "origin")
    clone = ground.place / "clone"

    def whole() -> None:
        git(ground.place, "clone", "--quiet", "--shared", stack.clone / ".git", clone)
        stack.there_and_back(clone)

    return Comparison(
        name="verify",
        ours=Way(what=_VERIFY, run=lambda: _quiet(ground, "patch", "verify")),
        theirs=Way(
            what="git clone --shared, git am of the stack in it, then git apply -R of each patch",
            prepare=lambda: remove(clone),
            run=whole,
        ),
        target=Target(of="ratio", at_most=0.3),
    )


def verify_kept(ground: Ground) -> Comparison:
    """Compare proving the stack both ways with git doing it in a clone that is there already.

    Raises:
        HostError: the source or git is not there.
    """
    stack = _Stack.of(ground, "kept")
    return Comparison(
        name="verify-kept",
        ours=Way(what=_VERIFY, run=lambda: _quiet(ground, "patch", "verify")),
        theirs=Way(
            what="git am of the stack in a clean clone that is there, then git apply -R of each patch",
            prepare=lambda: _done(git(stack.clone, "reset", "--quiet", "--hard", stack.commit)),
            run=lambda: stack.there_and_back(stack.clone),
        ),
        target=None,
    )


@dataclass(frozen=True, kw_only=True)
class _Stack:
    clone: Path
    commit: str
    patches: tuple[Path, ...]

    @staticmethod
    def of(ground: Ground, name: str) -> _Stack:
        pin, series = load_pin(ground.ws.pin_file), load_series(ground.ws.series_file)
        return _Stack(
            clone=patched_clone(ground.place / name, ground.resolved(), pin.commit),
            commit=pin.commit,
            patches=tuple(ground.ws.series_file.parent / entry.file for entry in series.patches),
        )

    def there_and_back(self, clone: Path) -> None:
        git(clone, "am", "--quiet", *self.patches)
        for patch in reversed(self.patches):
            git(clone, "apply", "-R", patch)


def noop(ground: Ground) -> Comparison:
    """Compare a lane with nothing to do with ninja having nothing to do.

    It runs in the person's own workspace, where the lane must be up to date, so that nothing changes there.

    Raises:
        HostError: the lane is not built, or not up to date.
    """
    ws = ground.ws
    # Exactly what the person would type here: their workspace, their cache.
    here = {**os.environ, "PYTHONUTF8": "1"}
    command = [*ground.own, "lane", LANE]
    planned = json.loads(started([*command, "--dry-run", "--json"], env=here, cwd=ws.project))
    builds = [ws.build(LANE), ws.build(f"{LANE}-reference")]
    stamp = read_stamp(builds[0])
    if stamp is None or not stamp.program_sha256 or stamp.digest != planned.get("digest", stamp.digest):
        raise HostError(
            f"lane {LANE} is not up to date here",
            cause="a lane with nothing to do is measured where it was built",
            remedy=f"dgr-build lane {LANE}, then measure again",
        )
    ninja = own_program("ninja")

    def ours() -> None:
        told = json.loads(started([*command, "--json"], env=here, cwd=ws.project))
        if told["steps"] != 0:
            raise CheckError(
                f"lane {LANE} had something to do", remedy=f"dgr-build lane {LANE}, then measure again"
            )

    def theirs() -> None:
        for build in builds:
            started([ninja, "-C", build], cwd=ws.project)

    return Comparison(
        name="noop",
        ours=Way(what=f"dgr-build lane {LANE} with nothing to do, all its steps", run=ours),
        theirs=Way(what="ninja with nothing to do, in the folders of worker and reference", run=theirs),
        target=Target(of="seconds", at_most=1.0),
    )


def _quiet(ground: Ground, *arguments: str | Path) -> None:
    ground.toolchain(*arguments)


def _done(_: str) -> None:
    pass
