"""The environment of a build: ours alone."""

from pathlib import Path

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.lanes.variables import build_variables, stated_variables

_DEFAULTS = load_matrix(Path(__file__).resolve().parents[2] / "lanes" / "matrix.toml").defaults
_STATED = stated_variables(_DEFAULTS, ("/usr/bin", "/bin"), 1_790_812_800)


_FOREIGN = (
    "CFLAGS CXXFLAGS LDFLAGS CPATH CPLUS_INCLUDE_PATH LIBRARY_PATH LD_LIBRARY_PATH LD_PRELOAD CC CXX "
    "CMAKE_PREFIX_PATH PKG_CONFIG_PATH GGML_NATIVE CCACHE_RECACHE MAKEFLAGS HOME"
)


@pytest.mark.parametrize("name", _FOREIGN.split())
def test_variables_of_the_caller_do_not_reach_the_build(monkeypatch, name):
    monkeypatch.setenv(name, "/from/the/caller")
    variables = build_variables(_STATED, _DEFAULTS, {})
    assert "/from/the/caller" not in variables.values()


def test_time_language_and_path_are_stated_whatever_the_caller_has(monkeypatch):
    for name in ("SOURCE_DATE_EPOCH", "PATH", "LC_ALL", "TZ"):
        monkeypatch.setenv(name, "99")
    variables = build_variables(_STATED, _DEFAULTS, {})
    assert variables["SOURCE_DATE_EPOCH"] == "1790812800"
    assert variables["PATH"] == "/usr/bin:/bin"
    assert variables["TZ"] == "UTC"


def test_a_variable_on_the_list_is_handed_on(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/big/tmp")
    assert build_variables(_STATED, _DEFAULTS, {})["TMPDIR"] == "/big/tmp"


def test_what_the_compiler_cache_needs_is_in_the_environment():
    variables = build_variables(_STATED, _DEFAULTS, {"CCACHE_DIR": "/cache/ccache"})
    assert variables["CCACHE_DIR"] == "/cache/ccache"
    assert "CCACHE_DIR" not in build_variables(_STATED, _DEFAULTS, {})
