"""The launcher and the bootstrap where they refuse or wait; real first starts are integration tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dgr_build import bootstrap, process
from dgr_build.errors import HostError

_ROOT = Path(__file__).resolve().parents[2]
_TOOLS = ("sh", "readlink", "dirname", "cat", "cmp")


@pytest.fixture
def bare(tmp_path: Path):
    """A host without Python: runs the launcher with only the tools every system has."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in _TOOLS:
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(tools), "DGR_VENV": str(tmp_path / "venv"), **variables}
        return subprocess.run(
            [_ROOT / "dgr-build", *arguments],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run, tools


def _fake_python(folder: Path, name: str, version: str) -> None:
    script = folder / name
    script.write_text(f"#!/bin/sh\necho {version}\n")
    script.chmod(0o755)


def test_a_host_without_python_is_told_the_one_line(bare) -> None:
    run, _ = bare
    done = run("--version")
    assert done.returncode == 3
    assert "apt-get install -y python3 python3-venv" in done.stderr


@pytest.mark.parametrize("version", ["2.7", "3.9", "3.10"])
def test_an_old_python_is_named_and_refused(bare, version: str) -> None:
    run, tools = bare
    _fake_python(tools, "python3", version)
    done = run("--version")
    assert done.returncode == 3
    assert version in done.stderr


def test_a_newer_python_behind_an_old_one_is_found(bare) -> None:
    run, tools = bare
    _fake_python(tools, "python3", "3.9")
    _fake_python(
        tools, "python3.12", "3.12"
    )  # prints instead of bootstrapping, which shows that it was chosen
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, "3.12\n")


def test_a_folder_with_other_things_is_not_taken_for_the_environment(bare, tmp_path: Path) -> None:
    run, _ = bare
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "thesis.txt").touch()
    done = run("--version", DGR_PYTHON=sys.executable)
    assert done.returncode == 3
    assert "DGR_VENV" in done.stderr
    assert [entry.name for entry in (tmp_path / "venv").iterdir()] == ["thesis.txt"]


def test_the_launcher_is_plain_posix_shell() -> None:
    for shell in filter(shutil.which, ("dash", "busybox")):
        command = [shell, "sh"] if shell == "busybox" else [shell]
        subprocess.run([*command, "-n", str(_ROOT / "dgr-build")], check=True)


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch):
    """A Debian host whose Python cannot make environments; programs are noted, not run."""
    ran: list[list[str]] = []
    state = {"ensurepip": False, "sudo": True, "apt": True}

    def run(argv: list[str], **_: object) -> process.Completed:
        ran.append([str(a) for a in argv])
        good = state["sudo"] if argv[-1] == "true" else state["apt"]
        if "install" in argv and good:
            state["ensurepip"] = True
        return process.Completed(
            argv=tuple(argv), returncode=0 if good else 1, stdout="E: broken", stderr="", seconds=0
        )

    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: state["ensurepip"] or None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    monkeypatch.setattr(os.path, "realpath", lambda _path: "/usr/bin/python3.11")
    return state, ran


def test_root_gets_the_missing_venv_package_installed(
    debian, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    _, ran = debian
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    bootstrap._install_venv_module()
    assert [command[:2] for command in ran] == [["apt-get", "install"]]
    assert "python3-venv" in capsys.readouterr().err


def test_sudo_without_a_password_is_used(debian, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ran = debian
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    bootstrap._install_venv_module()
    assert ran[-1][:4] == ["/usr/bin/sudo", "-n", "apt-get", "install"]


def test_without_rights_the_one_line_is_named_and_nothing_runs(
    debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, ran = debian
    state["sudo"] = False
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError) as caught:
        bootstrap._install_venv_module()
    assert "apt-get install -y --no-install-recommends python3-venv" in caught.value.remedy
    assert not any("install" in command for command in ran)


def test_package_lists_are_updated_only_after_a_failed_install(
    debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, ran = debian
    state["apt"] = False
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(HostError) as caught:
        bootstrap._install_venv_module()
    assert [command[1] for command in ran] == ["install", "update", "install"]
    assert "E: broken" in caught.value.cause
