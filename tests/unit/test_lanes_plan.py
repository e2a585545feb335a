"""The rendered plan: every input reaches the digest, nothing of this machine's paths or environment does."""

import dataclasses
import json
from pathlib import Path

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.lanes.archives import sha256_file
from dgr_build.lanes.environment.made import Made
from dgr_build.lanes.plan import Inputs, Places, SourceFacts, render
from dgr_build.lanes.toolchain import Program, Toolchain

_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = SourceFacts(
    commit="1" * 40,
    base_tree="2" * 40,
    patched_tree="3" * 40,
    upstream_build=11312,
    version="0.5.0-dev",
    epoch=1_790_812_800,
)


def _program(name):
    return Program(path=Path(f"/usr/bin/{name}"), version=f"{name} 12.2.0")


_TOOLCHAIN = Toolchain(
    made=Made(name="host", kind="host", digest="4" * 64),
    cmake=_program("cmake"),
    ninja=_program("ninja"),
    c=_program("gcc"),
    cxx=_program("g++"),
    linker=_program("ld"),
    target="x86_64-linux-gnu",
    libc="glibc 2.36",
    path=("/usr/bin", "/bin"),
)


@pytest.fixture
def matrix():
    return load_matrix(_ROOT / "lanes" / "matrix.toml")


