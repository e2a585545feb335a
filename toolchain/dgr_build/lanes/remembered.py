"""Answers that are slow to get and change only when files do: kept with the state they were true for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dgr_build.documents.base import digest
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from dgr_build.workspace import Workspace


def state_of(files: Iterable[Path], *facts: object) -> str:
    """Return a digest that changes whenever one of the files is written or replaced, or a fact is another."""
    return digest([[_status(file) for file in files], *facts])


def remembered(ws: Workspace, name: str, state: str, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return what `make` gave when the state was the same, or let it make it now and keep it.

    Args:
        ws: where answers are kept.
        name: of the question; letters, digits and hyphens.
        state: see `state_of`.
        make: gets the answer.
    """
    file = ws.root / "remembered" / f"{name}.json"
    try:
        known = json.loads(file.read_bytes())
        if known["state"] == state:
            return {str(key): str(value) for key, value in known["answer"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # nothing is known
    answer = make()
    write_atomic(file, json.dumps({"state": state, "answer": answer}).encode())
    return answer


def _status(file: Path) -> list[object]:
    try:
        status = file.stat()
    except OSError:
        return [str(file), None]
    return [str(file), status.st_mtime_ns, status.st_size, status.st_ino]
