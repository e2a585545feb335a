"""Overrides of a lane: where they come from, which one counts, what they may not touch."""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.documents.base import parse
from dgr_build.documents.matrix import Matrix, load_matrix
from dgr_build.errors import UsageError
from dgr_build.lanes.lane import choose
from dgr_build.lanes.overrides import Override, apply, collect, effective, settable

_FILE = Path(__file__).resolve().parents[2] / "lanes" / "matrix.toml"
_MATRIX = load_matrix(_FILE)


@pytest.fixture
def host_file(tmp_path):
    folder = tmp_path / ".dgr"
    folder.mkdir()
    return folder / "overrides.toml"


def _with_table(lane, values):
    data = tomllib.loads(_FILE.read_text())
    data["override"] = {lane: values}
    return parse(data, Matrix, "matrix.toml")


def _stated(matrix, lane, *stated):
    return collect(matrix, lane, host_file=Path("/nowhere/overrides.toml"), stated=stated)


def _refused(lane, *stated):
    with pytest.raises(UsageError) as caught:
        apply(_MATRIX, lane, _stated(_MATRIX, lane, *stated))
    assert caught.value.remedy
    return caught.value


@st.composite
def _choices(draw):
    """A lane with texts of KEY=VALUE that it takes, each key once."""
    lane = draw(st.sampled_from(sorted(_MATRIX.lane)))
    machine = _MATRIX.isa[_MATRIX.lane[lane].isa].machine
    values = {
        "isa": st.sampled_from([name for name, isa in _MATRIX.isa.items() if isa.machine == machine]),
        "environment": st.sampled_from(sorted(_MATRIX.environment)),
    }
    device = _MATRIX.lane[lane].device
    if device is not None and device.architectures_option is not None:
        names = st.lists(st.sampled_from(["90-real", "80-virtual", "gfx1100"]), min_size=1, unique=True)
        values["architectures"] = names.map(",".join)
    for name, value in settable(_MATRIX, lane).items():
        switch = st.sampled_from(["ON", "OFF", "on"])
        values[name] = switch if isinstance(value, bool) else st.sampled_from(["1", "2", "text with spaces"])
    keys = draw(st.lists(st.sampled_from(sorted(values)), unique=True))
    return lane, [f"{key}={draw(values[key])}" for key in keys]


def test_the_projects_own_overrides_apply():
    for lane in _MATRIX.lane:
        apply(_MATRIX, lane, _stated(_MATRIX, lane))


def test_the_command_line_outranks_the_host_which_outranks_the_matrix(host_file):
    matrix = _with_table("cpu", {"GGML_SCHED_MAX_COPIES": "1", "GGML_LTO": True})
    host_file.write_text('[override.cpu]\nGGML_SCHED_MAX_COPIES = "2"\nisa = "x86-64-v2"\n')
    overrides = collect(matrix, "cpu", host_file=host_file, stated=["GGML_SCHED_MAX_COPIES=3"])
    table, host = "lanes/matrix.toml [override.cpu]", ".dgr/overrides.toml [override.cpu]"
    assert overrides == (
        Override("GGML_LTO", "ON", table),
        Override("GGML_SCHED_MAX_COPIES", "1", table, overridden_by="--set"),
        Override("GGML_SCHED_MAX_COPIES", "2", host, overridden_by="--set"),
        Override("GGML_SCHED_MAX_COPIES", "3", "--set"),
        Override("isa", "x86-64-v2", host),
    )
    assert effective(overrides) == {"GGML_LTO": "ON", "GGML_SCHED_MAX_COPIES": "3", "isa": "x86-64-v2"}
    changed = apply(matrix, "cpu", overrides)
    assert changed.cmake_values("cpu")["GGML_SCHED_MAX_COPIES"] == "3"
    assert changed.cmake_values("cpu")["GGML_LTO"] is True
    assert changed.cmake_values("cpu")["GGML_AVX2"] is False


def test_the_host_file_outranks_the_matrix(host_file):
    matrix = _with_table("cpu", {"GGML_LTO": True})
    host_file.write_text("[override.cpu]\nGGML_LTO = false\n")
    overrides = collect(matrix, "cpu", host_file=host_file, stated=())
    assert apply(matrix, "cpu", overrides).cmake_values("cpu")["GGML_LTO"] is False


