"""What a lane needs of a machine, looked for with fake programs; lanes that are planned say so and why."""

import json
import platform
from pathlib import Path

import pytest

from dgr_build.cli.main import run
from dgr_build.documents.matrix import Environment, InstructionSet, load_matrix
from dgr_build.errors import HostError
from dgr_build.lanes.doctor import examine, missing_cpu_flags, require_cpu
from dgr_build.lanes.toolchain import find_toolchain, version_numbers

_ROOT = Path(__file__).resolve().parents[2]
_V3 = "sse4_2 avx avx2 fma f16c bmi2"


@pytest.fixture
def bin_folder(tmp_path, monkeypatch):
    """An empty folder that is the whole PATH of the caller."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _program(folder, name, output, code=0):
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
    file.chmod(0o755)
    return file


def _matrix(folder, lane):
    """The project's matrix, where the lane's environment searches one folder only."""
    matrix = load_matrix(_ROOT / "lanes" / "matrix.toml")
    name = matrix.lane[lane].environment
    environment = matrix.environment[name].model_copy(update={"path": (str(folder),)})
    return matrix.model_copy(update={"environment": {**matrix.environment, name: environment}})


def _finding(findings, name):
    return next(finding for finding in findings if finding.name == name)


@pytest.mark.parametrize(
    ("lane", "looked_for", "new", "old"),
    [
        ("cuda", ("CUDA compiler", "nvcc"), "Cuda compilation tools, release 13.0, V13.0.88", "release 12.4"),
        ("rocm", ("HIP compiler", "hipcc"), "HIP version: 6.4.43484-0", "HIP version: 5.2.21153-0"),
        ("vulkan", ("shader compiler", "glslc"), "shaderc v2025.2 v2025.2", "shaderc v2023.2 v2023.2"),
        ("metal", ("Xcode command line tools", "xcrun"), "15.2", "13.3"),
        ("cpu", ("C++17 compiler", "g++"), "12.2.0", "10.2.1"),
    ],
)
def test_programs_are_judged_by_the_version_they_state(bin_folder, lane, looked_for, new, old):
    name, program = looked_for
    matrix = _matrix(bin_folder, lane)
    assert not _finding(examine(matrix, lane), name).met
    _program(bin_folder, program, old)
    stale = _finding(examine(matrix, lane), name)
    assert not stale.met
    assert program in stale.found
    _program(bin_folder, program, new)
    assert _finding(examine(matrix, lane), name).met


def test_a_program_that_states_no_version_does_not_do(bin_folder):
    _program(bin_folder, "glslc", "hello")
    assert not _finding(examine(_matrix(bin_folder, "vulkan"), "vulkan"), "shader compiler").met


def test_a_compiler_without_its_library_is_told_apart_from_a_whole_toolkit(bin_folder):
    _program(bin_folder, "nvcc", "release 13.0")
    matrix = _matrix(bin_folder, "cuda")
    assert not _finding(examine(matrix, "cuda"), "cuBLAS beside the compiler").met
    (bin_folder.parent / "lib64").mkdir()
    (bin_folder.parent / "lib64" / "libcublas.so").touch()
    assert _finding(examine(matrix, "cuda"), "cuBLAS beside the compiler").met


@pytest.mark.parametrize("lane", ["cuda", "rocm", "vulkan", "metal"])
def test_a_planned_lane_ends_with_3_and_lists_what_it_needs(bin_folder, isolated, capsys, lane):
    assert run(["lane", lane, "--json"]) == 3
    error = json.loads(capsys.readouterr().out)
    assert error["error"] == "host"
    matrix = load_matrix(_ROOT / "lanes" / "matrix.toml")
    assert [r.name for r in matrix.lane[lane].requires if r.name not in error["cause"]] == []
    assert error["remedy"]
    assert not (isolated / "workspace").exists()


def test_a_planned_lane_says_what_is_found_and_not_a_fixed_text(bin_folder, isolated, capsys):
    run(["lane", "vulkan", "--json"])
    before = json.loads(capsys.readouterr().out)
    _program(bin_folder, "glslc", "shaderc v2023.2")
    run(["lane", "vulkan", "--json"])
    after = json.loads(capsys.readouterr().out)
    assert before["cause"] != after["cause"]
    assert "2023.2" in after["cause"]


def test_the_list_shows_every_lane_with_its_state_here(isolated, capsys):
    assert run(["lane", "list", "--json"]) == 0
    states = {state["name"]: state["status"] for state in json.loads(capsys.readouterr().out)}
    assert list(states) == ["cpu", "cuda", "rocm", "vulkan", "metal"]
    assert states["metal"].startswith("planned; lacks operating system") or platform.system() == "Darwin"


def test_the_dry_run_of_a_planned_lane_shows_its_values_and_no_digest(isolated, capsys):
    assert run(["lane", "cuda", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["digest"] is None
    assert plan["values"]["CMAKE_CUDA_ARCHITECTURES"] == "90-real"
    assert not (isolated / "workspace").exists()


@pytest.mark.parametrize(
    ("arguments", "code"), [(["lane", "gpu"], 2), (["lane", "cpu", "--only", "dance"], 2)]
)
def test_what_does_not_exist_is_a_usage_error(isolated, arguments, code):
    assert run(arguments) == code


def _isa(flags=_V3, machine=None):
    return InstructionSet(
        machine=machine or platform.machine(), cpu_flags=tuple(flags.split()), compiler_flags=(), cmake={}
    )


def _cpuinfo(tmp_path, flags):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\nprocessor\t: 1\nflags\t\t: fpu {flags}\n")
    return file


def test_a_processor_that_has_every_flag_may_run_the_lane(tmp_path):
    require_cpu("x86-64-v3", _isa(), _cpuinfo(tmp_path, _V3 + " avx512f"))


@pytest.mark.parametrize("lacking", _V3.split())
def test_a_processor_that_lacks_a_flag_is_refused_before_anything_runs(tmp_path, lacking):
    flags = " ".join(flag for flag in _V3.split() if flag != lacking)
    with pytest.raises(HostError) as caught:
        require_cpu("x86-64-v3", _isa(), _cpuinfo(tmp_path, flags))
    assert lacking in caught.value.cause
    assert "--only build" in caught.value.remedy


def test_a_flag_that_is_part_of_a_longer_one_does_not_count(tmp_path):
    assert missing_cpu_flags(_isa("avx"), _cpuinfo(tmp_path, "avx2 avx_vnni")) == ("avx",)


def test_another_family_of_processors_is_refused(tmp_path):
    assert missing_cpu_flags(_isa(machine="vax"), _cpuinfo(tmp_path, _V3))


def test_a_processor_that_lacks_a_flag_does_not_keep_the_lane_from_being_built(bin_folder, monkeypatch):
    matrix = _matrix(bin_folder, "cpu")
    isa = matrix.isa["x86-64-v3"].model_copy(update={"cpu_flags": ("no_such_flag",)})
    findings = examine(matrix.model_copy(update={"isa": {**matrix.isa, "x86-64-v3": isa}}), "cpu")
    processor = _finding(findings, "processor")
    assert not processor.met
    assert processor.for_running


def _environment(folder, **bounds):
    return Environment(kind="host", summary="x", path=(str(folder),), **bounds)


def _compilers(folder, gcc=None, clang=None):
    _program(folder, "ld", "GNU ld 2.40")
    for cxx, c, version in (("g++", "gcc", gcc), ("clang++", "clang", clang)):
        if version:
            _program(folder, cxx, version)
            _program(folder, c, version)


def test_gcc_is_taken_when_it_is_new_enough(bin_folder):
    _compilers(bin_folder, gcc="12.2.0", clang="16.0.0")
    assert find_toolchain(_environment(bin_folder, gcc="11", clang="14")).cxx.path == bin_folder / "g++"


def test_clang_is_taken_when_gcc_is_too_old(bin_folder):
    _compilers(bin_folder, gcc="10.4.0", clang="16.0.0")
    tools = find_toolchain(_environment(bin_folder, gcc="11", clang="14"))
    assert tools.cxx.path == bin_folder / "clang++"
    assert tools.c.path == bin_folder / "clang"


def test_without_a_compiler_that_will_do_everything_tried_is_named(bin_folder):
    _compilers(bin_folder, gcc="10.4.0")
    with pytest.raises(HostError) as caught:
        find_toolchain(_environment(bin_folder, gcc="11", clang="14"))
    assert "10.4.0" in caught.value.cause
    assert "clang++" in caught.value.cause
    assert "apt-get install" in caught.value.remedy


def test_a_c_plus_plus_compiler_without_its_c_compiler_does_not_do(bin_folder):
    _program(bin_folder, "g++", "12.2.0")
    with pytest.raises(HostError) as caught:
        find_toolchain(_environment(bin_folder, gcc="11"))
    assert "no gcc" in caught.value.cause


def test_versions_compare_as_numbers():
    assert version_numbers("2025.10") > version_numbers("2025.9")
    assert version_numbers("11") <= version_numbers("11.2.0")
