"""What works with what: host compilers and architectures of CUDA toolkits, targets of HIP, glslc."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.documents.compatibility import Compatibility, load_compatibility
from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import UsageError
from dgr_build.lanes.compatibility import (
    check_cuda_architectures,
    check_hip,
    check_host_compiler,
    toolkit_version,
)
from dgr_build.lanes.doctor import refuse

_FILE = Path(__file__).resolve().parents[2] / "lanes" / "compatibility.toml"
_TABLE = load_compatibility(_FILE)
_MATRIX = load_matrix(_FILE.with_name("matrix.toml"))


@pytest.mark.parametrize("form", ["90", "90-real", "90-virtual", "90a-real"])
def test_real_and_virtual_architectures_of_a_toolkit_are_known(form):
    assert check_cuda_architectures("13.0.88", [form]).met


def test_dropped_architectures_are_listed_with_the_last_toolkit_that_has_them():
    found = check_cuda_architectures("13.0", ["60-real", "70-virtual", "90-real"])
    assert not found.met
    assert "60-real" in found.note
    assert "70-virtual" in found.note
    assert "90" not in found.note
    assert "CUDA 12.9" in found.remedy


def test_an_architecture_that_came_later_is_given_its_first_toolkit():
    found = check_cuda_architectures("12.4", ["120-real"])
    assert not found.met
    assert "CUDA 12.8" in found.remedy


def test_an_architecture_that_nothing_has_is_to_be_left_out():
    found = check_cuda_architectures("13.0", ["42-real"])
    assert not found.met
    assert "leave 42-real out" in found.remedy


def test_a_refused_architecture_is_an_error_of_the_host_with_the_toolkit_to_take():
    error = refuse("cuda", [check_cuda_architectures("13.0", ["70-real"])])
    assert "70-real" in error.cause
    assert "12.9" in error.remedy


@pytest.mark.parametrize(
    ("toolkit", "compiler", "accepted", "refused", "package"),
    [
        ("12.4", "g++", "13.2.0", "14.1.0", "g++-13"),
        ("12.8", "g++", "14.2.0", "15.1.0", "g++-14"),
        ("13.0", "g++", "15.1.0", "16.0.0", "g++-15"),
        ("12.6", "clang++", "18.1.0", "19.1.0", "clang-18"),
        ("13.0", "clang++", "20.1.0", "21.0.0", "clang-20"),
    ],
)
def test_a_host_compiler_that_is_too_new_for_nvcc_is_named_with_the_package_to_take(
    toolkit, compiler, accepted, refused, package
):
    assert check_host_compiler(toolkit, compiler, accepted).met
    found = check_host_compiler(toolkit, compiler, refused)
    assert not found.met
    assert f"apt-get install {package}" in found.remedy
    assert "CMAKE_CUDA_HOST_COMPILER=" in found.remedy


def test_a_fitting_compiler_that_is_here_needs_no_package():
    found = check_host_compiler("12.4", "g++", "14.1.0", ["/opt/bin/g++-12"])
    assert "apt-get" not in found.remedy
    assert "CMAKE_CUDA_HOST_COMPILER=/opt/bin/g++-12" in found.remedy


def test_a_toolkit_that_is_not_in_the_table_is_not_judged_and_says_so():
    for found in (check_host_compiler("14.7", "g++", "99"), check_cuda_architectures("14.7", ["90"])):
        assert found.met
        assert "not judged" in found.note


@given(st.sampled_from(_TABLE.cuda), st.integers(1, 40))
def test_a_host_compiler_is_refused_exactly_above_the_highest(toolkit, major):
    assert check_host_compiler(toolkit.version, "g++", f"{major}.1.0").met == (major <= toolkit.gcc)
    assert check_host_compiler(toolkit.version, "clang++", f"{major}.0").met == (major <= toolkit.clang)


@given(
    st.sampled_from(_TABLE.cuda), st.sampled_from(sorted({a for t in _TABLE.cuda for a in t.architectures}))
)
def test_the_toolkit_that_a_remedy_names_makes_code_for_the_architecture(toolkit, architecture):
    found = check_cuda_architectures(toolkit.version, [architecture])
    assert found.met == (architecture in toolkit.architectures)
    if not found.met:
        named = [one for one in _TABLE.cuda if f"CUDA {one.version}" in found.remedy]
        assert named
        assert all(architecture in one.architectures for one in named)


@pytest.mark.parametrize(
    ("version", "targets", "met", "needed"),
    [
        ("5.7", ["gfx1100"], False, "6.1"),
        ("6.1", ["gfx90a", "gfx942", "gfx1100"], True, ""),
        ("6.1", ["gfx1201"], False, "6.3"),
        ("5.2", ["gfx1201"], False, "6.3"),
        ("6.4.43484", ["gfx1100", "gfx1201"], True, ""),
        ("6.4.0", ["gfx90a:xnack-"], True, ""),
    ],
)
def test_hip_is_judged_by_llama_cpp_and_by_its_targets(version, targets, met, needed):
    found = check_hip(version, targets)
    assert found.met == met
    assert needed in found.remedy


def test_an_unknown_gpu_target_is_told_and_refuses_nothing():
    found = check_hip("6.4", ["gfx1999"])
    assert found.met
    assert "gfx1999" in found.note


def test_the_toolkit_is_told_from_the_wheels_of_the_lane():
    assert toolkit_version(["nvidia-cublas==13.1.1.3", "nvidia-cuda-nvcc==13.0.88"]) == "13.0"
    assert toolkit_version(["nvidia-cuda-nvcc-cu12==12.8.93"]) == "12.8"
    assert toolkit_version(["numpy==2.0"]) is None


def test_the_lanes_of_the_matrix_stand_in_the_table():
    for name, lane in _MATRIX.lane.items():
        assert lane.backend in _TABLE.resources, name
        minima = {needed.name: needed.minimum for needed in lane.requires}
        if lane.backend == "cuda":
            version = toolkit_version(_MATRIX.environment[lane.environment].wheels)
            assert version in {toolkit.version for toolkit in _TABLE.cuda}
        assert minima.get("HIP compiler", _TABLE.hip.minimum) == _TABLE.hip.minimum


def test_toolkits_out_of_order_are_refused_by_name():
    data = json.loads(_TABLE.model_dump_json(by_alias=True))
    data["cuda"].reverse()
    with pytest.raises(ValueError, match="ascend"):
        Compatibility.model_validate(data)


def test_a_typo_in_the_table_names_file_and_field(tmp_path):
    file = tmp_path / "compatibility.toml"
    file.write_text(_FILE.read_text().replace("gcc = 15", "gccc = 15"))
    with pytest.raises(UsageError) as caught:
        load_compatibility(file)
    assert "gccc" in caught.value.cause
