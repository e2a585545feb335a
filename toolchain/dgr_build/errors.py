"""The one error tree: what went wrong, why, and the next command; one exit code for each kind."""

from __future__ import annotations

from typing import ClassVar

EXIT_OK = 0
EXIT_INTERRUPTED = 130


class DgrError(Exception):
    """A failure that a person can act on.

    Args:
        message: what failed and where (a file, a field, a patch, a stage).
        cause: why it failed, in the words of whoever found it.
        remedy: the next command to type or thing to change.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "internal"

    def __init__(self, message: str, *, cause: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.remedy = remedy

    def to_json(self) -> dict[str, object]:
        """Return the error as data, as `--json` prints it."""
        return {
            "error": self.kind,
            "exit_code": self.exit_code,
            "message": self.message,
            "cause": self.cause,
            "remedy": self.remedy,
        }


class UsageError(DgrError):
    """The command line or a document asks for something that makes no sense."""

    exit_code = 2
    kind = "usage"


class HostError(DgrError):
    """The host lacks a program, a package, a CPU feature or disk space."""

    exit_code = 3
    kind = "host"


class SourceUnavailableError(DgrError):
    """No provider could yield the pinned source."""

    exit_code = 4
    kind = "source-unavailable"


class ProofError(DgrError):
    """Objects were obtained, but they are not what the pin names."""

    exit_code = 5
    kind = "proof"


class PatchError(DgrError):
    """A patch or the series is malformed, or does not apply or reverse."""

    exit_code = 6
    kind = "patch"


class BuildError(DgrError):
    """Configuring or compiling failed."""

    exit_code = 7
    kind = "build"


class CheckError(DgrError):
    """A check of a result failed: artifact contents, parity, reproducibility, tests."""

    exit_code = 8
    kind = "check"


class ArtifactError(DgrError):
    """A model file is broken, is not what its manifest says, or may not lie where it was asked to."""

    exit_code = 9
    kind = "artifact"


class RouteError(DgrError):
    """A worker or a route failed."""

    exit_code = 10
    kind = "route"
