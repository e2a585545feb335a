"""Running ninja: progress, failures with their file, and compilers that were killed for memory."""

import os

import pytest

from dgr_build import console
from dgr_build.errors import BuildError
from dgr_build.lanes import ninja

_OK = "[1/2] Building CXX object a.o\n[2/2] Linking CXX executable a\n"
_BROKEN = """[1/3] Building CXX object a.o
[2/3] Building CXX object b.o
FAILED: [code=1] b.o
/usr/bin/ccache /usr/bin/g++ -O3 -o b.o -c '/home of/b.cpp'
/home of/b.cpp:3:1: error: expected ';'
    3 | }
[3/3] Building CXX object c.o
ninja: build stopped: subcommand failed.
"""
_KILLED = """[7/9] Building CXX object sampling.o
FAILED: sampling.o
/usr/bin/g++ -o sampling.o -c /src/sampling.cpp
c++: fatal error: Killed signal terminated program cc1plus
compilation terminated.
ninja: build stopped: subcommand failed.
"""
_CODE_137 = """[1/9] Building CXX object x.o
FAILED: [code=137] x.o
/usr/bin/g++ -o x.o -c /src/x.cpp
ninja: build stopped: subcommand failed.
"""


class _Recorder:
    def __init__(self):
        self.seen = []

    def update(self, *, done, total=None):
        self.seen.append((done, total))


@pytest.fixture
def fake(tmp_path):
    """A program that prints a text and ends with a code, in ninja's place."""

    def make(text, code):
        (tmp_path / "text").write_text(text)
        program = tmp_path / "ninja"
        program.write_text(f"#!/bin/sh\ncat '{tmp_path}/text'\nexit {code}\n")
        program.chmod(0o755)
        return [program]

    return make


def _run(command, tmp_path, jobs=4):
    log = tmp_path / "logs" / "build.log"
    return ninja.build(command, "compiling", log, variables=dict(os.environ), jobs=jobs), log


def test_the_count_of_ninja_is_the_progress(fake, tmp_path, monkeypatch):
    recorder = _Recorder()
    monkeypatch.setattr(console, "progress", lambda *_, **__: _Context(recorder))
    steps, log = _run(fake(_OK, 0), tmp_path)
    assert recorder.seen == [(1, 2), (2, 2)]
    assert steps == 2
    assert "Linking" in log.read_text()


def test_nothing_to_do_is_no_step(fake, tmp_path):
    assert _run(fake("ninja: no work to do.\n", 0), tmp_path)[0] == 0


def test_a_compile_error_names_the_file_and_shows_what_the_compiler_said(fake, tmp_path):
    with pytest.raises(BuildError) as caught:
        _run(fake(_BROKEN, 1), tmp_path)
    assert "/home of/b.cpp" in caught.value.message
    assert "expected ';'" in caught.value.cause
    assert "ninja: " not in caught.value.cause
    assert "build.log" in caught.value.remedy


@pytest.mark.parametrize(("text", "file"), [(_KILLED, "/src/sampling.cpp"), (_CODE_137, "/src/x.cpp")])
def test_a_killed_compiler_is_reported_as_out_of_memory_with_its_file(fake, tmp_path, text, file):
    with pytest.raises(BuildError) as caught:
        _run(fake(text, 1), tmp_path)
    assert "out of memory" in caught.value.message
    assert file in caught.value.message
    assert "--jobs 2" in caught.value.remedy


def test_a_killed_compiler_is_found_behind_an_ordinary_failure(fake, tmp_path):
    both = _BROKEN.replace("[3/3] Building CXX object c.o\n", _KILLED.partition("\n")[2])
    with pytest.raises(BuildError) as caught:
        _run(fake(both, 1), tmp_path)
    assert "/src/sampling.cpp" in caught.value.message


def test_an_error_that_talks_of_killing_is_no_lack_of_memory(fake, tmp_path):
    text = _BROKEN.replace("expected ';'", "'SkillKilledCount' was not declared")
    with pytest.raises(BuildError) as caught:
        _run(fake(text, 1), tmp_path)
    assert "out of memory" not in caught.value.message


def test_a_known_cause_comes_with_its_remedy_and_the_log(fake, tmp_path):
    text = _BROKEN.replace(
        "/home of/b.cpp:3:1: error: expected ';'", "/usr/bin/ld: final link failed: No space left on device"
    )
    with pytest.raises(BuildError) as caught:
        _run(fake(text, 1), tmp_path)
    assert "No space left" in caught.value.cause
    assert "DGR_WORKSPACE" in caught.value.remedy
    assert "build.log" in caught.value.remedy


def test_one_job_is_never_halved_to_none(fake, tmp_path):
    with pytest.raises(BuildError) as caught:
        _run(fake(_KILLED, 1), tmp_path, jobs=1)
    assert "--jobs 1" in caught.value.remedy


def test_a_failure_without_a_failed_step_shows_the_end_of_the_output(fake, tmp_path):
    with pytest.raises(BuildError) as caught:
        _run(fake("ninja: error: loading 'build.ninja': No such file\n", 1), tmp_path)
    assert "build.ninja" in caught.value.cause


class _Context:
    def __init__(self, value):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, *_):
        return None
