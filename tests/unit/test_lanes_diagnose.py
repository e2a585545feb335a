"""Failed logs, each printed by the tool itself: the first real error and, where known, the cause."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.lanes.diagnose import explain, first_error
from dgr_build.lanes.known_causes import KNOWN_CAUSES

_LOGS = Path(__file__).with_name("build_logs")

# log, kind of the known cause, what the shown lines must hold
_EXPECTED = (
    ("apt-depends", "unmet-dependency", "Unable to correct problems"),
    ("apt-nosuch", "unknown-package", "Unable to locate package"),
    ("bash-not-found", "missing-tool", "glslc: command not found"),
    ("bwrap-missing", "missing-tool", "execvp hipcc"),
    ("cc1plus-killed", "out-of-memory", "Killed signal"),
    ("clang-error", "", "no matching member function"),
    ("clang-flag", "compiler-too-old", "-mavx10.9"),
    ("clang-header", "missing-header", "grpcpp/nowhere.h"),
    ("clang-killed", "out-of-memory", "Killed"),
    ("clang-memory", "out-of-memory", "LLVM ERROR"),
    ("clang-option", "compiler-too-old", "-std=c++29"),
    ("cmake-broken-compiler", "missing-library", "cannot find -lnowhere"),
    ("cmake-cuda-arch", "architecture", "nvcc fatal"),
    ("cmake-hip-old", "hip-too-old", "V6.1"),
    ("cmake-no-compiler", "missing-tool", "g++-99"),
    ("cmake-no-driver", "driver-library", "CUDA::cuda_driver"),
    ("cmake-no-ninja", "missing-tool", "/nowhere/ninja"),
    ("cmake-no-nvcc", "compiler-unusable", "default CUDA architecture"),
    ("cmake-old-cmake", "cmake-too-old", "or higher is required"),
    ("cmake-package", "missing-package", '"hipblas"'),
    ("cmake-standard", "compiler-too-old", "CXX26"),
    ("cmake-vulkan", "missing-package", "Could NOT find Vulkan"),
    ("env-missing", "missing-tool", "glslc"),
    ("gcc-error", "", "no matching function"),
    ("gcc-flag", "compiler-too-old", "-mavx10.9"),
    ("gcc-header", "missing-header", "grpcpp/nowhere.h"),
    ("gcc-memory", "out-of-memory", "virtual memory exhausted"),
    ("gcc-no-as", "missing-tool", "execvp"),
    ("gcc-no-ld", "missing-tool", "cannot find"),
    ("gcc-option", "compiler-too-old", "-std=c++29"),
    ("glslc-coopmat", "glslc-too-old", "'coopmat' : undeclared"),
    ("glslc-extension", "glslc-too-old", "unexpected IDENTIFIER"),
    ("hip-arch", "architecture", "gfx9999"),
    ("ld-no-cuda", "driver-library", "-lcuda"),
    ("ld-no-lib", "missing-library", "-lgrpc++_nowhere"),
    ("ld-undefined", "", "undefined reference"),
    ("lld-no-cuda", "driver-library", "-lcuda"),
    ("lld-no-lib", "missing-library", "-lgrpc++_nowhere"),
    ("lld-undefined", "", "undefined symbol"),
    ("mmdebstrap-404", "package-gone", "Failed to fetch"),
    ("mmdebstrap-expired", "release-expired", "is expired"),
    ("mmdebstrap-network", "no-network", "Temporary failure resolving"),
    ("mmdebstrap-no-ids", "no-subordinate-ids", "unable to pick chroot mode"),
    ("mmdebstrap-refused", "no-network", "Could not connect"),
    ("ninja-missing", "", "no known rule"),
    ("ninja-rerun", "", "an option is gone"),
    ("nospace-gcc", "no-space", "No space left on device"),
    ("nospace-ld", "no-space", "No space left on device"),
    ("nospace-tmp", "no-space", "No space left on device"),
    ("nvcc-arch", "architecture", "sm_52"),
    ("nvcc-clang", "compiler-too-new", "unsupported clang version"),
    ("nvcc-error", "", 'identifier "missing"'),
    ("nvcc-gcc", "compiler-too-new", "unsupported GNU version"),
    ("nvcc-killed", "out-of-memory", "Killed"),
    ("nvcc-no-ccbin", "missing-tool", "/opt/gcc-11/bin/g++"),
    ("ptxas-error", "", "'bogus'"),
    ("sh-not-found", "missing-tool", "glslc: not found"),
    ("sigill", "illegal-instruction", "Illegal instruction"),
    ("two-failures", "out-of-memory", "Killed signal"),
)
_AFTERMATH = ("build stopped", "ld returned", "Ptx assembly aborted", "linker command failed", "rebuilding")


def _log(name):
    return (_LOGS / f"{name}.log").read_text()


def test_every_log_is_expected_to_say_something():
    assert {path.stem for path in _LOGS.iterdir()} == {name for name, _, _ in _EXPECTED}


@pytest.mark.parametrize(("name", "kind", "shown"), _EXPECTED)
def test_a_log_yields_its_first_error_and_its_cause(name, kind, shown):
    found = first_error(_log(name))
    assert found.kind == kind
    assert shown in "\n".join(found.lines)
    assert 1 <= len(found.lines) <= 8
    assert bool(found.cause) == bool(found.remedy) == bool(kind)
    assert not any(word in line for word in _AFTERMATH for line in found.lines)


def test_every_known_cause_has_a_log():
    assert {known.kind for known in KNOWN_CAUSES} == {kind for _, kind, _ in _EXPECTED if kind}


@pytest.mark.parametrize("known", KNOWN_CAUSES, ids=lambda known: known.kind)
def test_no_pattern_is_idle(known):
    """Only what no tool at hand could be made to print is left out."""
    unmade = {r"Disk quota exceeded", r"died due to signal 9 "}
    logs = [path.read_text() for path in _LOGS.iterdir()]
    idle = {
        pattern
        for pattern in known.patterns
        if not any(type(known)(kind="", patterns=(pattern,), cause="", remedy="").find(log) for log in logs)
    }
    assert idle <= unmade


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("cmake-no-compiler", "g++-99"),
        ("nvcc-no-ccbin", "/opt/gcc-11/bin/g++"),
        ("cmake-hip-old", "6.1"),
        ("nvcc-gcc", "15"),
        ("glslc-extension", "GL_KHR_cooperative_matrix"),
        ("mmdebstrap-404", "hipcc_6.4.3-1_amd64.deb"),
    ],
)
def test_the_cause_names_what_it_is_about(name, word):
    assert word in first_error(_log(name)).cause


def test_warnings_before_the_error_are_passed_over():
    log = "a.cpp:1:2: warning: unused variable 'x'\n" + _log("gcc-error")
    assert "no matching function" in "\n".join(first_error(log).lines)


def test_where_the_compiler_stood_is_part_of_the_error():
    assert "In function" in first_error(_log("gcc-error")).lines[0]
    assert "inner.h" in first_error(_log("gcc-header")).lines[1]


def test_a_full_disk_explains_a_failure_that_came_before_it():
    assert first_error(_log("gcc-error") + _log("nospace-ld")).kind == "no-space"


@pytest.mark.parametrize(
    "line",
    ['   12 |     puts("No space left on device");', "      | Killed", "// Killed signal is handled here"],
)
def test_source_that_talks_of_a_cause_is_not_the_cause(line):
    assert first_error(f"FAILED: a.o\ng++ -c a.cpp\na.cpp:12:9: error: no puts\n{line}\n").kind == ""


def test_a_command_that_talks_of_a_cause_is_not_the_cause():
    assert first_error("FAILED: a.o\necho No space left on device; false\n").kind == ""


def test_colours_do_not_hide_an_error():
    coloured = "\x1b[1ma.cpp:1:2: \x1b[31merror: \x1b[0mno such thing\n"
    assert first_error(coloured).lines == ("a.cpp:1:2: error: no such thing",)


def test_a_log_without_an_error_shows_its_end():
    assert first_error("one\ntwo\n\nninja: build stopped: subcommand failed.\n").lines == ("one", "two")
    assert first_error("").lines == ()


def test_an_explanation_holds_cause_lines_and_the_log():
    cause, remedy = explain(_log("nvcc-arch"), Path("/logs/build.log"), next_step="then go on")
    assert "nvcc fatal" in cause
    assert cause.splitlines()[0] == first_error(_log("nvcc-arch")).cause
    assert "/logs/build.log" in remedy
    assert "--set architectures" in remedy
    assert "then go on" in remedy


@given(
    st.lists(
        st.sampled_from([line for name, _, _ in _EXPECTED for line in _log(name).splitlines()]), max_size=30
    )
)
def test_any_mixture_of_lines_is_diagnosed_briefly_with_lines_of_its_own(lines):
    found = first_error("\n".join(lines))
    assert len(found.lines) <= 8
    assert {line.rstrip() for line in lines} >= set(found.lines)
    assert found.lines or not found.kind
