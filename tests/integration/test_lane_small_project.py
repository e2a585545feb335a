"""Building with the real cmake, ninja and compiler, on a project of a few lines in place of llama.cpp's."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import BuildError, CheckError
from dgr_build.lanes.build import Job, Options, build_plan
from dgr_build.lanes.inspect import Limits, inspect_worker
from dgr_build.lanes.isolation import without_network
from dgr_build.lanes.plan import Inputs, Places, SourceFacts, render
from dgr_build.lanes.toolchain import find_program, find_toolchain
from dgr_build.workspace import Workspace

_MATRIX = load_matrix(Path(__file__).resolve().parents[2] / "lanes" / "matrix.toml")
_SOURCE = SourceFacts(
    commit="1" * 40,
    base_tree="2" * 40,
    patched_tree="3" * 40,
    upstream_build=11312,
    version="0.5.0-dev",
    epoch=1_790_812_800,
)
_UPSTREAM = """
option(GGML_NATIVE "" ON)
option(GGML_SSE42 "" ON)
add_library(ggml STATIC ggml.c)
if(GGML_NATIVE)
    target_compile_options(ggml PRIVATE -march=native)
elseif(GGML_AVX2)
    target_compile_options(ggml PRIVATE -msse4.2 -mavx -mavx2 -mfma -mf16c -mbmi2)
endif()
"""
_PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(small C CXX)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "${DGR_RUN_PATH}")
add_subdirectory("${DGR_LLAMA_SOURCE}" llama)
file(CONFIGURE OUTPUT version.h CONTENT [[static const char says[] = R"x({
"lane": "@DGR_LANE@", "lane_digest": "@DGR_LANE_DIGEST@", "commit": "@DGR_PIN_COMMIT@",
"base_tree": "@DGR_BASE_TREE@", "patched_tree": "@DGR_PATCHED_TREE@",
"upstream_build": @DGR_UPSTREAM_BUILD@, "version": "@DGR_UPSTREAM_VERSION@", "isa": "@DGR_ISA@",
"backends": ["CPU"]})x";
]])
add_custom_command(OUTPUT net COMMAND sh -c "cat /proc/net/dev > net" VERBATIM)
add_executable(dgr-shard-worker main.cpp other.cpp net)
target_include_directories(dgr-shard-worker PRIVATE "${CMAKE_BINARY_DIR}")
target_link_libraries(dgr-shard-worker PRIVATE ggml)
"""
_MAIN = """
#include <cstdio>
#include "version.h"
int other();
int main() { std::puts(says); return other() == 0; }
"""
_FILES = {
    "src/CMakeLists.txt": _UPSTREAM,
    "src/ggml.c": "int ggml(void) { return 1; }\n",
    "native/CMakeLists.txt": _PROJECT,
    "native/main.cpp": _MAIN,
    "native/other.cpp": "int other() { return __FILE__[0]; }\n",
    "native/conan.lock": "{}\n",
}
_ALL_STEPS = 6


class _Small:
    """A project in a folder of its own, and how to build it."""

    def __init__(self, folder: Path, cache: Path):
        self.folder = folder
        self.cache = cache
        self.toolchain = find_toolchain(_MATRIX.environment["host"])
        self.matrix = _MATRIX
        for name, text in _FILES.items():
            self.write(name, text)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    @property
    def job(self):
        ws = Workspace(project=self.folder, root=self.folder / ".dgr", cache=self.cache)
        inputs = Inputs(source=_SOURCE, toolchain=self.toolchain, native=ws.native)
        places = Places(project=ws.native, source=self.folder / "src", build=ws.build("cpu"))
        plan = render(self.matrix, "cpu", inputs)
        return Job(ws=ws, matrix=self.matrix, plan=plan, places=places, toolchain=self.toolchain)

    def build(self, **options):
        return build_plan(self.job, Options(jobs=1, **options))

    def inspect(self, built, plan, *, must_contain):
        limits = Limits(
            libraries={*self.matrix.defaults.needed_libraries, "ld-linux-x86-64.so.2"},
            run_path=("$ORIGIN",),
            glibc=self.toolchain.libc.removeprefix("glibc "),
            private=[self.folder],
        )
        return inspect_worker(
            built.program, plan, limits, made=self.toolchain.made, must_contain=must_contain
        )

    def hits(self):
        """How often the compiler cache has answered."""
        told = subprocess.run(
            ["ccache", "--print-stats"],
            env={"CCACHE_DIR": str(self.cache / "ccache"), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        counts = dict(line.split("\t") for line in told.splitlines())
        return int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])


