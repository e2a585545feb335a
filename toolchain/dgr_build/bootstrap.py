"""Makes the virtual environment of a clone, then becomes the toolchain in it. The launcher starts it.

It runs on the host's bare Python, so it imports the standard library, `errors` and `process` alone.
The environment is made in place, since virtual environments cannot be moved: each half writes its stamp last,
and a half without a matching stamp is made again. The lock belongs to the kernel and ends with its holder, so
whatever kills a first start, the next one mends it.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dgr_build import process
from dgr_build.errors import EXIT_INTERRUPTED, DgrError, HostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NEED_BYTES = 900_000_000
_OURS = "dgr-build.lock"
_FOREIGN_PIP_SETTINGS = ("PIP_CONSTRAINT", "PIP_PREFIX", "PIP_REQUIREMENT", "PIP_ROOT", "PIP_TARGET")
_OWN_PIP_SETTINGS = {"PIP_REQUIRE_HASHES": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0"}
_SHOWN_ON_FAILURE = 12


def main(argv: Sequence[str]) -> NoReturn:
    """Make the environment where it is missing or stale, then run the toolchain in this same process.

    Args:
        argv: the project folder, the folder of the environment, and what the person typed.
    """
    root, venv = Path(argv[0]), Path(argv[1])
    signal.signal(signal.SIGTERM, _end)
    try:
        prepare(root, venv)
    except DgrError as error:
        for label, text in (("error", error.message), ("cause", error.cause), ("next", error.remedy)):
            if text:
                _say(f"{label + ':':<6} {text}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("interrupted; the next start continues")
        sys.exit(EXIT_INTERRUPTED)
    process.replace([venv / "bin" / "python", "-P", "-m", "dgr_build", *argv[2:]])


def prepare(root: Path, venv: Path) -> None:
    """Bring the environment up to date; of several callers at once, one works and the others wait.

    Raises:
        HostError: the folder cannot be used, Python lacks its venv module, or pip failed.
    """
    _check_folder(venv)
    with _locked(venv):
        if not _matches(venv / "packages.stamp", _packages_stamp(root, venv)):
            _install_venv_module()
            _make_environment(venv)
            _install_packages(root, venv)
            (venv / "packages.stamp").write_bytes(_packages_stamp(root, venv))
        wanted = (root / "pyproject.toml").read_bytes()
        if not _matches(venv / "project.stamp", wanted):
            (venv / "project.stamp").unlink(missing_ok=True)
            _say("==> installing dgr-build itself")
            _pip(venv, ["--no-deps", "--no-build-isolation", "--editable", str(root)])
            (venv / "project.stamp").write_bytes(wanted)


def _packages_stamp(root: Path, venv: Path) -> bytes:
    python = os.path.realpath(venv / "bin" / "python")
    head = b"".join(os.fsencode(part) + b"\n" for part in (root, python))
    return head + (root / "requirements.lock").read_bytes()


def _matches(stamp: Path, wanted: bytes) -> bool:
    return stamp.is_file() and stamp.read_bytes() == wanted


def _check_folder(venv: Path) -> None:
    try:
        venv.mkdir(parents=True, exist_ok=True)
        known = {entry.name for entry in venv.iterdir()}
    except OSError as error:
        raise HostError(
            f"cannot make the virtual environment {venv}",
            cause=error.strerror or str(error),
            remedy="set DGR_VENV to a folder that you may write, and run the same command again",
        ) from error
    if known and not known & {_OURS, "pyvenv.cfg"}:
        raise HostError(
            f"{venv} is not empty and no virtual environment",
            remedy="set DGR_VENV to a new folder, and run the same command again",
        )
    if not os.access(venv, os.W_OK):
        raise HostError(
            f"the virtual environment {venv} is stale and you may not write it",
            remedy="set DGR_VENV to a folder that you may write, and run the same command again",
        )
    free = shutil.disk_usage(venv).free
    if "packages.stamp" not in known and free < _NEED_BYTES:
        raise HostError(
            f"not enough space for the virtual environment {venv}",
            cause=f"{_NEED_BYTES / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free",
            remedy="free some space, or set DGR_VENV to a folder on another file system",
        )


@contextmanager
def _locked(venv: Path) -> Iterator[None]:
    with (venv / _OURS).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another start that is making {venv}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_venv_module() -> None:
    """Make sure that this Python can make environments; Debian keeps that in a package of its own.

    Raises:
        HostError: it cannot, and it is not ours to change.
    """
    if importlib.util.find_spec("ensurepip"):
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    executable = os.path.realpath(sys.executable)
    if not executable.startswith("/usr/bin/") or not shutil.which("apt-get"):
        raise HostError(
            f"{sys.executable} (Python {version}) lacks the modules venv and ensurepip",
            remedy="install them, or set DGR_PYTHON to a Python 3.11 or newer that has them",
        )
    default = os.path.realpath("/usr/bin/python3") == executable
    package = "python3-venv" if default else f"python{version}-venv"
    apt = ["apt-get", "install", "-y", "--no-install-recommends", package]
    if os.geteuid() != 0:
        sudo = shutil.which("sudo")
        if not sudo or process.run([sudo, "-n", "true"]).returncode != 0:
            raise HostError(
                f"the system package {package} is missing",
                cause=f"{sys.executable} cannot make virtual environments without it",
                remedy=f"{'sudo sh' if sudo else 'su'} -c 'apt-get update && {' '.join(apt)}', "
                "then run the same command again",
            )
        apt = [sudo, "-n", *apt]
    _say(f"==> {package} is missing: {' '.join(apt)}")
    prefix = apt[: apt.index("install")]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Package lists may be absent (a fresh image) or too old for the mirror: then, and only then, update.
    done = process.run(apt, env=env)
    if done.returncode != 0:
        _say(f"==> {' '.join([*prefix, 'update'])}")
        process.run([*prefix, "update"], env=env)
        done = process.run(apt, env=env)
    importlib.invalidate_caches()
    if done.returncode != 0 or not importlib.util.find_spec("ensurepip"):
        raise HostError(
            f"apt-get could not install {package}",
            cause=_last_lines((done.stdout + done.stderr).splitlines()),
            remedy="apt-get update, mend what it says, then run the same command again",
        )


def _make_environment(venv: Path) -> None:
    _say(f"==> making the virtual environment {venv} with Python {sys.version.split()[0]}")
    # Started from an activated environment, perhaps the very one to be emptied: its base makes the new one.
    python = sys.executable if sys.prefix == sys.base_prefix else os.path.realpath(sys.executable)
    for entry in venv.iterdir():
        if entry.name == _OURS:
            continue  # others wait on this very file
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    done = process.run([python, "-X", "utf8", "-I", "-m", "venv", venv])
    if done.returncode != 0:
        raise HostError(
            f"Python could not make the virtual environment {venv}",
            cause=_last_lines((done.stdout + done.stderr).splitlines()),
            remedy="mend what it says, then run the same command again",
        )


def _install_packages(root: Path, venv: Path) -> None:
    lock = root / "requirements.lock"
    _say(f"==> installing the locked Python packages of {lock.name} (a minute or two)")
    _pip(venv, ["--require-hashes", "--no-deps", "-r", str(lock)])


def _pip(venv: Path, arguments: Sequence[str]) -> None:
    """Run `pip install` in the environment, with the person's own index settings.

    Raises:
        HostError: pip failed.
    """
    env = {name: value for name, value in os.environ.items() if name not in _FOREIGN_PIP_SETTINGS}
    # Its own folder for what it unpacks: an interrupted pip leaves that behind.
    temporary = venv / "tmp"
    temporary.mkdir(exist_ok=True)
    env |= {**_OWN_PIP_SETTINGS, "TMPDIR": str(temporary)}
    command = [str(venv / "bin" / "python"), "-X", "utf8", "-I", "-m", "pip", "install"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", *arguments]
    try:
        done = process.run_lines(command, _PipProgress(), env=env)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if done.returncode != 0:
        raise HostError(
            "pip could not install what dgr-build needs",
            cause=_last_lines(done.stdout.splitlines()),
            remedy="check the network and pip's index (pip config list), then run the same command again",
        )


class _PipProgress:
    """Says every tenth package that pip collects, and its last step."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, line: str) -> None:
        if line.startswith("Collecting "):
            self._count += 1
            if self._count % 10 == 0:
                _say(f"    {self._count} packages collected")
        elif line.startswith("Installing collected"):
            _say("    unpacking them")


def _last_lines(lines: Sequence[str]) -> str:
    return "\n       ".join([line for line in lines if line.strip()][-_SHOWN_ON_FAILURE:])


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _end(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)
