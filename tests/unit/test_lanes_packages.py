"""C++ packages through Conan: named, installed where that is allowed, never a person's own Conan."""

import json
import os
from pathlib import Path

import pytest

from dgr_build import workspace
from dgr_build.errors import BuildError, HostError
from dgr_build.lanes import packages
from dgr_build.lanes.packages import check_packages, ensure_packages
from dgr_build.workspace import Workspace

_LOCK = {"version": "0.5", "requires": ["grpc/system#aa", "gtest/system#bb"], "build_requires": []}

# Stands for Conan, the package managers and sudo: a package is installed when a file of its name exists.
_CONAN = """#!/usr/bin/env python3
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
log = open(os.path.join(here, "calls"), "a")
log.write(" ".join(sys.argv[1:]) + " HOME=" + os.environ.get("CONAN_HOME", "") +
          " OTHER=" + os.environ.get("CONAN_LOG_LEVEL", "") + "\\n")
wanted = ["libgrpc++-dev", "libgtest-dev"]
state = os.path.join(here, "installed")
mode = next(a.split("=")[1] for a in sys.argv if a.startswith("tools.system.package_manager:mode"))
if mode == "install":
    if os.path.exists(os.path.join(here, "stale")):
        print("E: Unable to fetch some archives")
        sys.exit(1)
    for name in wanted:
        open(os.path.join(state, name), "w").close()
    sys.exit(0)
if os.path.exists(os.path.join(here, "broken")):
    sys.stderr.write("ERROR: no such recipe\\n")
    sys.exit(1)
with open(sys.argv[sys.argv.index("--lockfile-out") + 1], "w") as out:
    out.write(open(os.path.join(here, "lock")).read())
missing = [n for n in wanted if not os.path.exists(os.path.join(state, n))]
print(json.dumps({"graph": {"nodes": {
    "0": {"system_requires": {}},
    "1": {"system_requires": {"apt-get": {"install": wanted, "missing": missing}}},
    "2": {"system_requires": {"apt-get": {"install": wanted[:1], "missing": missing[:1]}}},
}}}))
"""


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    folder = tmp_path / "fakes"
    (folder / "installed").mkdir(parents=True)
    seen = {**_LOCK, "requires": ["gtest/system#bb%17.5", "grpc/system#aa%18.25"]}
    (folder / "lock").write_text(json.dumps(seen))
    (folder / "conan").write_text(_CONAN)
    _write(folder / "apt-get", f'#!/bin/sh\necho "apt-get $@" >> "{folder}/calls"\nrm -f "{folder}/stale"\n')
    _write(folder / "sudo", "#!/bin/sh\nexit 1\n")
    (folder / "conan").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(packages, "own_program", lambda name: folder / name)
    lists = folder / "lists"
    lists.mkdir()
    (lists / "mirror_Packages").touch()
    monkeypatch.setattr(packages, "_APT_LISTS", lists)
    return folder


@pytest.fixture
def ws(tmp_path):
    native = tmp_path / "project" / "native"
    (native / "conan").mkdir(parents=True)
    (native / "conan.lock").write_text(json.dumps(_LOCK))
    return Workspace(project=tmp_path / "project", root=tmp_path / "dgr", cache=tmp_path / "cache")


def _write(file: Path, text: str):
    file.write_text(text)
    file.chmod(0o755)


def _installed(folder):
    for name in ("libgrpc++-dev", "libgtest-dev"):
        (folder / "installed" / name).touch()


def _calls(folder):
    return (folder / "calls").read_text().splitlines()


def _as_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def _as_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_packages_that_are_there_are_only_looked_at(fakes, ws, monkeypatch):
    _as_user(monkeypatch)
    _installed(fakes)
    found = ensure_packages(ws)
    assert found.missing == ()
    assert found.wanted == ("libgrpc++-dev", "libgtest-dev")
    assert len(_calls(fakes)) == 1


@pytest.fixture
def database(tmp_path, monkeypatch):
    """A file that stands for what the package manager has installed."""
    file = tmp_path / "status"
    file.write_text("Package: one\n")
    monkeypatch.setattr(packages.package_state, "__defaults__", ((file,),))
    return file


def test_nothing_is_asked_again_while_recipes_and_installed_packages_stay(fakes, ws, monkeypatch, database):
    _as_user(monkeypatch)
    _installed(fakes)
    assert ensure_packages(ws) == ensure_packages(ws)
    assert len(_calls(fakes)) == 1