def test_overrides_of_another_lane_are_not_collected(host_file):
    host_file.write_text("[override.cuda]\nGGML_LTO = true\n")
    assert collect(_with_table("rocm", {"GGML_LTO": True}), "cpu", host_file=host_file, stated=()) == ()


def test_nothing_asked_for_is_nothing_changed():
    assert apply(_MATRIX, "cpu", ()) is _MATRIX


@given(_choices())
def test_other_lanes_stay_as_they_are(choice):
    lane, stated = choice
    changed = apply(_MATRIX, lane, _stated(_MATRIX, lane, *stated))
    for name in _MATRIX.lane:
        if name != lane:
            assert changed.lane[name] == _MATRIX.lane[name]
            assert changed.cmake_values(name) == _MATRIX.cmake_values(name)
    assert changed.model_copy(update={"lane": _MATRIX.lane}) == _MATRIX


@given(_choices(), st.randoms(use_true_random=False))
def test_the_order_on_the_command_line_does_not_matter(choice, random):
    lane, stated = choice
    mixed = random.sample(stated, len(stated))
    assert _stated(_MATRIX, lane, *mixed) == _stated(_MATRIX, lane, *stated)


@given(_choices())
def test_every_value_that_counts_arrives(choice):
    lane, stated = choice
    overrides = _stated(_MATRIX, lane, *stated)
    changed = apply(_MATRIX, lane, overrides)
    for key, value in effective(overrides).items():
        if key == "architectures":
            assert changed.lane[lane].architectures == tuple(value.split(","))
        elif key in {"isa", "environment"}:
            assert getattr(changed.lane[lane], key) == value
        else:
            before, now = _MATRIX.cmake_values(lane)[key], changed.cmake_values(lane)[key]
            assert type(now) is type(before)
            assert now == (value.upper() == "ON" if isinstance(before, bool) else value)


def test_a_changed_matrix_is_still_a_valid_one():
    for lane in _MATRIX.lane:
        stated = [
            f"{name}={('OFF' if value else 'ON') if isinstance(value, bool) else value}"
            for name, value in settable(_MATRIX, lane).items()
        ]
        changed = apply(_MATRIX, lane, _stated(_MATRIX, lane, *stated))
        assert parse(changed.model_dump(by_alias=True), Matrix, "changed") == changed


def test_architectures_reach_the_option_that_takes_them():
    changed = apply(_MATRIX, "cuda", _stated(_MATRIX, "cuda", "architectures=80-virtual, 90-real"))
    assert changed.cmake_values("cuda")["CMAKE_CUDA_ARCHITECTURES"] == "80-virtual;90-real"


@pytest.mark.parametrize(
    ("lane", "stated"),
    [
        ("cpu", "GGML_NATIVE=ON"),
        ("cpu", "BUILD_SHARED_LIBS=ON"),
        ("cpu", "GGML_BACKEND_DL=ON"),
        ("cpu", "GGML_CCACHE=ON"),
        ("cpu", "GGML_OPENMP_FETCH=ON"),
        ("cpu", "GGML_CPU_KLEIDIAI=ON"),
        ("cuda", "GGML_CUDA_CUB_3DOT2=ON"),
        ("cpu", "LLAMA_LLGUIDANCE=ON"),
        ("cpu", "LLAMA_USE_PREBUILT_UI=ON"),
        ("cpu", "GIT_EXE=/usr/bin/git"),
        ("cpu", "LLAMA_BUILD_COMMIT=0"),
        ("cpu", "LLAMA_BUILD_TESTS=ON"),
        ("cpu", "GGML_VULKAN=ON"),
        ("cpu", "DGR_LANE_DIGEST=0"),
        ("cpu", "GGML_AVX512=ON"),
        ("cpu", "CMAKE_BUILD_TYPE=Debug"),
        ("cuda", "CMAKE_CUDA_ARCHITECTURES=90"),
    ],
)
def test_what_the_project_promises_is_not_to_be_overridden(lane, stated):
    error = _refused(lane, stated)
    assert stated.partition("=")[0] in error.message
    assert error.cause
    assert "there is no" not in error.cause


