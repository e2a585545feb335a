"""The packages of a built worker, installed and unpacked as a stranger would, and run."""

import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from dgr_build.lanes.inspect import ask_version, program_facts
from dgr_build.lanes.package import Subject, package_version
from dgr_build.lanes.package_tar import make_tar
from dgr_build.lanes.package_wheel import make_wheel

_EPOCH = 1_790_812_800
_RUN_PATH = "$ORIGIN/../../nvidia/cu13/lib"
_VENDOR = "int vendor_answer(void) { return 7; }\n"
_STAND_IN = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int vendor_answer(void);
int main(int argc, char ** argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("{\\"worker_version\\": \\"0.1.0\\", \\"lane\\": \\"cuda\\", \\"lane_digest\\": \\"%064d\\", "
               "\\"upstream_build\\": 11312, \\"pid\\": %d}\\n", 0, (int) getpid());
        return 0;
    }
    return argc > 2 && strcmp(argv[2], "two words") == 0 ? vendor_answer() : 1;
}
"""


def _subject(worker, said, **fields):
    facts = program_facts(worker)
    return Subject(
        lane=said["lane"],
        lane_digest=said["lane_digest"],
        worker=worker,
        version=package_version(said),
        epoch=_EPOCH,
        needed=facts.needed,
        run_path=facts.loader_paths,
        licenses={"dgr-build": Path(__file__).parents[2] / "LICENSE"},
        said=said,
        **fields,
    )


def _install(wheel, folder):
    """Install a wheel into a fresh virtual environment; return the environment variables that enter it."""
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--no-index", "--no-deps", wheel], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def _audit(wheel):
    command = [sys.executable, "-m", "auditwheel", "show", "--json", wheel]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="session")
def cpu_subject(built_cpu_lane):
    return _subject(built_cpu_lane.worker, ask_version(built_cpu_lane.worker))


@pytest.fixture(scope="session")
def cpu_wheel(cpu_subject, tmp_path_factory):
    return make_wheel(cpu_subject, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def vendor(tmp_path_factory):
    """A stand-in for the worker of a lane whose vendor library comes from a Python package."""
    folder = tmp_path_factory.mktemp("vendor")
    (folder / "vendor.c").write_text(_VENDOR)
    (folder / "worker.c").write_text(_STAND_IN)
    library, worker = folder / "libcublas.so.13", folder / "dgr-shard-worker"
    shared = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, folder / "vendor.c"]
    linked = ["cc", "-o", worker, folder / "worker.c", library, "-Wl,--enable-new-dtags"]
    for command in (shared, [*linked, f"-Wl,-rpath,$ORIGIN:{_RUN_PATH}"]):
        subprocess.run(command, check=True)
    variables = {"LD_LIBRARY_PATH": str(folder)}
    said = ask_version(worker, variables=variables)
    brings = {"requires": ("nvidia-cublas==13.1.1.3",), "provided": (library.name,)}
    return _subject(worker, said, **brings), library


def test_the_installed_wheel_puts_the_worker_on_the_path(cpu_wheel, cpu_subject, tmp_path):
    entered = _install(cpu_wheel, tmp_path / "a venv")
    asked = ["dgr-shard-worker", "--version", "--json"]
    done = subprocess.run(asked, env=entered, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == cpu_subject.said
    refused = subprocess.run(
        ["dgr-shard-worker", "--no-such-option"], env=entered, capture_output=True, check=False
    )
    direct = subprocess.run([cpu_subject.worker, "--no-such-option"], capture_output=True, check=False)
    assert refused.returncode == direct.returncode != 0


def test_auditwheel_finds_the_same_platform_tag(cpu_wheel):
    seen = _audit(cpu_wheel)
    assert seen["overall_tag"].startswith("manylinux_")
    assert cpu_wheel.name.endswith(f"-py3-none-{seen['overall_tag']}.whl")
    assert seen["external_libs"] == {}


def test_the_unpacked_tarball_runs(cpu_subject, tmp_path):
    package = make_tar(cpu_subject, tmp_path / "dist")
    with tarfile.open(package) as file:
        file.extractall(tmp_path / "un packed", filter="data")
    (top,) = (tmp_path / "un packed").iterdir()
    assert sorted(path.name for path in top.iterdir()) == ["LICENSES", "MANIFEST.json", "README.txt", "bin"]
    assert ask_version(top / "bin" / "dgr-shard-worker") == cpu_subject.said


def test_the_packages_of_a_real_worker_are_the_same_twice(cpu_wheel, cpu_subject, tmp_path):
    assert make_wheel(cpu_subject, tmp_path / "again").read_bytes() == cpu_wheel.read_bytes()
    first, second = (make_tar(cpu_subject, tmp_path / name).read_bytes() for name in ("one", "two"))
    assert first == second


def test_the_worker_of_a_wheel_finds_the_libraries_of_its_requirements(vendor, tmp_path):
    subject, library = vendor
    wheel = make_wheel(subject, tmp_path)
    entered = _install(wheel, tmp_path / "venv")
    command = ["dgr-shard-worker", "serve", "two words"]
    alone = subprocess.run(command, env=entered, capture_output=True, text=True, check=False)
    assert library.name in alone.stderr
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    place = site / "nvidia" / "cu13" / "lib"
    place.mkdir(parents=True)
    (place / library.name).write_bytes(library.read_bytes())
    assert subprocess.run(command, env=entered, check=False).returncode == 7
    by_module = [tmp_path / "venv" / "bin" / "python", "-m", "dgr_worker_cuda", "serve", "two words"]
    assert subprocess.run(by_module, check=False).returncode == 7


def test_the_program_on_the_path_becomes_the_worker(vendor, tmp_path):
    subject, library = vendor
    entered = _install(make_wheel(subject, tmp_path), tmp_path / "venv")
    entered["LD_LIBRARY_PATH"] = str(library.parent)
    command = ["dgr-shard-worker", "--version"]
    with subprocess.Popen(command, env=entered, stdout=subprocess.PIPE, text=True) as process:
        assert json.loads(process.communicate()[0])["pid"] == process.pid


def test_the_tarball_finds_what_its_readme_has_installed_beside_it(vendor, tmp_path):
    subject, library = vendor
    package = make_tar(subject, tmp_path / "dist")
    with tarfile.open(package) as file:
        file.extractall(tmp_path / "here", filter="data")
    (top,) = (tmp_path / "here").iterdir()
    assert "--target . nvidia-cublas==13.1.1.3" in (top / "README.txt").read_text()
    place = tmp_path / "here" / "nvidia" / "cu13" / "lib"
    place.mkdir(parents=True)
    (place / library.name).write_bytes(library.read_bytes())
    worker = [top / "bin" / "dgr-shard-worker", "serve", "two words"]
    assert subprocess.run(worker, check=False).returncode == 7


def test_auditwheel_agrees_once_the_libraries_of_the_requirements_are_left_out(vendor, tmp_path):
    subject, library = vendor
    wheel = make_wheel(subject, tmp_path)
    seen = _audit(wheel)
    assert set(seen["external_libs"]) == {library.name}
    assert wheel.name.endswith(f"-py3-none-{seen['sym_tag']}.whl")


def test_a_vendor_library_that_nothing_brings_costs_the_manylinux_tag(vendor, tmp_path):
    subject, _ = vendor
    bare = Subject(**{**vars(subject), "requires": (), "provided": ()})
    wheel = make_wheel(bare, tmp_path)
    assert wheel.name.endswith(f"-py3-none-{_audit(wheel)['overall_tag']}.whl")
    assert "linux_" in wheel.name
    assert "manylinux" not in wheel.name
