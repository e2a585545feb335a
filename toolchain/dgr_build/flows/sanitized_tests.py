"""The C++ tests of sessions and of the wire, and short runs of the fuzz targets, under a sanitizer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.errors import CheckError, UsageError
from dgr_build.flows.selftest import Tally
from dgr_build.lanes.ctest import TestRun, run_ctest
from dgr_build.lanes.sanitized import PRESETS, build_sanitized, sanitizer_variables
from dgr_build.lanes.toolchain import own_program

if TYPE_CHECKING:
    from dgr_build.workspace import Workspace


def run_sanitized(ws: Workspace, sanitizer: str, *, jobs: int | None = None) -> Tally:
    """Build everything that needs no real engine with a sanitizer, and run its tests.

    Args:
        ws: where the build lies.
        sanitizer: out of `PRESETS`.
        jobs: compilers at once, None to let cores and memory decide.

    Raises:
        BuildError: it could not be built.
        HostError: clang is missing.
        UsageError: there is no such sanitizer.
    """
    if sanitizer not in PRESETS:
        raise UsageError(
            f"no sanitizer is called {sanitizer!r}",
            cause=f"there are {', '.join(PRESETS)}",
            remedy="dgr-build test --sanitize thread runs the tests under one of them",
        )
    console.step(f"building the C++ tests with the sanitizer for {sanitizer}")
    build = build_sanitized(ws, sanitizer, (), jobs=jobs)
    console.step(f"ctest in {build}")
    part = f"ctest-{build.name}"
    asked = TestRun(
        build=build,
        report=ws.logs("test") / f"{part}.xml",
        variables={**os.environ, **sanitizer_variables(ws)},
        ctest=own_program("ctest"),
    )
    try:
        passed = run_ctest(asked).passed
    except CheckError as error:
        console.say(error.cause)
        return Tally(part=part, failed=1, failures=(error.message,))
    return Tally(part=part, passed=passed)