def test_what_is_outranked_is_checked_as_well():
    matrix = _with_table("cpu", {"GGML_NATIVE": True})
    with pytest.raises(UsageError):
        apply(matrix, "cpu", _stated(matrix, "cpu", "GGML_NATIVE=OFF"))


def test_every_fixed_option_is_one_that_some_lane_states():
    stated = {option for lane in _MATRIX.lane for option in _MATRIX.cmake_values(lane)} | {"DGR_LANE"}
    fixed = _MATRIX.defaults.fixed_options
    assert [pattern for pattern in fixed if not any(fnmatchcase(option, pattern) for option in stated)] == []


@pytest.mark.parametrize("key", ["GGML_LT0", "ggml_lto", "GGML_TLO"])
def test_an_unknown_option_names_those_near_it_and_where_to_look(key):
    error = _refused("cpu", f"{key}=ON")
    assert "GGML_LTO" in error.cause
    assert "lane cpu --dry-run" in error.remedy


def test_an_option_of_another_lane_is_unknown():
    assert "GGML_CUDA_FA" in _refused("cpu", "GGML_CUDA_FA=OFF").message


@pytest.mark.parametrize(
    ("lane", "stated", "remedy"),
    [
        ("cpu", "isa=x86-64-v9", "x86-64-v2"),
        ("cpu", "isa=apple-m1", "x86-64-v2"),
        ("cpu", "environment=nowhere", "trixie"),
        ("cpu", "architectures=90-real", "isa"),
        ("vulkan", "architectures=spirv", "isa"),
        ("cuda", "architectures=", "doctor"),
        ("cuda", "architectures=90-real,90-real", "doctor"),
        ("cuda", "architectures=90-real;80", "doctor"),
        ("cpu", "GGML_LTO=yes", "GGML_LTO=ON"),
        ("cpu", "GGML_SCHED_MAX_COPIES=${source}", "write"),
        ("cpu", "GGML_SCHED_MAX_COPIES=1\n2", "write"),
        ("cpu", "GGML_LTO", "GGML_LTO=ON"),
        ("cpu", "=ON", "GGML_LTO=ON"),
    ],
)
def test_a_value_that_does_not_fit_says_what_does(lane, stated, remedy):
    assert remedy in _refused(lane, stated).remedy


def test_two_values_for_a_key_on_the_command_line_are_refused():
    assert "GGML_LTO" in _refused("cpu", "GGML_LTO=ON", "GGML_LTO=OFF").message
    assert len(_stated(_MATRIX, "cpu", "GGML_LTO=ON", "GGML_LTO=ON")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[override.cup]\nGGML_LTO = true\n",
        "[overide.cpu]\nGGML_LTO = true\n",
        "[override.cpu]\nGGML_LTO = 1\n",
    ],
)
def test_a_host_file_with_a_slip_is_refused(host_file, text):
    host_file.write_text(text)
    with pytest.raises(UsageError) as caught:
        collect(_MATRIX, "cpu", host_file=host_file, stated=())
    assert "overrides.toml" in caught.value.remedy


def test_a_line_says_what_from_where_and_what_outranks_it():
    assert Override("isa", "x86-64-v2", "--set").line == "isa=x86-64-v2 (--set)"
    assert "--set" in Override("isa", "a", "lanes/matrix.toml", overridden_by="--set").line


def test_a_lane_as_it_is_typed_asks_for_what_counts_and_nothing_else(host_file):
    host_file.write_text('[override.cpu]\nisa = "x86-64-v2"\nGGML_LTO = true\n')
    chosen = choose(_MATRIX, "cpu", profile=None, host_file=host_file, stated=("isa=x86-64-v4",))
    name, *typed = chosen.words
    assert typed[::2] == ["--set", "--set"]
    again = choose(_MATRIX, name, profile=None, host_file=Path("/nowhere/x.toml"), stated=typed[1::2])
    assert again.lane == chosen.lane
