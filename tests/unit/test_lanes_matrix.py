"""The lane matrix as a document, and what the one of this project says."""

import tomllib
from pathlib import Path

import pytest

from dgr_build.documents.base import parse
from dgr_build.documents.matrix import Matrix, load_matrix
from dgr_build.errors import UsageError

_ROOT = Path(__file__).resolve().parents[2]
_FILE = _ROOT / "lanes" / "matrix.toml"

# Every option of the pinned ggml/CMakeLists.txt that selects x86 instructions; an integration test compares
# this list with the file itself.
X86_OPTIONS = {
    "GGML_SSE42",
    "GGML_AVX",
    "GGML_AVX_VNNI",
    "GGML_AVX2",
    "GGML_BMI2",
    "GGML_AVX512",
    "GGML_AVX512_VBMI",
    "GGML_AVX512_VNNI",
    "GGML_AVX512_BF16",
    "GGML_FMA",
    "GGML_F16C",
    "GGML_AMX_TILE",
    "GGML_AMX_INT8",
    "GGML_AMX_BF16",
}
_FETCHERS = ("GGML_OPENMP_FETCH", "GGML_CPU_KLEIDIAI", "LLAMA_LLGUIDANCE", "LLAMA_USE_PREBUILT_UI")
_SWITCHED_OFF = (
    "BUILD_SHARED_LIBS",
    "GGML_BACKEND_DL",
    "GGML_NATIVE",
    "GGML_CCACHE",
    "GGML_OPENMP",
    "LLAMA_BUILD_COMMON",
    "LLAMA_BUILD_TOOLS",
    "LLAMA_BUILD_TESTS",
    "LLAMA_BUILD_EXAMPLES",
    "LLAMA_BUILD_SERVER",
    "LLAMA_BUILD_UI",
    "LLAMA_BUILD_APP",
    "LLAMA_OPENSSL",
)


@pytest.fixture
def data():
    """The project's matrix as plain data, to be spoilt."""
    return tomllib.loads(_FILE.read_text())


def _refused(data):
    with pytest.raises(UsageError) as caught:
        parse(data, Matrix, "matrix.toml")
    assert caught.value.remedy
    return caught.value.cause


def test_all_lanes_are_stated_and_none_claims_more_than_it_was_exercised_on():
    lanes = load_matrix(_FILE).lane
    exercised = {
        "cpu": "hardware",
        "cpu-aarch64": "nothing",
        "cuda": "compiled",
        "rocm": "compiled",
        "vulkan": "software device",
        "metal": "nothing",
    }
    assert {name: lanes[name].exercised for name in exercised} == exercised  # there may be others


@pytest.mark.parametrize("lane", ["cpu", "cuda", "rocm", "vulkan", "metal"])
def test_every_lane_switches_fetchers_native_code_and_upstream_extras_off(lane):
    values = load_matrix(_FILE).cmake_values(lane)
    assert [name for name in (*_SWITCHED_OFF, *_FETCHERS) if values[name] is not False] == []
    assert values["GGML_LLAMAFILE"] is True
    assert values["GGML_CPU_REPACK"] is True
    assert values["GIT_EXE"] == ""


def test_cuda_does_not_fetch_either():
    assert load_matrix(_FILE).cmake_values("cuda")["GGML_CUDA_CUB_3DOT2"] is False


def test_every_x86_instruction_set_states_every_option_of_upstream():
    matrix = load_matrix(_FILE)
    stated = {name: set(isa.cmake) for name, isa in matrix.isa.items() if isa.machine == "x86_64"}
    assert stated
    assert {name: X86_OPTIONS ^ options for name, options in stated.items()} == {
        name: set() for name in stated
    }


def test_x86_64_v3_has_neither_avx512_nor_amx():
    options = load_matrix(_FILE).isa["x86-64-v3"].cmake
    on = {name for name, value in options.items() if value}
    assert on == {"GGML_SSE42", "GGML_AVX", "GGML_AVX2", "GGML_FMA", "GGML_F16C", "GGML_BMI2"}


def test_no_lane_is_called_list(data):
    data["lane"]["list"] = data["lane"]["cpu"]
    assert "lane.list" in _refused(data)


@pytest.mark.parametrize("name", ["CPU", "cpu_2", "-cpu", "", "a" * 40])
def test_a_lane_name_that_would_trouble_a_path_or_a_command_is_refused(data, name):
    data["lane"][name] = data["lane"]["cpu"]
    assert "lane" in _refused(data)


@pytest.mark.parametrize("kind", ["environment", "isa"])
def test_a_reference_to_nothing_names_lane_and_field(data, kind):
    data["lane"]["cpu"][kind] = "nowhere"
    assert f"lane.cpu.{kind}" in _refused(data)


def test_a_misspelt_field_is_named(data):
    data["lane"]["cpu"]["must_contian"] = ["CPU"]
    assert "lane.cpu.must_contian" in _refused(data)


def test_an_option_stated_by_lane_and_instruction_set_is_refused(data):
    data["lane"]["cpu"]["cmake"] = {"GGML_AVX512": True}
    assert "GGML_AVX512" in _refused(data)


def test_an_instruction_set_option_among_the_defaults_is_refused(data):
    data["defaults"]["cmake"]["GGML_AVX"] = True
    assert "GGML_AVX" in _refused(data)


@pytest.mark.parametrize("flag", ["-march=native", "-mcpu=native", "-mtune=native"])
def test_flags_that_mean_this_machine_are_refused(data, flag):
    data["isa"]["x86-64-v3"]["compiler_flags"].append(flag)
    assert "isa.x86-64-v3.compiler_flags" in _refused(data)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"pattern": "("}, "pattern"),
        ({"pattern": "no group"}, "pattern"),
        ({"pattern": ""}, "minimum"),
        ({"any_program": []}, "any_program"),
        ({"any_file": ["/dev/null"]}, "any_file"),
        ({"minimum": "new"}, "minimum"),
        ({"remedy": ""}, "remedy"),
    ],
)
def test_a_requirement_that_cannot_be_checked_is_refused(data, change, field):
    data["lane"]["cpu"]["requires"][0].update(change)
    cause = _refused(data)
    assert "lane.cpu.requires.0" in cause
    assert field in cause


@pytest.mark.parametrize(
    ("environment", "field"), [("host", "path"), ("trixie", "suite"), ("cuda-wheels", "wheels")]
)
def test_an_environment_states_what_its_kind_needs(data, environment, field):
    del data["environment"][environment][field]
    assert field in _refused(data)


def test_an_unknown_lane_says_which_there_are():
    with pytest.raises(UsageError) as caught:
        load_matrix(_FILE).find("gpu")
    assert "cuda" in caught.value.cause
    assert "lane list" in caught.value.remedy
