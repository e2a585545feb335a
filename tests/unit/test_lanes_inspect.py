"""Looking at built programs: libraries, paths, backends, and what they say they are."""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dgr_build.errors import CheckError
from dgr_build.lanes.inspect import Limits, ask_version, check_facts, check_version, program_facts
from dgr_build.lanes.plan import SourceFacts
from dgr_build.lanes.program_facts import ProgramFacts

_SOURCE = SourceFacts(
    commit="1" * 40,
    base_tree="2" * 40,
    patched_tree="3" * 40,
    upstream_build=11312,
    version="0.5.0-dev",
    epoch=0,
)
_PLAN = SimpleNamespace(lane="cpu", digest="d" * 64, source=_SOURCE, isa="x86-64-v3")
_SAID = {
    "lane": "cpu",
    "lane_digest": "d" * 64,
    "commit": "1" * 40,
    "base_tree": "2" * 40,
    "patched_tree": "3" * 40,
    "upstream_build": 11312,
    "version": "0.5.0-dev",
    "isa": "x86-64-v3",
    "backends": ["CPU"],
}
_FACTS = ProgramFacts(machine="EM_X86_64", needed=("libc.so.6",), loader_paths=("$ORIGIN",))
_LIMITS = Limits(libraries={"libc.so.6"}, run_path=("$ORIGIN",), glibc="2.36", private=())


@pytest.fixture
def program(tmp_path):
    def make(script):
        file = tmp_path / "dgr-shard-worker"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file

    return make


def test_a_worker_that_says_what_the_plan_has_passes():
    check_version(_SAID, _PLAN, ["CPU"])


@pytest.mark.parametrize("backends", [[], ["CPU"], None])
def test_a_lane_whose_backend_is_missing_from_the_worker_is_refused(backends):
    with pytest.raises(CheckError) as caught:
        check_version({**_SAID, "backends": backends}, _PLAN, ["CPU", "CUDA"])
    assert "CUDA" in caught.value.message


@pytest.mark.parametrize("name", [name for name in _SAID if name != "backends"])
def test_a_worker_that_says_something_else_is_refused(name):
    with pytest.raises(CheckError) as caught:
        check_version({**_SAID, name: "deadbee"}, _PLAN, ["CPU"])
    assert name in caught.value.cause


@pytest.mark.parametrize("name", [name for name in _SAID if name != "backends"])
def test_a_worker_that_leaves_something_out_is_refused(name):
    said = {key: value for key, value in _SAID.items() if key != name}
    with pytest.raises(CheckError):
        check_version(said, _PLAN, ["CPU"])


def test_a_program_is_asked_for_its_version_as_json(program):
    file = program(f"[ \"$*\" = '--version --json' ] && echo '{json.dumps(_SAID)}'")
    assert ask_version(file) == _SAID


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("echo broken >&2; exit 3", "broken"),
        ("echo not json", "not json"),
        ("echo '[]'", "[]"),
        ("kill -ILL $$", "signal 4"),
    ],
)
def test_a_program_that_cannot_say_what_it_is_shows_how_it_ended(program, script, shown):
    with pytest.raises(CheckError) as caught:
        ask_version(program(script))
    assert shown in caught.value.cause


def test_a_fit_program_passes(program):
    check_facts(program("true"), _FACTS, replace(_LIMITS, private=[Path("/secret/folder")]))


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"needed": ("libc.so.6", "libcudart.so.13")}, "libcudart.so.13"),
        ({"loader_paths": ()}, "no folder"),
        ({"loader_paths": ("/opt/build/lib",)}, "/opt/build/lib"),
        ({"loader_paths": ("$ORIGIN", "/opt/build/lib")}, "/opt/build/lib"),
        ({"versions": {"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.38")}}, "2.38"),
        ({"versions": {"libm.so.6": ("GLIBC_2.37",)}}, "2.37"),
        ({"text_relocations": True}, "relocations"),
    ],
)
def test_what_a_program_must_not_have_is_named(program, change, shown):
    with pytest.raises(CheckError) as caught:
        check_facts(program("true"), replace(_FACTS, **change), _LIMITS)
    assert shown in caught.value.cause


@pytest.mark.parametrize(
    ("stated", "wanted"), [(("$ORIGIN", "$ORIGIN/../lib"), True), (("$ORIGIN/../lib", "$ORIGIN"), False)]
)
def test_the_loader_searches_the_stated_folders_in_their_order(program, stated, wanted):
    limits = replace(_LIMITS, run_path=("$ORIGIN", "$ORIGIN/../lib"))
    facts = replace(_FACTS, loader_paths=stated)
    with nullcontext() if wanted else pytest.raises(CheckError):
        check_facts(program("true"), facts, limits)


@pytest.mark.parametrize(
    ("versions", "glibc"),
    [
        ({}, "0"),
        ({"libstdc++.so.6": ("GLIBCXX_3.4.99",)}, "0"),
        ({"libc.so.6": ("GLIBC_2.4", "GLIBC_2.17"), "libm.so.6": ("GLIBC_2.29",)}, "2.29"),
        ({"libc.so.6": ("GLIBC_2.9", "GLIBC_2.10", "GLIBC_PRIVATE")}, "2.10"),
    ],
)
def test_the_glibc_of_a_program_is_the_newest_that_any_symbol_asks_for(versions, glibc):
    assert replace(_FACTS, versions=versions).glibc == glibc


def test_a_path_of_the_build_inside_a_program_is_found(program):
    limits = replace(_LIMITS, private=[Path("/home of/project")])
    with pytest.raises(CheckError) as caught:
        check_facts(program("# /home of/project/src/x.cpp"), _FACTS, limits)
    assert "/home of/project" in caught.value.cause


@pytest.mark.skipif(sys.platform != "linux", reason="reads an ELF file of this system")
def test_the_libraries_of_a_real_program_are_read():
    facts = program_facts(Path(sys.executable).resolve())
    assert any(name.startswith("libc.so") for name in facts.needed)
    assert not facts.text_relocations
    assert facts.glibc != "0"
    assert any(version.startswith("GLIBC_") for version in facts.versions["libc.so.6"])


def test_a_file_that_is_no_program_is_refused(tmp_path):
    (tmp_path / "x").write_text("hello")
    for path in (tmp_path / "x", tmp_path / "missing", tmp_path):
        with pytest.raises(CheckError):
            program_facts(path)
