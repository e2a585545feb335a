"""Toolkits of wheels, from a folder of tiny made ones: locked, verified, unpacked, made once."""

import hashlib
import json
import os
import platform
import shutil
import zipfile

import pytest

from dgr_build.cli.main import run as cli
from dgr_build.documents.environment_lock import load_lock
from dgr_build.documents.matrix import Environment, load_matrix
from dgr_build.errors import HostError, ProofError, SourceUnavailableError, UsageError
from dgr_build.lanes.environment import manage, wheels
from dgr_build.lanes.environment.state import machine_of, state
from dgr_build.source import download

_PLATFORM = "manylinux_2_17_x86_64"
_TOP = "nvidia/cu13"
_RUNTIME = {
    f"{_TOP}/lib/libcudart.so.13": b"runtime",
    f"{_TOP}/include/cuda.h": b"#define CUDA\n",
    "nvidia/__init__.py": b"",
}
_COMPILER = {f"{_TOP}/bin/nvcc": b"#!/bin/sh\necho compiled\n", "nvidia/__init__.py": b""}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(download, "_PAUSES_S", (0.0, 0.0))


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A maker of wheels in a folder of links, the only place where pip is set to look."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    def make(package, files, *, version="1.0", platform=_PLATFORM):
        path = links / f"{package.replace('-', '_')}-{version}-py3-none-{platform}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        return path

    make("made-runtime", _RUNTIME)
    make("made-compiler", _COMPILER)
    return make


@pytest.fixture
def matrix(project_root):
    """A maker of matrices whose environment `kit` is the given wheels, with lanes of the given machines."""
    whole = load_matrix(project_root / "lanes" / "matrix.toml")
    isa = {"x86_64": "x86-64-v3", "aarch64": "armv8-2"}

    def make(*named, machines=("x86_64",)):
        named = named or ("made-runtime==1.0", "made-compiler==1.0")
        kit = Environment(kind="wheels", summary="made", path=("/usr/bin",), gcc="11", wheels=named)
        lanes = {
            f"kit-{machine}": whole.lane["cuda"].model_copy(
                update={"environment": "kit", "isa": isa[machine]}
            )
            for machine in machines
        }
        changes = {"environment": {**whole.environment, "kit": kit}, "lane": {**whole.lane, **lanes}}
        return whole.model_copy(update=changes)

    return make


@pytest.fixture
def made(ws, wheel, matrix):
    """The toolkit, locked and made."""
    manage.renew_lock(ws, matrix(), "kit")
    return manage.create(ws, matrix(), "kit")


def _assembled(ws, tmp_path):
    lock = load_lock(ws.environment_lock("kit"))
    folder = tmp_path / "assembled"
    folder.mkdir()
    wheels.assemble(lock, ws.downloads, folder)


def test_a_lock_names_every_wheel_with_its_hash(ws, wheel, matrix):
    before, lock = manage.renew_lock(ws, matrix(), "kit")
    assert before is None
    assert [(file.package, file.version) for file in lock.files] == [
        ("made-compiler", "1.0"),
        ("made-runtime", "1.0"),
    ]
    runtime = wheel("made-runtime", _RUNTIME)
    assert lock.files[1].sha256 == hashlib.sha256(runtime.read_bytes()).hexdigest()
    assert lock.files[1].size == runtime.stat().st_size
    assert load_lock(ws.environment_lock("kit")) == lock


def test_locking_the_same_again_changes_nothing(ws, wheel, matrix):
    _, first = manage.renew_lock(ws, matrix(), "kit")
    text = ws.environment_lock("kit").read_bytes()
    before, second = manage.renew_lock(ws, matrix(), "kit")
    assert before == second == first
    assert ws.environment_lock("kit").read_bytes() == text


def test_a_toolkit_has_the_files_of_all_wheels_with_the_links_that_linkers_look_for(made):
    assert (made.root / "include/cuda.h").read_bytes() == _RUNTIME[f"{_TOP}/include/cuda.h"]
    assert (made.root / "lib/libcudart.so").resolve() == made.root / "lib/libcudart.so.13"
    assert (made.root / "lib64/libcudart.so.13").read_bytes() == b"runtime"
    assert os.access(made.root / "bin/nvcc", os.X_OK)  # wheels may have lost what can be executed
    assert not os.access(made.root / "include/cuda.h", os.X_OK)
    assert made.variables["LD_LIBRARY_PATH"] == str(made.root / "lib")


def test_made_twice_is_no_work(ws, made, matrix, monkeypatch):
    shutil.rmtree(ws.downloads)
    monkeypatch.setattr(wheels, "fetch", lambda *_: pytest.fail("fetched"))
    monkeypatch.setattr(wheels, "assemble", lambda *_: pytest.fail("made"))
    assert manage.create(ws, matrix(), "kit") == manage.enter(ws, matrix(), "kit") == made


