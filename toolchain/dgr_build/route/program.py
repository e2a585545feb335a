"""A worker as it is started: what stands before it, what its environment has, and on what it computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


class Enter(Protocol):
    """Turns a command into one that starts a program where it belongs."""

    def __call__(
        self, argv: Sequence[str | Path], *, read: Iterable[Path] = (), write: Iterable[Path] = ()
    ) -> list[str]:
        """Return the command; the files and folders named are seen inside at the same paths."""


def as_it_is(
    argv: Sequence[str | Path],
    *,
    read: Iterable[Path] = (),  # noqa: ARG001 - a program of this machine sees everything
    write: Iterable[Path] = (),  # noqa: ARG001
) -> list[str]:
    """Return the command of a program of this machine."""
    return [str(word) for word in argv]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A worker that was built.

    Args:
        path: the executable.
        device: what computes, as the worker names it.
        variables: what its environment has beyond the caller's.
        enter: how it is started.
        start_s: how long loading may take, in seconds.
    """

    path: Path
    device: str = "auto"
    start_s: float = 120
    variables: Mapping[str, str] = field(default_factory=dict)
    enter: Enter = as_it_is