@pytest.fixture
def small(tmp_path):
    return _Small(tmp_path / "ein Ordner mit ä und Leerzeichen", tmp_path / "cache")


@pytest.fixture
def cached(small):
    if find_program("ccache", small.toolchain.path) is None:
        pytest.skip("ccache is not installed")
    return small


def test_a_project_in_a_folder_with_spaces_and_umlauts_builds_and_says_what_it_is(small):
    built = small.build()
    seen = small.inspect(built, small.job.plan, must_contain=["CPU"])
    assert seen.version["lane_digest"] == built.digest == small.job.plan.digest


def test_the_second_run_does_nothing(small):
    assert small.build().steps == _ALL_STEPS
    started = time.monotonic()
    assert small.build().steps == 0
    assert time.monotonic() - started < 1


def test_what_building_took_is_kept_with_the_folder_and_grows_with_every_run(small):
    first = small.build().seconds
    assert first > 0
    assert small.build().seconds == first
    small.write("native/main.cpp", "not C++\n")
    with pytest.raises(BuildError):
        small.build()
    small.write("native/main.cpp", _MAIN)
    assert small.build().seconds > first


def test_an_edit_changes_the_digest_and_recompiles_only_what_it_touches(small):
    before = small.build()
    small.write("native/other.cpp", "int other() { return 2; }\n")
    after = small.build()
    assert after.digest != before.digest
    assert 0 < after.steps < _ALL_STEPS


def test_a_worker_that_was_changed_behind_our_back_is_built_again(small):
    built = small.build()
    built.program.write_bytes(b"something else")
    assert small.build().steps > 0
    assert built.program.read_bytes() != b"something else"


def test_a_worker_of_another_lane_does_not_pass_inspection(small):
    built = small.build()
    other = dataclasses.replace(small.job.plan, lane="cuda")
    with pytest.raises(CheckError):
        small.inspect(built, other, must_contain=["CUDA"])


def test_other_compilers_start_over(small, capfd):
    small.build()
    newer = dataclasses.replace(small.toolchain.cxx, version="g++ 99")
    small.toolchain = dataclasses.replace(small.toolchain, cxx=newer)
    assert small.build().steps == _ALL_STEPS
    assert "starting over" in capfd.readouterr().err


def test_flags_of_the_caller_do_not_reach_the_compiler(small, monkeypatch):
    for name in ("CFLAGS", "CXXFLAGS", "CPPFLAGS"):
        monkeypatch.setenv(name, "-march=native -DFOREIGN")
    built = small.build()
    commands = (built.build / "compile_commands.json").read_text()
    assert "-march=native" not in commands
    assert "FOREIGN" not in commands


def test_upstream_that_overrides_a_value_is_caught_before_anything_is_compiled(small):
    small.write("src/CMakeLists.txt", 'set(GGML_AVX2 OFF CACHE BOOL "" FORCE)\n' + _UPSTREAM)
    with pytest.raises(BuildError) as caught:
        small.build()
    assert "GGML_AVX2" in caught.value.cause
    assert not list(small.job.places.build.rglob("*.o"))


def test_a_new_upstream_option_that_is_on_is_caught(small):
    small.write("src/CMakeLists.txt", 'option(GGML_BRAND_NEW "" ON)\n' + _UPSTREAM)
    with pytest.raises(BuildError) as caught:
        small.build()
    assert "GGML_BRAND_NEW" in caught.value.cause


def test_code_for_this_very_machine_is_caught(small):
    small.write("native/CMakeLists.txt", _PROJECT + "target_compile_options(ggml PRIVATE -march=native)\n")
    with pytest.raises(BuildError) as caught:
        small.build()
    assert "-march=native" in caught.value.cause


def test_a_compile_error_names_the_file_and_what_is_done_is_kept(small):
    small.write("native/other.cpp", "int other() { return }\n")
    with pytest.raises(BuildError) as caught:
        small.build()
    assert "other.cpp" in caught.value.message
    assert "error:" in caught.value.cause
    small.write("native/other.cpp", "int other() { return 3; }\n")
    assert 0 < small.build().steps < _ALL_STEPS


