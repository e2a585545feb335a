"""The environment of a build: ours alone."""

from pathlib import Path

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.lanes.variables import build_variables, stated_variables
from dgr_build.workspace import Workspace

_DEFAULTS = load_matrix(Path(__file__).resolve().parents[2] / "lanes" / "matrix.toml").defaults
_STATED = stated_variables(_DEFAULTS, ("/usr/bin", "/bin"), 1_790_812_800)


@pytest.fixture
def ws():
    return Workspace(
        project=Path("/home of/project"), root=Path("/home of/project/.dgr"), cache=Path("/cache")
    )


_FOREIGN = (
    "CFLAGS CXXFLAGS LDFLAGS CPATH CPLUS_INCLUDE_PATH LIBRARY_PATH LD_LIBRARY_PATH LD_PRELOAD CC CXX "
    "CMAKE_PREFIX_PATH PKG_CONFIG_PATH GGML_NATIVE CCACHE_RECACHE MAKEFLAGS HOME"
)


@pytest.mark.parametrize("name", _FOREIGN.split())
def test_variables_of_the_caller_do_not_reach_the_build(ws, monkeypatch, name):
    monkeypatch.setenv(name, "/from/the/caller")
    variables = build_variables(_STATED, _DEFAULTS, ws, cached=True)
    assert "/from/the/caller" not in variables.values()


def test_time_language_and_path_are_stated_whatever_the_caller_has(ws, monkeypatch):
    for name in ("SOURCE_DATE_EPOCH", "PATH", "LC_ALL", "TZ"):
        monkeypatch.setenv(name, "99")
    variables = build_variables(_STATED, _DEFAULTS, ws, cached=True)
    assert variables["SOURCE_DATE_EPOCH"] == "1790812800"
    assert variables["PATH"] == "/usr/bin:/bin"
    assert variables["TZ"] == "UTC"


def test_a_variable_on_the_list_is_handed_on(ws, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/big/tmp")
    assert build_variables(_STATED, _DEFAULTS, ws, cached=True)["TMPDIR"] == "/big/tmp"


def test_the_compiler_cache_is_shared_between_clones(ws):
    variables = build_variables(_STATED, _DEFAULTS, ws, cached=True)
    assert variables["CCACHE_DIR"] == "/cache/ccache"
    assert variables["CCACHE_BASEDIR"] == "/home of/project"
    assert variables["CCACHE_NOHASHDIR"] == "1"
    assert "CCACHE_DISABLE" not in variables


def test_a_workspace_elsewhere_does_not_make_the_whole_machine_relative(ws):
    apart = Workspace(project=ws.project, root=Path("/big/dgr"), cache=ws.cache)
    assert build_variables(_STATED, _DEFAULTS, apart, cached=True)["CCACHE_BASEDIR"] == "/big/dgr"


def test_an_uncached_build_switches_the_cache_off(ws):
    variables = build_variables(_STATED, _DEFAULTS, ws, cached=False)
    assert variables["CCACHE_DISABLE"] == "1"
    assert "CCACHE_DIR" not in variables