def test_a_toolkit_is_made_from_the_cache_without_any_index(ws, made, matrix, monkeypatch):
    manage.remove_made(ws, matrix(), "kit")
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert manage.create(ws, matrix(), "kit") == made
    assert (made.root / "bin/nvcc").is_file()


def test_a_wheel_damaged_in_the_cache_is_had_anew(ws, made, matrix):
    (path,) = ws.downloads.glob("made_runtime*.whl")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"x")
    manage.remove_made(ws, matrix(), "kit")
    manage.create(ws, matrix(), "kit")
    assert path.read_bytes() == whole


def test_an_index_that_sends_something_else_is_refused_and_what_it_sent_set_aside(ws, made, matrix, wheel):
    manage.remove_made(ws, matrix(), "kit")
    shutil.rmtree(ws.downloads)
    other = wheel("made-runtime", {**_RUNTIME, "nvidia/more.py": b"stolen = 1\n"})
    with pytest.raises(ProofError) as caught:
        manage.create(ws, matrix(), "kit")
    assert other.name in caught.value.message
    assert (ws.downloads / "quarantine" / other.name).read_bytes() == other.read_bytes()
    assert not (ws.downloads / other.name).exists()
    assert not state(ws, matrix(), "kit").made


def test_a_wheel_that_is_gone_is_named(ws, made, matrix, wheel):
    manage.remove_made(ws, matrix(), "kit")
    shutil.rmtree(ws.downloads)
    wheel("made-runtime", _RUNTIME).unlink()
    with pytest.raises(SourceUnavailableError) as caught:
        manage.create(ws, matrix(), "kit")
    assert "made-runtime==1.0" in caught.value.message


@pytest.mark.parametrize(
    "name", ["../escaped", "nvidia/../../escaped", "/escaped", "nvidia/cu13/lib/../../../../escaped"]
)
def test_a_path_that_leaves_the_folder_is_refused(ws, wheel, matrix, tmp_path, name):
    wheel("made-runtime", {**_RUNTIME, name: b"x"})
    manage.renew_lock(ws, matrix(), "kit")
    with pytest.raises(ProofError) as caught:
        _assembled(ws, tmp_path)
    assert name in caught.value.cause
    assert caught.value.remedy
    assert not list(tmp_path.rglob("escaped"))
    with pytest.raises(ProofError):
        manage.create(ws, matrix(), "kit")
    assert not [path for path in ws.environments.iterdir() if path.name.startswith("kit-")]


def test_wheels_that_differ_in_a_file_are_refused_and_equal_files_are_not(ws, wheel, matrix, tmp_path):
    wheel("made-compiler", {**_COMPILER, f"{_TOP}/include/cuda.h": b"other\n"})
    manage.renew_lock(ws, matrix(), "kit")
    with pytest.raises(ProofError) as caught:
        _assembled(ws, tmp_path)
    assert "include/cuda.h" in caught.value.cause


def test_a_wheel_that_is_no_archive_is_refused(ws, wheel, matrix, tmp_path):
    wheel("made-compiler", {}).write_bytes(b"<html>not found</html>")
    manage.renew_lock(ws, matrix(), "kit")
    with pytest.raises(ProofError):
        _assembled(ws, tmp_path)


def test_wheels_without_a_runtime_library_are_no_toolkit(ws, wheel, matrix):
    manage.renew_lock(ws, matrix("made-compiler==1.0"), "kit")
    with pytest.raises(HostError) as caught:
        manage.create(ws, matrix("made-compiler==1.0"), "kit")
    assert "env show" in caught.value.remedy


def test_a_wheel_for_another_machine_is_passed_over(ws, wheel, matrix):
    wheel("made-runtime", _RUNTIME).unlink()
    wheel("made-runtime", _RUNTIME, platform="manylinux_2_17_aarch64")
    with pytest.raises(SourceUnavailableError):
        manage.renew_lock(ws, matrix(), "kit")


def test_wheels_are_taken_for_the_machine_of_the_lanes_that_are_built_with_them(ws, wheel, matrix):
    for name, files in (("made-runtime", _RUNTIME), ("made-compiler", _COMPILER)):
        wheel(name, files, platform="manylinux_2_17_aarch64")
    for machine in ("aarch64", "x86_64"):
        _, lock = manage.renew_lock(ws, matrix(machines=(machine,)), "kit")
        assert all(file.file.endswith(f"_{machine}.whl") for file in lock.files)


def test_an_environment_of_lanes_for_two_machines_is_not_locked(ws, wheel, matrix):
    with pytest.raises(UsageError) as caught:
        manage.renew_lock(ws, matrix(machines=("x86_64", "aarch64")), "kit")
    assert "kit-aarch64" in caught.value.cause


