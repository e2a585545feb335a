"""The comparisons that compile everything: an edited patch, and a cold lane."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.documents.bench import Target
from dgr_build.documents.pin import load_pin
from dgr_build.documents.series import load_series
from dgr_build.errors import CheckError
from dgr_build.flows.bench_ground import git, patched_clone, started
from dgr_build.flows.bench_measure import Comparison, Way
from dgr_build.flows.bench_rows import LANE
from dgr_build.lanes.stamp import read_stamp
from dgr_build.lanes.toolchain import own_program
from dgr_build.workspace import remove

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.flows.bench_ground import Ground

_LAUNCHER = "_COMPILER_LAUNCHER:"
_SOURCES = ("current", "base")


@dataclass(frozen=True, kw_only=True)
class Plain:
    """The same project as a person would build it by hand, with the very flags of a lane.

    Args:
        root: the private workspace whose lane it follows.
        place: where its sources and build folders lie.
        jobs: compilers at once.
    """

    root: Path
    place: Path
    jobs: int

    @property
    def source(self) -> Path:
        """The patched tree, to edit."""
        return self.place / "src" / "current"

    def copy_sources(self) -> None:
        """Copy the published trees, writable."""
        for name in _SOURCES:
            target = self.place / "src" / name
            remove(target)
            shutil.copytree(self.root / "src" / name, target, symlinks=True)
            for path in (target, *target.rglob("*")):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | 0o200)

    def configure(self) -> None:
        """Run cmake for worker and reference.

        Raises:
            CheckError: the lane was not built, or cmake failed.
        """
        for name in (LANE, f"{LANE}-reference"):
            arguments, variables = self._as_the_lane(name)
            started([own_program("cmake"), *arguments], env=variables)

    def build(self, *names: str) -> None:
        """Run ninja in build folders.

        Raises:
            CheckError: it failed.
        """
        for name in names or (LANE, f"{LANE}-reference"):
            _, variables = self._as_the_lane(name)
            folder = self.place / "build" / name
            started([own_program("ninja"), "-C", folder, "-j", str(self.jobs)], env=variables)

    def empty(self) -> None:
        """Remove what was built."""
        remove(self.place / "build")

    def _as_the_lane(self, name: str) -> tuple[list[str], dict[str, str]]:
        stamp = read_stamp(self.root / "build" / name)
        if stamp is None or not stamp.arguments:
            raise CheckError(
                f"the private {name} was not built", remedy=f"dgr-build lane {LANE}, then measure again"
            )
        arguments = [
            argument.replace(str(self.root), str(self.place))
            for argument in stamp.arguments
            if _LAUNCHER not in argument
        ]
        return arguments, dict(stamp.plan["variables"])


def edit(ground: Ground) -> Comparison:
    """Compare an edited patch with the same edit by hand in a plain CMake tree.

    Raises:
        HostError: the source or git is not there.
        CheckError: something does not build.
    """
    pin = load_pin(ground.ws.pin_file)
    project = _copied_project(ground)
    moved = {"DGR_PROJECT": str(project)}
    store = ground.resolved()
    series = load_series(project / "patches" / "series.toml")
    clone = patched_clone(ground.place / "edit", store, pin.commit)
    git(clone, "am", "--quiet", *(project / "patches" / entry.file for entry in series.patches))
    file = next(one.path for one in reversed(series.patches[-1].files) if one.path.endswith(".cpp"))
    _lane(ground, **moved)
    plain = Plain(root=ground.private, place=ground.place / "plain", jobs=ground.jobs)
    plain.copy_sources()
    plain.configure()
    plain.build()
    count = iter(range(1_000_000))

    def edit_patch() -> None:
        _append(clone / file, next(count))
        git(clone, "commit", "--quiet", "--all", "--amend", "--no-edit")

    def ours() -> None:
        ground.toolchain("patch", "export", "--from", clone, **moved)
        _lane(ground, **moved)

    return Comparison(
        name="edit",
        ours=Way(
            what="a changed commit through dgr-build patch export and dgr-build lane cpu --only build "
            "--no-ccache to a worker",
            prepare=edit_patch,
            run=ours,
        ),
        theirs=Way(
            what="the same edit in a plain CMake tree with the same flags, then ninja",
            prepare=lambda: _append(plain.source / file, next(count)),
            run=lambda: plain.build(LANE),
        ),
        target=Target(of="ratio", at_most=1.1),
    )


def cold(ground: Ground) -> Comparison:
    """Compare a lane that starts from nothing with plain cmake and ninja.

    Raises:
        HostError: the source is not there.
        CheckError: something does not build.
    """
    ground.resolved()
    ground.toolchain("lane", LANE, "--only", "source")
    plain = Plain(root=ground.private, place=ground.place / "plain-cold", jobs=ground.jobs)

    def by_hand() -> None:
        plain.configure()
        plain.build()

    def prepare() -> None:
        plain.empty()
        if not plain.source.is_dir():
            plain.copy_sources()

    return Comparison(
        name="cold",
        ours=Way(
            what="dgr-build lane cpu --only build --no-ccache without a build folder, the source lying there",
            prepare=lambda: remove(ground.private / "build"),
            run=lambda: _lane(ground),
        ),
        theirs=Way(
            what="plain cmake and ninja with the same flags and targets",
            prepare=prepare,
            run=by_hand,
        ),
        target=Target(of="ratio", at_most=1.05),
        warm_up=False,
    )


def _lane(ground: Ground, **more: str) -> None:
    ground.toolchain("lane", LANE, "--only", "build", "--no-ccache", "--jobs", str(ground.jobs), **more)


def _copied_project(ground: Ground) -> Path:
    """Copy the project's files, so that its patches can be edited; what git ignores stays behind."""
    target = ground.place / "project"
    listed = git(ground.ws.project, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        origin = ground.ws.project / name
        if origin.is_file():
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, copy)
    return target


def _append(file: Path, number: int) -> None:
    """Add a line that changes the file and nothing else, each time another."""
    with file.open("a") as out:
        out.write(f"// measured {number}\n")