@pytest.mark.parametrize("changed", ["database", "recipe", "lock", "home"])
def test_a_change_of_recipes_or_installed_packages_is_asked_about(fakes, ws, monkeypatch, database, changed):
    _as_user(monkeypatch)
    _installed(fakes)
    ensure_packages(ws)
    if changed == "database":
        database.write_text("Package: two\nPackage: one\n")
        (fakes / "installed" / "libgtest-dev").unlink()
        with pytest.raises(HostError):
            ensure_packages(ws)
    elif changed == "recipe":
        (ws.native / "conan" / "new.py").write_text("a = 1\n")
        ensure_packages(ws)
    elif changed == "lock":
        (ws.native / "conan.lock").write_text(json.dumps(_LOCK, indent=1))
        ensure_packages(ws)
    else:
        workspace.remove(ws.conan)
        ensure_packages(ws)
    assert len(_calls(fakes)) == 2


def test_what_is_missing_is_never_remembered(fakes, ws, monkeypatch, database):
    _as_user(monkeypatch)
    for _ in range(2):
        with pytest.raises(HostError):
            ensure_packages(ws)


def test_a_system_without_a_known_package_database_is_always_asked(fakes, ws, monkeypatch, database):
    _as_user(monkeypatch)
    _installed(fakes)
    database.unlink()
    ensure_packages(ws)
    ensure_packages(ws)
    assert len(_calls(fakes)) == 2


def test_without_rights_the_one_line_to_run_is_given(fakes, ws, monkeypatch):
    _as_user(monkeypatch)
    with pytest.raises(HostError) as caught:
        ensure_packages(ws)
    assert caught.value.exit_code == 3
    assert caught.value.remedy == (
        "sudo apt-get install -y --no-install-recommends libgrpc++-dev libgtest-dev"
    )
    assert [call for call in _calls(fakes) if "mode=install" in call] == []


def test_root_installs_what_is_missing_and_says_so(fakes, ws, monkeypatch, capfd):
    _as_root(monkeypatch)
    assert ensure_packages(ws).missing == ("libgrpc++-dev", "libgtest-dev")
    assert check_packages(ws).missing == ()
    installing = [call for call in _calls(fakes) if "mode=install" in call]
    assert len(installing) == 1
    assert "sudo=False" in installing[0]


def test_sudo_that_asks_nothing_is_used(fakes, ws, monkeypatch):
    _as_user(monkeypatch)
    _write(fakes / "sudo", '#!/bin/sh\n[ "$1" = -n ] && shift && exec "$@"\n')
    ensure_packages(ws)
    assert any("mode=install" in call and "sudo=True" in call for call in _calls(fakes))


def test_empty_package_lists_are_fetched_first(fakes, ws, monkeypatch):
    _as_root(monkeypatch)
    (fakes / "lists" / "mirror_Packages").unlink()
    ensure_packages(ws)
    kinds = ["update" if call == "apt-get update" else "conan" for call in _calls(fakes)]
    assert kinds == ["conan", "update", "conan", "conan"]


def test_stale_package_lists_are_fetched_anew_after_a_failure(fakes, ws, monkeypatch):
    _as_root(monkeypatch)
    (fakes / "stale").touch()
    ensure_packages(ws)
    assert "apt-get update" in _calls(fakes)


def test_an_installation_that_fails_shows_why_and_the_line_to_run(fakes, ws, monkeypatch):
    _as_root(monkeypatch)
    (fakes / "stale").touch()
    _write(fakes / "apt-get", "#!/bin/sh\nexit 1\n")
    with pytest.raises(HostError) as caught:
        ensure_packages(ws)
    assert "Unable to fetch" in caught.value.cause
    assert "apt-get install" in caught.value.remedy


def test_a_recipe_that_changed_after_the_lock_was_written_is_refused(fakes, ws):
    (fakes / "lock").write_text(json.dumps({**_LOCK, "requires": ["grpc/system#cc", "gtest/system#bb"]}))
    with pytest.raises(BuildError) as caught:
        check_packages(ws)
    assert "conan.lock" in caught.value.message
    assert "cp " in caught.value.remedy


def test_conan_has_a_home_of_its_own_and_no_remote_but_ours(fakes, ws, monkeypatch):
    monkeypatch.setenv("CONAN_HOME", "/of/the/person")
    monkeypatch.setenv("CONAN_LOG_LEVEL", "debug")
    _installed(fakes)
    check_packages(ws)
    (call,) = _calls(fakes)
    assert f"HOME={ws.root / 'conan'}" in call
    assert call.endswith("OTHER=")
    remotes = json.loads((ws.root / "conan" / "remotes.json").read_text())["remotes"]
    assert [remote["remote_type"] for remote in remotes] == ["local-recipes-index"]


def test_a_failure_of_conan_shows_what_it_said(fakes, ws):
    (fakes / "broken").touch()
    with pytest.raises(BuildError) as caught:
        check_packages(ws)
    assert "no such recipe" in caught.value.cause
