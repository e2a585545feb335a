"""Causes of failed builds that are known: how each shows in a log, what it means, what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

OUT_OF_MEMORY = "out-of-memory"


@dataclass(frozen=True, kw_only=True)
class KnownCause:
    """A cause with the traces that it leaves.

    Args:
        kind: its name in data and tests.
        patterns: regular expressions, any of which finds it; lines start at ^, a space is any run of blanks,
            so that what a tool has wrapped is found too.
        cause: what it means, as a template for the groups of the pattern that matched.
        remedy: the next thing to do, likewise.
        of_machine: it strikes wherever it likes, so it explains the run although something else failed first.
    """

    kind: str
    patterns: tuple[str, ...]
    cause: str
    remedy: str
    of_machine: bool = False

    def find(self, text: str) -> re.Match[str] | None:
        """Return where the cause shows in a text, None if it does not."""
        found = (re.search(pattern.replace(" ", r"\s+"), text, re.MULTILINE) for pattern in self.patterns)
        return next((match for match in found if match is not None), None)


_MISSING_TOOL = r"\1 is not installed, or not where this lane's environment looks for programs"
_ASK_THE_DOCTOR = "dgr-build doctor LANE lists what the lane needs, what is here and how to get the rest"

KNOWN_CAUSES = (
    KnownCause(
        kind="no-space",
        patterns=(r"No space left on device", r"Disk quota exceeded"),
        cause="a file system is full: that of the workspace, of the cache or of TMPDIR",
        remedy="free some space there, or set DGR_WORKSPACE, DGR_CACHE or TMPDIR to another file system",
        of_machine=True,
    ),
    KnownCause(
        kind=OUT_OF_MEMORY,
        patterns=(
            r"^FAILED: \[code=(?:137|9|-9)\]",
            r"Killed signal terminated program",
            r"unable to execute command: Killed",
            r"^Killed$",
            r"died due to signal 9 ",
            r"^virtual memory exhausted",
            r"^LLVM ERROR: out of memory",
        ),
        cause="out of memory: a compiler was killed or could not get more",
        remedy="give --jobs a lower number, or the machine more memory",
        of_machine=True,
    ),
    KnownCause(
        kind="compiler-too-new",
        patterns=(
            r"unsupported (GNU) version! gcc versions later than (\d+) are not supported",
            r"unsupported (clang) version! clang version must be less than (\d+)",
        ),
        cause=r"this \1 compiler is too new for the CUDA toolkit, which draws the line at \2",
        remedy="dgr-build doctor cuda says which compilers go with which toolkit",
    ),
    KnownCause(
        kind="hip-too-old",
        patterns=(r"At least ROCM/HIP V(\d+(?:\.\d+)*) is required",),
        cause=r"HIP is too old: upstream needs \1 at least",
        remedy="dgr-build env create sid makes a root with a newer one",
    ),
    KnownCause(
        kind="glslc-too-old",
        patterns=(
            r"error: '(coopmat\w*)' : undeclared identifier",
            r"warning: '#extension' : extension not supported: (GL_\w+)",
        ),
        cause=r"glslc is too old: it does not know \1",
        remedy="dgr-build env create trixie makes a root with a newer one",
    ),
    KnownCause(
        kind="architecture",
        patterns=(r"Unsupported gpu architecture '(\S+?)'", r"invalid target ID '(\S+?)'"),
        cause=r"this compiler makes no code for \1: the toolkit dropped it, or does not know it yet",
        remedy="--set architectures=A,B states others; dgr-build doctor LANE says what the toolkit has",
    ),
    KnownCause(
        kind="driver-library",
        patterns=(
            r"cannot find -lcuda\b(?!rt)",
            r"unable to find library -lcuda$",
            r"CUDA::cuda_driver but the target was not found",
        ),
        cause="something links the library of the NVIDIA driver, and no driver is here",
        remedy="the worker must link without one: GGML_CUDA_NO_VMM has to be ON",
    ),
    KnownCause(
        kind="cmake-too-old",
        patterns=(r"CMake (\S+) or higher is required\. You are running version (\S+)",),
        cause=r"CMake \2 is too old: \1 is needed",
        remedy=_ASK_THE_DOCTOR,
    ),
    KnownCause(
        kind="compiler-too-old",
        patterns=(
            r"unrecognized command-line option [\u2018'](\S+?)[\u2019']",
            r"error: unknown argument:? '(\S+?)'",
            r"error: invalid value '\S+' in '(\S+?)'",
            r"requires the language dialect \"(\S+)\"",
        ),
        cause=r"the compiler does not know \1: most likely it is too old",
        remedy=_ASK_THE_DOCTOR,
    ),
    KnownCause(
        kind="missing-tool",
        patterns=(
            r"^\S*sh: (?:line )?\d+: (\S+): (?:command )?not found$",
            r"^env: [\u2018'](\S+?)[\u2019']: No such file or directory",
            r"^bwrap: execvp (\S+): No such file or directory",
            r"fatal error: cannot execute [\u2018'](\S+?)[\u2019']: execvp: No such file",
            r"fatal error: cannot find [\u2018'](\S+?)[\u2019']",
            r"^(\S+): No such file or directory nvcc fatal : Failed to preprocess",
            r"The CMAKE_\w+_COMPILER: (\S+) is not a full path and was not found in the PATH",
            r"Running '(\S+)' '--version' failed with: No such file or directory",
        ),
        cause=_MISSING_TOOL,
        remedy=_ASK_THE_DOCTOR,
    ),
    KnownCause(
        kind="missing-package",
        patterns=(
            r"Could not find a package configuration file provided by \"(\S+)\"",
            r"Could NOT find (\S+) \(missing:",
        ),
        cause=r"CMake cannot find the package \1",
        remedy=_ASK_THE_DOCTOR,
    ),
    KnownCause(
        kind="missing-header",
        patterns=(
            r"fatal error: (\S+\.\w+): No such file or directory",
            r"fatal error: '(\S+)' file not found",
        ),
        cause=r"the header \1 is not installed, or not where the compiler looks",
        remedy=_ASK_THE_DOCTOR,
    ),
    KnownCause(
        kind="missing-library",
        patterns=(r"ld: cannot find -l([^\s:]+)", r"unable to find library -l(\S+)"),
        cause=r"the library \1 is not installed, or not where the linker looks",
        remedy=_ASK_THE_DOCTOR,
    ),
    KnownCause(
        kind="compiler-unusable",
        patterns=(r"^-- The (\S+) compiler identification is unknown",),
        cause=r"the \1 compiler is missing or cannot be run",
        remedy=_ASK_THE_DOCTOR,
    ),
    KnownCause(
        kind="release-expired",
        patterns=(r"Release file for \S+ is expired",),
        cause="the release file of the Debian mirror is out of date",
        remedy="""apt_options = ['Acquire::Check-Valid-Until "false"'] in the environment lets apt take it""",
    ),
    KnownCause(
        kind="package-gone",
        patterns=(r"Failed to fetch \S+/(\S+\.deb) 404 ",),
        cause=r"the mirror has moved on: it has no \1 any more",
        remedy="dgr-build env lock NAME writes down what the mirror has now",
    ),
    KnownCause(
        kind="unknown-package",
        patterns=(r"^E: Unable to locate package (\S+)",),
        cause=r"the suite has no package \1",
        remedy="look at `suite` and `packages` of the environment in lanes/matrix.toml",
    ),
    KnownCause(
        kind="unmet-dependency",
        patterns=(r"^\s*(\S+) : Depends: (.+) but it is not (?:installable|going to be installed)",),
        cause=r"the suite is between two states: \1 needs \2, which cannot be had",
        remedy="use the lock of the environment, or wait until the suite is whole again",
    ),
    KnownCause(
        kind="no-network",
        patterns=(r"Could not connect to (\S+)", r"Temporary failure resolving '(\S+)'"),
        cause=r"\1 cannot be reached",
        remedy="environments are fetched before a build; apt takes a proxy from http_proxy",
    ),
    KnownCause(
        kind="no-subordinate-ids",
        patterns=(r"^E: unable to pick chroot mode automatically",),
        cause="this user may not make a Debian root: it is not root, and has no subordinate user ids",
        remedy="apt-get install uidmap, usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER "
        "(both as root), then the same command again",
    ),
    KnownCause(
        kind="illegal-instruction",
        patterns=(r"^Illegal instruction", r"^FAILED: \[code=132\]"),
        cause="a program that was just built uses an instruction that this processor lacks",
        remedy="--set isa=NAME states a lower one; dgr-build doctor LANE compares it with the processor",
    ),
)
