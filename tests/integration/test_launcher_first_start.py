"""Real first starts of a fresh clone; they need the package index and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

_ROOT = Path(__file__).resolve().parents[2]
_WAIT_S = 600
_CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("DGR_", "VIRTUAL_ENV"))}


def _launch(clone: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [clone / "dgr-build", *arguments],
        cwd="/",
        env=_CLEAN | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(launched: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = launched.communicate(timeout=_WAIT_S)
    return launched.returncode, out, err


def _kill_while_installing(clone: Path, number: signal.Signals) -> int:
    """Start, wait until pip is at work, send the signal to the launcher alone; return its exit code."""
    launched = _launch(clone, "--version")
    assert launched.stderr is not None
    for line in launched.stderr:
        if "packages collected" in line:
            break
    family = psutil.Process(launched.pid).children(recursive=True)
    assert family
    launched.send_signal(number)
    launched.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    return launched.returncode


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone holds, in a folder whose path has a space and letters outside ASCII."""
    target = tmp_path_factory.mktemp("first start") / "klön ümlaut"
    made = shutil.ignore_patterns(".venv", ".dgr", ".git", "__pycache__", ".*_cache", "*.egg-info")
    shutil.copytree(_ROOT, target, ignore=made, symlinks=True)
    return target


def test_interrupted_and_killed_first_starts_are_mended_by_the_next(clone: Path) -> None:
    assert _kill_while_installing(clone, signal.SIGINT) == 130
    assert _kill_while_installing(clone, signal.SIGTERM) == 128 + signal.SIGTERM
    assert _kill_while_installing(clone, signal.SIGKILL) == -signal.SIGKILL
    first, second = _launch(clone, "--version"), _launch(clone, "--version")
    told = ""
    for launched in (first, second):
        code, out, err = _finish(launched)
        assert (code, out.split()[0]) == (0, "dgr-build"), err
        told += err
    assert told.count("waiting for another start") == 1
    assert told.count("==> installing dgr-build itself") == 1


def test_second_start_makes_nothing_and_is_quick(clone: Path) -> None:
    assert _finish(_launch(clone, "--version"))[0] == 0
    times = []
    for _ in range(5):
        start = time.monotonic()
        code, _, err = _finish(_launch(clone, "--version"))
        times.append(time.monotonic() - start)
        assert (code, err) == (0, "")
    assert min(times) < 1.0  # Python's own start and the imports of the command line


@pytest.mark.parametrize("locale", ["C", "POSIX", "xx_XX.UTF-8"])
def test_the_locale_does_not_matter_to_a_path_with_letters_outside_ascii(
    clone: Path, locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    code, out, err = _finish(_launch(clone, "--version"))
    assert (code, out.split()[0]) == (0, "dgr-build"), err


def test_launcher_works_through_a_link_and_keeps_arguments_apart(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "dgr").symlink_to(clone / "dgr-build")
    done = subprocess.run(
        [tmp_path / "dgr", "a  b", "--json"], env=_CLEAN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "a  b" in done.stdout


def test_files_in_the_current_folder_do_not_shadow_the_toolchain(clone: Path, tmp_path: Path) -> None:
    for name in ("typer.py", "dgr_build.py"):
        (tmp_path / name).write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        [clone / "dgr-build", "--version"],
        cwd=tmp_path,
        env=_CLEAN | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_project_file_reinstalls_the_project_alone(clone: Path) -> None:
    with (clone / "pyproject.toml").open("a") as file:
        file.write("# a change\n")
    code, _, err = _finish(_launch(clone, "--version"))
    assert code == 0, err
    assert "installing dgr-build itself" in err
    assert "locked Python packages" not in err


_EMPTY_ITSELF = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from dgr_build import bootstrap
bootstrap._make_environment(Path(sys.argv[2]))
"""


def test_an_activated_environment_can_be_made_again_from_itself(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python3"
    command = [python, "-I", "-c", _EMPTY_ITSELF, _ROOT / "toolchain", tmp_path / "venv"]
    subprocess.run(command, check=True)
    subprocess.run([python, "-m", "pip", "--version"], check=True)


def test_a_moved_clone_makes_its_environment_again(clone: Path) -> None:
    moved = clone.with_name("moved")
    clone.rename(moved)
    try:
        code, _, err = _finish(_launch(moved, "--version", PIP_NO_INDEX="1", PIP_FIND_LINKS=""))
        assert code == 3  # without an index it cannot, and says what to look at
        assert "pip config list" in err
    finally:
        moved.rename(clone)