@pytest.fixture
def native(tmp_path):
    """A small folder of C++ sources with recipes and a lock."""
    folder = tmp_path / "native"
    for inner in ("conan", "reference"):
        (folder / inner).mkdir(parents=True)
    for name in ("main.cpp", "conan.lock", "conan/recipe.py", "reference/main.cpp"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def archive(tmp_path):
    file = tmp_path / "libgrpc.a"
    file.write_bytes(b"!<arch>\n")
    return file


@pytest.fixture
def inputs(native, archive):
    return Inputs(
        source=_SOURCE, toolchain=_TOOLCHAIN, native=native, archives={archive.name: sha256_file(archive)}
    )


def _with_tool(inputs, role):
    changed = dataclasses.replace(getattr(_TOOLCHAIN, role), version="another")
    return dataclasses.replace(inputs, toolchain=dataclasses.replace(_TOOLCHAIN, **{role: changed}))


def _changed_matrix(matrix, **defaults):
    return matrix.model_copy(update={"defaults": matrix.defaults.model_copy(update=defaults)})


def test_equal_inputs_give_equal_digests(matrix, inputs):
    assert render(matrix, "cpu", inputs).digest == render(matrix, "cpu", inputs).digest


@pytest.mark.parametrize("role", ["cmake", "ninja", "c", "cxx", "linker"])
def test_the_version_of_every_tool_changes_the_digest(matrix, inputs, role):
    other = render(matrix, "cpu", _with_tool(inputs, role))
    assert other.digest != render(matrix, "cpu", inputs).digest
    assert other.family != render(matrix, "cpu", inputs).family


@pytest.mark.parametrize(
    "change",
    [
        {"made": Made(name="host", kind="host", digest="5" * 64)},
        {"libc": "glibc 2.41"},
        {"target": "aarch64-linux-gnu"},
        {"device": _program("nvcc")},
    ],
    ids=["environment", "libc", "target", "device"],
)
def test_the_environment_and_its_device_compiler_change_the_digest(matrix, inputs, change):
    other = dataclasses.replace(inputs, toolchain=dataclasses.replace(_TOOLCHAIN, **change))
    assert render(matrix, "cpu", other).digest != render(matrix, "cpu", inputs).digest
    assert render(matrix, "cpu", other).family != render(matrix, "cpu", inputs).family


def test_an_override_changes_the_digest_though_the_value_is_the_same(matrix, inputs):
    other = dataclasses.replace(inputs, overrides={"GGML_LTO": "OFF"})
    assert render(matrix, "cpu", other).values == render(matrix, "cpu", inputs).values
    assert render(matrix, "cpu", other).digest != render(matrix, "cpu", inputs).digest


def test_a_profile_changes_only_what_device_code_is_made_for(matrix, inputs):
    whole = render(matrix, "cuda", inputs)
    quick = render(matrix.with_profile("cuda", "quick"), "cuda", inputs)
    assert quick.architectures == ("90-real",)
    assert quick.values["CMAKE_CUDA_ARCHITECTURES"] == "90-real"
    changed = {name for name in whole.values if whole.values[name] != quick.values[name]}
    assert changed == {"CMAKE_CUDA_ARCHITECTURES"}
    assert quick.digest != whole.digest


@pytest.mark.parametrize(
    "change", [{"commit": "f" * 40}, {"base_tree": "f" * 40}, {"patched_tree": "f" * 40}, {"epoch": 1}]
)
def test_everything_about_the_source_changes_the_digest(matrix, inputs, change):
    other = dataclasses.replace(inputs, source=dataclasses.replace(_SOURCE, **change))
    assert render(matrix, "cpu", other).digest != render(matrix, "cpu", inputs).digest


@pytest.mark.parametrize("name", ["main.cpp", "conan.lock", "conan/recipe.py"])
def test_sources_recipes_and_lock_change_the_digest(matrix, inputs, name):
    before = render(matrix, "cpu", inputs).digest
    (inputs.native / name).write_text("other")
    assert render(matrix, "cpu", inputs).digest != before


def test_the_bytes_of_a_linked_archive_change_the_digest(matrix, inputs, archive):
    before = render(matrix, "cpu", inputs).digest
    archive.write_bytes(b"!<arch>\nother")
    changed = dataclasses.replace(inputs, archives={archive.name: sha256_file(archive)})
    assert render(matrix, "cpu", changed).digest != before


def test_a_cmake_value_and_a_variable_change_the_digest(matrix, inputs):
    before = render(matrix, "cpu", inputs)
    value = _changed_matrix(matrix, cmake={**matrix.defaults.cmake, "GGML_LTO": True})
    variable = _changed_matrix(matrix, set_environment={"LC_ALL": "C"})
    passed = _changed_matrix(matrix, pass_environment=())
    assert len({before.digest, *(render(m, "cpu", inputs).digest for m in (value, variable, passed))}) == 4


def test_another_instruction_set_changes_the_digest(matrix, inputs):
    isa = matrix.isa["x86-64-v3"]
    other = isa.model_copy(update={"cmake": {**isa.cmake, "GGML_AVX512": True}})
    changed = matrix.model_copy(update={"isa": {**matrix.isa, "x86-64-v3": other}})
    assert render(changed, "cpu", inputs).digest != render(matrix, "cpu", inputs).digest


def test_unrelated_variables_of_the_caller_do_not_change_the_digest(matrix, inputs, monkeypatch):
    before = render(matrix, "cpu", inputs).digest
    for name in ("CFLAGS", "CXXFLAGS", "CPATH", "LD_LIBRARY_PATH", "CC", "SOURCE_DATE_EPOCH", "PATH", "LANG"):
        monkeypatch.setenv(name, "/somewhere/else")
    assert render(matrix, "cpu", inputs).digest == before


def test_another_lane_of_the_matrix_does_not_change_the_digest(matrix, inputs):
    before = render(matrix, "cpu", inputs).digest
    lanes = {name: lane for name, lane in matrix.lane.items() if name == "cpu"}
    assert render(matrix.model_copy(update={"lane": lanes}), "cpu", inputs).digest == before


def test_two_clones_have_the_same_plan_and_different_arguments(matrix, inputs):
    plan = render(matrix, "cpu", inputs)
    assert str(inputs.native) not in json.dumps(plan.to_json())
    one, two = (
        plan.arguments(
            Places(project=at / "native", source=at / "src", build=at / "b"), _TOOLCHAIN, launcher=None
        )
        for at in (Path("/one"), Path("/two and a space"))
    )
    assert one != two
    assert f"-DDGR_LANE_DIGEST:STRING={plan.digest}" in one
    assert "-DDGR_LLAMA_SOURCE:PATH=/two and a space/src" in two
    assert [argument for argument in two if "${" in argument] == []


def test_the_cache_launcher_is_ours_or_stated_empty(matrix, inputs):
    plan = render(matrix, "cpu", inputs)
    places = Places(project=Path("/p"), source=Path("/s"), build=Path("/b"))
    with_cache = plan.arguments(places, _TOOLCHAIN, launcher=Path("/usr/bin/ccache"))
    without = plan.arguments(places, _TOOLCHAIN, launcher=None)
    assert "-DCMAKE_CXX_COMPILER_LAUNCHER:STRING=/usr/bin/ccache" in with_cache
    assert "-DCMAKE_CXX_COMPILER_LAUNCHER:STRING=" in without
    assert "-DGGML_CCACHE:BOOL=OFF" in without


def test_every_value_of_the_lane_is_among_the_arguments_with_its_type(matrix, inputs):
    configure = render(matrix, "cpu", inputs).configure
    for name, value in matrix.cmake_values("cpu").items():
        text = f"BOOL={'ON' if value else 'OFF'}" if isinstance(value, bool) else f"STRING={value}"
        assert f"-D{name}:{text}" in configure
    assert f"-DLLAMA_BUILD_COMMIT:STRING={_SOURCE.commit}" in configure
    assert "-DLLAMA_BUILD_NUMBER:STRING=11312" in configure


def test_the_reference_knows_nothing_of_the_worker(matrix, inputs):
    plan = render(matrix, "cpu", inputs, "reference")
    named = [argument for argument in plan.configure if argument.startswith("-DDGR_")]
    assert named == ["-DDGR_LLAMA_SOURCE:PATH=${source}"]
    assert plan.archives == {}
    (inputs.native / "main.cpp").write_text("other")
    assert render(matrix, "cpu", inputs, "reference").digest == plan.digest
    (inputs.native / "reference" / "main.cpp").write_text("other")
    assert render(matrix, "cpu", inputs, "reference").digest != plan.digest