def test_a_compiler_killed_for_memory_is_reported_with_its_file(small, tmp_path):
    launcher = tmp_path / "launchers" / "ccache"
    launcher.parent.mkdir()
    launcher.write_text('#!/bin/sh\ncase "$*" in *other.cpp*) kill -9 $$ ;; esac\nexec "$@"\n')
    launcher.chmod(0o755)
    path = (str(launcher.parent), *small.toolchain.path)
    small.toolchain = dataclasses.replace(small.toolchain, path=path)
    with pytest.raises(BuildError) as caught:
        small.build()
    assert "out of memory" in caught.value.message
    assert "other.cpp" in caught.value.message
    assert "--jobs" in caught.value.remedy


def test_clones_share_the_compiler_cache(cached, tmp_path):
    first = cached.build()
    assert cached.hits() == 0
    second = _Small(tmp_path / "clone", cached.cache)
    built = second.build()
    assert built.digest == first.digest
    assert cached.hits() == 3
    assert built.program.read_bytes() == first.program.read_bytes()


def test_an_uncached_build_compiles_everything_although_the_cache_could_answer(cached):
    assert not cached.build().uncached
    before = cached.hits()
    built = cached.build(use_ccache=False)
    assert built.uncached
    assert built.steps == _ALL_STEPS
    assert cached.hits() == before


def test_an_uncached_build_stays_one_and_is_not_repeated(cached):
    cached.build(use_ccache=False)
    again = cached.build(use_ccache=False)
    assert again.uncached
    assert again.steps == 0
    assert cached.build().uncached


def test_an_edit_through_the_cache_ends_being_uncached(cached):
    cached.build(use_ccache=False)
    cached.write("native/other.cpp", "int other() { return 4; }\n")
    built = cached.build()
    assert not built.uncached
    assert 0 < built.steps < _ALL_STEPS


def test_a_build_has_no_network(small):
    if not without_network():
        pytest.skip("this machine lets nobody unshare its network")
    built = small.build()
    assert built.network_cut
    devices = [line.split(":")[0].strip() for line in (built.build / "net").read_text().splitlines()[2:]]
    assert devices in ([], ["lo"])


def test_the_project_moved_to_another_folder_builds_there(small, tmp_path):
    small.build()
    moved = tmp_path / "moved"
    small.folder.rename(moved)
    small.folder = moved
    assert small.build().steps == _ALL_STEPS


def test_an_interrupted_build_leaves_no_process_and_goes_on_where_it_stopped(small, tmp_path):
    slow = "add_custom_command(OUTPUT slow DEPENDS net COMMAND sleep 4711 COMMAND touch slow)\n"
    small.write("native/CMakeLists.txt", _PROJECT + slow + "target_sources(dgr-shard-worker PRIVATE slow)\n")
    script = f"""
        import importlib.util, sys
        from pathlib import Path
        from dgr_build.errors import DgrError
        spec = importlib.util.spec_from_file_location("small_project", {__file__!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        small = object.__new__(module._Small)
        small.folder, small.cache = Path({str(small.folder)!r}), Path({str(small.cache)!r})
        small.toolchain = module.find_toolchain(module._MATRIX.environment["host"])
        small.matrix = module._MATRIX
        small.build()
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.DEVNULL)
    try:
        _wait_for(lambda: _sleepers(small.folder))
        child.send_signal(signal.SIGINT)
        assert child.wait(30) != 0
    finally:
        child.kill()
        child.wait()
    _wait_for(lambda: not _sleepers(small.folder))
    small.write("native/CMakeLists.txt", _PROJECT)
    assert small.build().steps < _ALL_STEPS


def _sleepers(folder):
    """The processes that sleep for this test's build."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if (
                entry.name.isdecimal()
                and b"4711" in words
                and (entry / "cwd").readlink().is_relative_to(folder)
            ):
                found.append(entry.name)
        except OSError:
            continue
    return found


def _wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_stamp_tells_what_the_folder_holds(small):
    built = small.build()
    stamp = json.loads((built.build / "dgr-lane.json").read_bytes())
    assert stamp["digest"] == built.digest
    assert stamp["plan"]["source"]["commit"] == _SOURCE.commit
