"""The C++ packages through the real Conan and the real package manager; nothing is installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dgr_build.errors import BuildError
from dgr_build.lanes.isolation import without_network
from dgr_build.lanes.packages import check_packages
from dgr_build.workspace import Workspace

_NATIVE = Path(__file__).resolve().parents[2] / "native"


@pytest.fixture
def ws(tmp_path):
    """A project with the recipes of ours, in a folder where they may be changed."""
    native = tmp_path / "a project" / "native"
    native.mkdir(parents=True)
    shutil.copytree(_NATIVE / "conan", native / "conan")
    for name in ("conanfile.py", "conan.lock"):
        shutil.copy(_NATIVE / name, native)
    return Workspace(project=native.parent, root=tmp_path / "dgr", cache=tmp_path / "cache")


def _change(ws, old, new):
    recipe = ws.native / "conan" / "recipes" / "gtest" / "all" / "conanfile.py"
    assert old in recipe.read_text()
    recipe.write_text(recipe.read_text().replace(old, new))


def test_the_recipes_name_packages_of_this_system_and_fit_the_lock(ws):
    found = check_packages(ws)
    assert found.manager in {"apt-get", "dnf", "pacman", "brew"}
    assert any("grpc" in name for name in found.wanted)


def test_a_changed_recipe_is_noticed_although_conan_has_seen_the_old_one(ws):
    check_packages(ws)
    _change(ws, "GoogleTest, for", "Something else, for")
    with pytest.raises(BuildError) as caught:
        check_packages(ws)
    shutil.copy(ws.conan / "fresh.lock", ws.native / "conan.lock")
    check_packages(ws)
    assert "fresh.lock" in caught.value.remedy


def test_a_package_that_is_not_installed_is_named_with_the_line_that_installs_it(ws):
    if check_packages(ws).manager != "apt-get":
        pytest.skip("changes the recipe for Debian")
    _change(ws, '"libgtest-dev"', '"libgtest-dev", "libdgr-does-not-exist-dev"')
    with pytest.raises(BuildError):
        check_packages(ws)
    shutil.copy(ws.conan / "fresh.lock", ws.native / "conan.lock")
    found = check_packages(ws)
    assert found.missing == ("libdgr-does-not-exist-dev",)
    assert found.command.endswith("libdgr-does-not-exist-dev")


def test_checking_needs_no_network_and_leaves_the_persons_conan_alone(tmp_path):
    cut = without_network()
    if not cut:
        pytest.skip("this machine lets nobody unshare its network")
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "DGR_WORKSPACE": str(tmp_path / "dgr")}
    code = (
        "from dgr_build.lanes.packages import check_packages; from dgr_build.workspace import Workspace; "
        "import json; print(json.dumps(check_packages(Workspace.open()).wanted))"
    )
    done = subprocess.run(
        [*cut, sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert list(home.iterdir()) == []
