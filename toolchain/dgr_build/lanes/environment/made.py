"""An environment that is there: what it is, and how a program is started in it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dgr_build.errors import HostError
from dgr_build.lanes.isolation import without_network

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_OWN_INSIDE = ("proc", "sys", "dev", "tmp", "run", "mnt", "media", "home", "root", "srv", "boot", "var")
_DEVICES = ("/dev/dri", "/dev/kfd")  # of GPUs; bubblewrap's own /dev has none


def _bound(devices: Iterable[str]) -> list[str]:
    return [word for device in devices for word in ("--dev-bind-try", device, device)]


@dataclass(frozen=True, kw_only=True)
class Made:
    """An environment that is there.

    Args:
        name: its name in the matrix.
        kind: this machine, a Debian root, or a toolkit of wheels.
        digest: of its definition, and of the lock it was made from.
        root: the Debian root or the toolkit, None for this machine.
        entering: the program that enters a Debian root, None where there is nothing to enter.
        variables: what programs need to find that comes from a toolkit.
        seen: files and folders of this machine that every program in it can read.
    """

    name: str
    kind: Literal["host", "sysroot", "wheels"]
    digest: str
    root: Path | None = None
    entering: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    seen: tuple[Path, ...] = ()

    def outside(self, path: Path) -> Path:
        """Return where a path that a program of the environment names lies on this machine."""
        if self.kind != "sysroot" or self.root is None or not path.is_absolute():
            return path
        inside = self.root / path.relative_to("/")
        return inside if os.path.lexists(inside) else path

    def lies(self, path: Path) -> bool:
        """Tell whether a path that a program of the environment names is there."""
        if self.kind != "sysroot" or self.root is None:
            return path.exists()
        return os.path.lexists(self.root / path.relative_to("/"))

    def command(
        self,
        argv: Sequence[str | Path],
        *,
        read: Iterable[Path] = (),
        write: Iterable[Path] = (),
        always: Iterable[Path] = (),
        network: bool = False,
    ) -> list[str]:
        """Return a command that starts a program in the environment, at the same paths as outside.

        Args:
            argv: the program as the environment knows it, with its arguments.
            read: folders and files that it reads; matters where they are not seen by themselves.
            write: those that it writes as well; they exist.
            always: the same, for what every program of a kind writes.
            network: leave it the network; else it is cut where this machine lets us.
        """
        words = [str(word) for word in argv]
        if self.kind != "sysroot":
            return [*(() if network else without_network()), *words]
        return [*self._entered(read, (*write, *always), network=network), "--", *words]

    def to_run(self, cache: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
        """Return what a program of the environment needs to be run: variables, and folders that it writes.

        Args:
            cache: a folder for what drivers compile; a root's own is not kept.
        """
        if self.kind != "sysroot":
            return dict(self.variables), ()
        cache.mkdir(parents=True, exist_ok=True)
        return {**self.variables, "MESA_SHADER_CACHE_DIR": str(cache)}, (cache,)

    def cuts_network(self) -> bool:
        """Tell whether programs can be kept from the network."""
        return self.kind == "sysroot" or bool(without_network())

    def _entered(self, read: Iterable[Path], write: Iterable[Path], *, network: bool) -> list[str]:
        root, entering = self.root, self.entering
        if root is None or entering is None:
            raise HostError(
                f"environment {self.name} cannot be entered",
                cause="bubblewrap (bwrap) is not installed",
                remedy="apt-get install bubblewrap",
            )
        words = [str(entering), "--die-with-parent", "--unshare-ipc", "--unshare-uts"]
        words += [] if network else ["--unshare-net"]
        for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
            if entry.is_symlink():
                words += ["--symlink", str(Path(entry.path).readlink()), f"/{entry.name}"]
            elif entry.is_dir() and entry.name not in _OWN_INSIDE:
                words += ["--ro-bind", entry.path, f"/{entry.name}"]
        devices = _DEVICES if network else ()  # a build needs none
        words += ["--proc", "/proc", "--dev", "/dev", *_bound(devices), "--tmpfs", "/tmp", "--tmpfs", "/run"]  # noqa: S108
        for path in (*self.seen, *read):
            words += ["--ro-bind", str(path), str(path)]
        for path in write:
            words += ["--bind", str(path), str(path)]
        return words
