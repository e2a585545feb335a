"""The CMake options of the pinned source: what a lane states must be one of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_OURS = ("GGML_", "LLAMA_")
# Of CMake itself, of its modules, or read by ggml's scripts without being declared.
_OTHERS = ("CMAKE_", "BUILD_SHARED_LIBS", "GIT_EXE", "GIT_EXECUTABLE", "GPU_TARGETS")
_WORD = re.compile(r"\b(?:GGML|LLAMA)_[A-Z0-9_]+\b")


def unknown_options(source: Path, names: Iterable[str]) -> frozenset[str]:
    """Return those of the options that neither CMake nor the source knows.

    Args:
        source: a checkout of the base tree.
        names: options that a lane states.
    """
    known = {
        word
        for file in [*source.rglob("CMakeLists.txt"), *source.rglob("*.cmake")]
        for word in _WORD.findall(file.read_text(encoding="utf-8", errors="replace"))
    }
    return frozenset(
        name
        for name in names
        if (name not in known if name.startswith(_OURS) else not name.startswith(_OTHERS))
    )
