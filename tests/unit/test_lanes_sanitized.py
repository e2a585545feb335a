from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import HostError
from dgr_build.lanes.sanitized import find_clang
from dgr_build.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

_SAYS = """#!/bin/sh
case $1 in
    --version) echo 'Debian clang version {version}'; echo more ;;
    -print-resource-dir) echo '{resources}' ;;
esac
"""


def _compiler(folder: Path, name: str, version: str, resources: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for program in (f"clang{name}", f"clang++{name}"):
        file = folder / program
        file.write_text(_SAYS.format(version=version, resources=resources))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)


def _runtime(folder: Path) -> Path:
    (folder / "lib" / "linux").mkdir(parents=True)
    (folder / "lib" / "linux" / "libclang_rt.fuzzer-x86_64.a").touch()
    return folder


def _found(folder: Path) -> str:
    environment = load_matrix(Workspace.open().matrix_file).environment["host-clang"]
    return find_clang(environment.model_copy(update={"path": (str(folder),)})).cxx.name


def test_a_clang_under_a_versioned_name_is_found(tmp_path: Path) -> None:
    _compiler(tmp_path / "bin", "-14", "14.0.6", _runtime(tmp_path / "r"))
    _compiler(tmp_path / "bin", "-16", "16.0.1", tmp_path / "r")
    assert _found(tmp_path / "bin") == "clang++-16"


def test_a_clang_that_is_too_old_or_has_no_runtime_is_named(tmp_path: Path) -> None:
    _compiler(tmp_path / "bin", "", "11.0.1", _runtime(tmp_path / "r"))
    _compiler(tmp_path / "bin", "-15", "15.0.0", tmp_path / "none")
    with pytest.raises(HostError) as raised:
        _found(tmp_path / "bin")
    assert "11.0.1" in raised.value.cause
    assert "no libclang_rt.fuzzer" in raised.value.cause
    assert "clang-14" in raised.value.remedy


def test_no_clang_names_the_folders_and_the_packages(tmp_path: Path) -> None:
    with pytest.raises(HostError) as raised:
        _found(tmp_path)
    assert str(tmp_path) in raised.value.cause
