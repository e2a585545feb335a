"""The environment variables of a build: a short list of our own, and nothing else of the caller's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dgr_build.documents.matrix import Defaults


def stated_variables(defaults: Defaults, path: tuple[str, ...], epoch: int) -> dict[str, str]:
    """Return the variables that decide what a build comes to; they are part of the lane digest.

    Args:
        defaults: of the matrix.
        path: the folders of the build's PATH.
        epoch: the time that stands for now in what is built, in seconds since 1970.
    """
    return {**defaults.set_environment, "PATH": ":".join(path), "SOURCE_DATE_EPOCH": str(epoch)}


def build_variables(
    stated: Mapping[str, str], defaults: Defaults, cache: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of a build's programs.

    Flags and search paths of the caller (CFLAGS, CPATH, LD_LIBRARY_PATH and the like) do not get in.

    Args:
        stated: see `stated_variables`.
        defaults: of the matrix; names what the caller may hand on.
        cache: what the compiler cache needs.
    """
    passed = {name: os.environ[name] for name in defaults.pass_environment if name in os.environ}
    return {**passed, **stated, "NINJA_STATUS": "[%f/%t] ", **cache}
