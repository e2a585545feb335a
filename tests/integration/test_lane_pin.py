"""The lane's values against the pinned source itself: every option known, nothing decided by the host."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.flows.lane_source import publish_source
from dgr_build.lanes.build import configure
from dgr_build.lanes.cmake_cache import assert_cache, assert_compile_flags, read_cache
from dgr_build.lanes.environment.manage import enter
from dgr_build.lanes.isolation import without_network
from dgr_build.lanes.lane import Chosen, plan_lane, reference_places
from dgr_build.lanes.variables import build_variables
from dgr_build.workspace import Workspace

_OPTION = re.compile(r"option\((GGML_[A-Z0-9_]+)")
_NOT_INSTRUCTIONS = {"GGML_CPU_HBM", "GGML_CPU_REPACK", "GGML_CPU_KLEIDIAI"}


@pytest.fixture(scope="module")
def ws():
    """The workspace of this clone, with the proven source published in it."""
    return Workspace.open()


@pytest.fixture(scope="module")
def planned(ws):
    matrix = load_matrix(ws.matrix_file)
    chosen = Chosen(name="cpu", matrix=matrix)
    return plan_lane(ws, chosen, publish_source(ws).facts, enter(ws, matrix, chosen.lane.environment))


def _configured(ws, planned, build: Path, **variables):
    """Configure the unpatched tree in a folder of its own and return CMake's cache."""
    places = replace(reference_places(ws, "cpu"), build=build)
    arguments = planned.reference.arguments(places, planned.toolchain, launcher=None)
    stated = build_variables(planned.reference.variables, planned.matrix.defaults, {})
    stated = {name: value for name, value in (stated | variables).items() if value is not None}
    log = build.with_suffix(".log")
    configure([*without_network(), planned.toolchain.cmake.path, *arguments], stated, log)
    return read_cache(build)


def test_the_matrix_states_every_instruction_set_option_of_the_pin(ws, planned):
    text = (ws.base_source / "ggml" / "CMakeLists.txt").read_text()
    section = text[text.index("# instruction set specific") : text.index("option(GGML_LASX")]
    options = set(_OPTION.findall(section)) - _NOT_INSTRUCTIONS
    assert len(options) > 10
    assert options == set(planned.matrix.isa["x86-64-v3"].cmake)


@pytest.fixture(scope="module")
def caches(ws, planned, tmp_path_factory):
    """CMake's cache with the source date set and unset, without a network."""
    folder = tmp_path_factory.mktemp("configured")
    return {
        "set": _configured(ws, planned, folder / "set", SOURCE_DATE_EPOCH="1"),
        "unset": _configured(ws, planned, folder / "unset", SOURCE_DATE_EPOCH=None),
        "folder": folder,
    }


@pytest.mark.parametrize("case", ["set", "unset"])
def test_the_cache_holds_the_plan_with_the_source_date_set_and_unset(planned, caches, case):
    assert_cache(caches[case], planned.reference.values, planned.matrix.defaults.inert_options)
    flags = planned.matrix.isa["x86-64-v3"].compiler_flags
    assert_compile_flags(caches["folder"] / case, flags)


def test_the_source_date_changes_no_value_of_upstream(caches):
    def upstream(cache):
        return {n: v for n, v in cache.items() if n.startswith(("GGML_", "LLAMA_", "BUILD_"))}

    assert len(upstream(caches["set"])) > 100
    assert upstream(caches["set"]) == upstream(caches["unset"])


def test_the_source_date_would_change_values_that_are_not_stated(ws, planned, tmp_path):
    """The trap is real at this pin: without our values the two caches differ."""
    project = tmp_path / "bare"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(bare C CXX)\n"
        f'add_subdirectory("{ws.base_source}/ggml" ggml)\n'
    )
    native = {}
    for case, extra in (("set", {"SOURCE_DATE_EPOCH": "1"}), ("unset", {})):
        variables = {"PATH": planned.worker.variables["PATH"], **extra}
        command = [planned.toolchain.cmake.path, "-S", project, "-B", tmp_path / case, "-G", "Ninja"]
        command += [f"-DCMAKE_MAKE_PROGRAM={planned.toolchain.ninja.path}"]
        configure(command, variables, tmp_path / f"{case}.log")
        native[case] = read_cache(tmp_path / case)["GGML_NATIVE"][1]
    assert native == {"set": "OFF", "unset": "ON"}


def test_the_library_is_stamped_with_the_pin_and_not_with_what_surrounds_it(planned, caches):
    (header,) = (caches["folder"] / "set").rglob("ggml-version.h")
    assert f'"{planned.reference.source.commit}"' in header.read_text()
