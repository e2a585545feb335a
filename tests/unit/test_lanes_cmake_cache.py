"""What CMake made of a plan, held against it."""

import json

import pytest

from dgr_build.errors import BuildError
from dgr_build.lanes.cmake_cache import (
    assert_archives,
    assert_cache,
    assert_compile_flags,
    linked_archives,
    read_cache,
)

_CACHE = """# a comment
//what it is for
GGML_AVX2:BOOL=ON
GGML_NATIVE:BOOL=OFF
GGML_RVV:BOOL=ON
GGML_SCHED_MAX_COPIES:STRING=4
LLAMA_BUILD_COMMIT:STRING=0c1e
GIT_EXE:FILEPATH=
CMAKE_BUILD_TYPE:STRING=Release
CMAKE_SOMETHING:BOOL=ON
"""
_ASKED = {
    "GGML_AVX2": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_SCHED_MAX_COPIES": "4",
    "LLAMA_BUILD_COMMIT": "0c1e",
    "GIT_EXE": "",
}
_V3 = ("-msse4.2", "-mavx", "-mavx2")


@pytest.fixture
def build(tmp_path):
    (tmp_path / "CMakeCache.txt").write_text(_CACHE)
    return tmp_path


def _edit(build, old, new):
    file = build / "CMakeCache.txt"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def _wrong(build):
    with pytest.raises(BuildError) as caught:
        assert_cache(read_cache(build), _ASKED, {"GGML_RVV"})
    assert "matrix.toml" in caught.value.remedy
    return caught.value.cause


def test_a_cache_that_holds_what_was_asked_for_passes(build):
    assert_cache(read_cache(build), _ASKED, {"GGML_RVV"})


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("GGML_AVX2:BOOL=ON", "GGML_AVX2:BOOL=OFF", "GGML_AVX2"),
        ("GGML_NATIVE:BOOL=OFF", "GGML_NATIVE:BOOL=ON", "GGML_NATIVE"),
        ("STRING=4", "STRING=8", "GGML_SCHED_MAX_COPIES"),
        ("STRING=0c1e", "STRING=dead", "LLAMA_BUILD_COMMIT"),
        ("GIT_EXE:FILEPATH=", "GIT_EXE:FILEPATH=/usr/bin/git", "GIT_EXE"),
        ("GGML_AVX2:BOOL=ON\n", "", "GGML_AVX2"),
    ],
)
def test_a_value_that_upstream_overrode_or_dropped_is_named(build, old, new, name):
    _edit(build, old, new)
    assert name in _wrong(build)


@pytest.mark.parametrize("name", ["GGML_AVX512", "GGML_AMX_TILE", "GGML_SOMETHING_NEW", "LLAMA_BUILD_NEWS"])
def test_an_option_that_is_on_without_having_been_asked_for_is_named(build, name):
    _edit(build, "GGML_RVV", f"{name}:BOOL=ON\nGGML_RVV")
    assert name in _wrong(build)


def test_an_inert_option_and_one_that_is_not_upstreams_may_be_on(build):
    _edit(build, "GGML_RVV", "GGML_SYCL_DNN:BOOL=OFF\nOTHER:BOOL=ON\nGGML_RVV")
    assert_cache(read_cache(build), _ASKED, {"GGML_RVV"})


@pytest.mark.parametrize("spelling", ["TRUE", "yes", "1", "on"])
def test_cmakes_spellings_of_on_are_all_on(build, spelling):
    _edit(build, "GGML_AVX2:BOOL=ON", f"GGML_AVX2:BOOL={spelling}")
    assert_cache(read_cache(build), _ASKED, {"GGML_RVV"})


def test_a_folder_that_was_never_configured_is_a_build_error(tmp_path):
    with pytest.raises(BuildError):
        read_cache(tmp_path)


def _commands(folder, *flags):
    entries = [
        {"file": f"{n}.c", "command": f"gcc {given} -o x -c '{n} n.c'"} for n, given in enumerate(flags)
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))


def test_exactly_the_stated_machine_flags_pass(tmp_path):
    _commands(tmp_path, "-O3 -m64", "-msse4.2 -mavx -mavx2")
    assert_compile_flags(tmp_path, _V3)


@pytest.mark.parametrize(
    "flag", ["-march=native", "-mavx512f", "-mamx-tile", "-mtune=native", "-mcpu=native"]
)
def test_a_machine_flag_that_the_lane_does_not_state_is_named(tmp_path, flag):
    _commands(tmp_path, "-msse4.2 -mavx -mavx2", flag)
    with pytest.raises(BuildError) as caught:
        assert_compile_flags(tmp_path, _V3)
    assert flag in caught.value.cause
    assert "1.c" in caught.value.message


def test_a_stated_flag_that_no_file_is_compiled_with_is_named(tmp_path):
    _commands(tmp_path, "-msse4.2 -mavx")
    with pytest.raises(BuildError) as caught:
        assert_compile_flags(tmp_path, _V3)
    assert "-mavx2" in caught.value.cause


_NINJA = """
build other: phony
  LINK_LIBRARIES = /usr/lib/libother.a
build bin/dgr-shard-worker: CXX_EXECUTABLE_LINKER main.o | libllama.a
  FLAGS = -O3
  LINK_LIBRARIES = libllama.a  -Wl,--start-group  /usr/lib/libgrpc.a  /usr/lib/a$ b/libz.a  -lpthread  {extra}
build bin/dgr-shard-worker-test: CXX_EXECUTABLE_LINKER test.o
  LINK_LIBRARIES = /usr/lib/libgtest.a
"""


def test_archives_linked_in_from_outside_are_read_from_the_link_step(tmp_path):
    (tmp_path / "build.ninja").write_text(_NINJA.format(extra=f"{tmp_path}/lib/inner.a"))
    linked = linked_archives(tmp_path, "dgr-shard-worker")
    assert linked == ("/usr/lib/libgrpc.a", "/usr/lib/a b/libz.a", f"{tmp_path}/lib/inner.a")
    assert_archives(tmp_path, "dgr-shard-worker", {"libgrpc.a": "", "libz.a": ""})


def test_an_archive_whose_hash_is_not_in_the_plan_is_named(tmp_path):
    (tmp_path / "build.ninja").write_text(_NINJA.format(extra="/usr/local/lib/libsecret.a"))
    with pytest.raises(BuildError) as caught:
        assert_archives(tmp_path, "dgr-shard-worker", {"libgrpc.a": "", "libz.a": ""})
    assert "libsecret.a" in caught.value.cause