def test_an_environment_without_lanes_is_for_this_machine(matrix, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert machine_of(matrix(machines=()), "kit") == "riscv64"


def test_the_very_file_that_is_locked_is_fetched_whatever_else_has_its_version(ws, made, matrix, wheel):
    manage.remove_made(ws, matrix(), "kit")
    shutil.rmtree(ws.downloads)
    for other in ("manylinux_2_17_aarch64", "manylinux_2_28_x86_64"):
        wheel("made-runtime", {**_RUNTIME, "nvidia/other.py": b""}, platform=other)
    assert manage.create(ws, matrix(), "kit") == made
    assert not (made.root.parent / "other.py").exists()


@pytest.mark.parametrize("top", ["nvidia/cu14", "nvidia/cu9"])
def test_the_release_of_a_toolkit_is_that_of_its_wheels(ws, wheel, matrix, top):
    for name, files in (("made-runtime", _RUNTIME), ("made-compiler", _COMPILER)):
        wheel(name, {path.replace(_TOP, top): content for path, content in files.items()})
    manage.renew_lock(ws, matrix(), "kit")
    made = manage.create(ws, matrix(), "kit")
    assert made.root.parts[-2:] == tuple(top.split("/"))
    assert made.variables["LD_LIBRARY_PATH"] == str(made.root / "lib")


@pytest.mark.parametrize("top", ["nvidia/cu14", "nvidia/cuda_runtime"])
def test_wheels_of_several_releases_or_of_none_are_no_toolkit(ws, wheel, matrix, top):
    moved = {path.replace(_TOP, top): content for path, content in _RUNTIME.items()}
    wheel("made-runtime", moved)
    named = ("made-runtime==1.0", "made-compiler==1.0") if top.endswith("14") else ("made-runtime==1.0",)
    manage.renew_lock(ws, matrix(*named), "kit")
    with pytest.raises(HostError) as caught:
        manage.create(ws, matrix(*named), "kit")
    assert "nvidia/cu" in caught.value.cause
    assert not state(ws, matrix(*named), "kit").made


@pytest.fixture
def stated(tmp_path, monkeypatch, wheel):
    """A page of links that states SHA-256s, as an index does; of the runtime, whatever it is told."""

    def write(sha256):
        links = [
            f'<a href="{file.as_uri()}#sha256={sha256(file)}">{file.name}</a>'
            for file in (tmp_path / "links").glob("*.whl")
        ]
        page = tmp_path / "page.html"
        page.write_text("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>")
        monkeypatch.setenv("PIP_FIND_LINKS", page.as_uri())

    return write


def test_a_cached_wheel_that_the_index_states_otherwise_is_not_locked(ws, wheel, matrix, stated):
    whole = wheel("made-runtime", _RUNTIME).read_bytes()
    stated(download.sha256_of)
    ws.downloads.mkdir(parents=True, exist_ok=True)
    cached = ws.downloads / wheel("made-runtime", _RUNTIME).name
    cached.write_bytes(b"left by another package of this name")
    _, lock = manage.renew_lock(ws, matrix(), "kit")
    assert lock.files[1].sha256 == hashlib.sha256(whole).hexdigest()
    assert cached.read_bytes() == whole


def test_a_cached_wheel_of_which_nothing_is_stated_is_had_anew(ws, wheel, matrix):
    runtime = wheel("made-runtime", _RUNTIME)
    ws.downloads.mkdir(parents=True, exist_ok=True)
    for name in (runtime.name, runtime.name + ".part"):
        (ws.downloads / name).write_bytes(b"left by another package of this name")
    _, lock = manage.renew_lock(ws, matrix(), "kit")
    assert lock.files[1].sha256 == hashlib.sha256(runtime.read_bytes()).hexdigest()
    assert (ws.downloads / runtime.name).read_bytes() == runtime.read_bytes()


def test_a_cached_wheel_that_the_lock_before_states_is_not_had_anew(ws, wheel, matrix, monkeypatch):
    _, first = manage.renew_lock(ws, matrix(), "kit")
    monkeypatch.setattr(download, "fetch", lambda *_, **__: pytest.fail("fetched"))
    assert manage.renew_lock(ws, matrix(), "kit") == (first, first)


def test_a_wheel_that_is_not_what_its_index_states_is_refused(ws, matrix, stated):
    stated(lambda _: "0" * 64)
    with pytest.raises(ProofError) as caught:
        manage.renew_lock(ws, matrix(), "kit")
    assert "0" * 64 in caught.value.cause
    assert not ws.environment_lock("kit").exists()


@pytest.mark.parametrize("named", ["made-runtime", "made-runtime>=1.0"])
def test_a_wheel_without_an_exact_version_is_refused(ws, wheel, matrix, named):
    with pytest.raises(UsageError) as caught:
        manage.renew_lock(ws, matrix(named), "kit")
    assert "==" in caught.value.remedy
    assert not ws.environment_lock("kit").exists()


def test_the_commands_tell_of_an_environment_that_is_not_made(isolated, capsys):
    assert cli(["env", "show", "cuda-wheels", "--files", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (one["kind"], one["state"], one["folder"]) == ("wheels", "locked, not made", None)
    assert len(one["locked"]) == one["files"]
    assert sum(file["size"] for file in one["locked"]) == one["download_bytes"]
    assert cli(["env", "remove", "cuda-wheels", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
