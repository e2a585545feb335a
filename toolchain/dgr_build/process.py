"""Running programs. Nothing else in the project starts one.

Every child leads its own process group and is ended with it, also when the toolchain itself is killed
(Linux parent-death signal), so Ctrl-C or a crash leaves no process behind. The signal follows the thread
that started the child: start long-lived children from a thread that outlives them.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NoReturn

from dgr_build.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_GRACE_S = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_watcher: Callable[[str], None] | None = None


def watch(on_start: Callable[[str], None] | None) -> None:
    """Have each program's command line, as it could be typed, handed to `on_start` before it starts."""
    global _watcher  # noqa: PLW0603 - one switch for the whole program, set by --verbose
    _watcher = on_start


def replace(argv: Sequence[str | Path]) -> NoReturn:
    """Become another program: same process id, so that signals reach it."""
    command = [str(a) for a in argv]
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A program that has ended."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def command(self) -> str:
        """The command as it could be typed."""
        return shlex.join(self.argv)


class Child:
    """A program that runs in the background, in a process group of its own."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        """Start the program.

        Raises:
            HostError: the program does not exist or may not be executed.
        """
        self.argv = tuple(str(a) for a in argv)
        if _watcher:
            _watcher(
                shlex.join(self.argv)
                if cwd is None
                else f"(cd {shlex.quote(str(cwd))} && {shlex.join(self.argv)})"
            )
        parent = os.getpid()
        try:
            self._popen = subprocess.Popen(
                self.argv,
                cwd=cwd,
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=(lambda: _die_with(parent)) if _LIBC else None,  # noqa: PLW1509 - two system calls, no locks
            )
        except OSError as error:
            raise HostError(
                f"cannot start {self.argv[0]}",
                cause=error.strerror or str(error),
                remedy="dgr-build lane cpu --only doctor shows what is missing",
            ) from error

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def stdout(self) -> IO[bytes] | None:
        """The read end of a stdout pipe."""
        return self._popen.stdout

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._popen.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        return self._popen.wait(timeout)

    def stop(self, grace_s: float = _GRACE_S) -> int:
        """Ask the whole group to end (SIGTERM), then force it; return the exit code."""
        if self._popen.poll() is None:
            self.signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(grace_s)
        self.signal(signal.SIGKILL)
        return self._popen.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group, if anything of it is left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Completed:
    """Run a program to its end and return what it printed; the caller judges the exit code.

    Raises:
        HostError: the program cannot be started.
        subprocess.TimeoutExpired: it ran longer than `timeout` seconds and was ended.
    """
    start = time.monotonic()
    child = Child(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = child._popen.communicate(timeout=timeout)  # noqa: SLF001 - same module
    finally:
        child.stop()
    return Completed(
        argv=child.argv,
        returncode=child.wait(),
        stdout=out.decode(errors="replace"),
        stderr=err.decode(errors="replace"),
        seconds=time.monotonic() - start,
    )


def run_lines(
    argv: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    errors: Path | None = None,
) -> Completed:
    """Run a program and hand each line of its merged output to `on_line` as it appears.

    With a file for `errors`, what goes to stderr goes there: it cannot fall into the middle of a line.

    The whole output is kept in `stdout` of what is returned.

    Raises:
        HostError: the program cannot be started.
    """
    start = time.monotonic()
    lines: list[str] = []
    with ExitStack() as stack:
        aside = stack.enter_context(errors.open("wb")) if errors is not None else subprocess.STDOUT
        child = Child(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=aside)
    try:
        for raw in child.stdout or ():
            line = raw.decode(errors="replace").rstrip("\r\n")
            lines.append(line)
            on_line(line)
        code = child.wait()
    finally:
        child.stop()
    text = "\n".join(lines)
    return Completed(
        argv=child.argv, returncode=code, stdout=text, stderr="", seconds=time.monotonic() - start
    )


def _die_with(parent: int) -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the signal was asked for
            os._exit(1)
