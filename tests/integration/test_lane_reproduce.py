"""Two builds of a project of a few lines on a made upstream, in surroundings that differ in everything."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import shutil
import tarfile
from dataclasses import replace

import pytest
import tomli_w

from dgr_build.documents.base import load_json
from dgr_build.documents.evidence import Record
from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import BuildError, CheckError
from dgr_build.flows.lane import Request, run_lane
from dgr_build.flows.lane_source import publish_source
from dgr_build.flows.reproduce import Wanted, reproduce
from dgr_build.lanes.build import Job, Options, build_plan
from dgr_build.lanes.environment.manage import enter
from dgr_build.lanes.lane import choose, plan_lane, worker_places
from dgr_build.patches.export import export
from dgr_build.workspace import Workspace

_GGML = b"""
option(GGML_NATIVE "" ON)
option(GGML_SSE42 "" ON)
add_library(ggml STATIC ggml.c)
if(GGML_AVX2)
    target_compile_options(ggml PRIVATE -msse4.2 -mavx -mavx2 -mfma -mf16c -mbmi2)
endif()
"""
_WORKER = """
cmake_minimum_required(VERSION 3.25)
project(small C CXX)
add_subdirectory("${DGR_LLAMA_SOURCE}" llama)
execute_process(COMMAND sh -c "ASKS" OUTPUT_VARIABLE LEAK COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${LEAK}" LEAK)
file(CONFIGURE OUTPUT version.h CONTENT [[static const char says[] = R"x({"worker_version": "0.1.0",
"lane": "@DGR_LANE@", "lane_digest": "@DGR_LANE_DIGEST@", "commit": "@DGR_PIN_COMMIT@",
"upstream_build": @DGR_UPSTREAM_BUILD@, "backends": ["CPU"], "built": "@LEAK@"})x";
]])
add_executable(dgr-shard-worker main.cpp)
target_include_directories(dgr-shard-worker PRIVATE "${CMAKE_BINARY_DIR}")
target_link_libraries(dgr-shard-worker PRIVATE ggml)
"""
_MAIN = b"""
#include <cassert>
#include <cstdio>
#include "version.h"
extern "C" int ggml(void);
static const char when[] = __FILE__ " on " __DATE__ " at " __TIME__;
int main() { std::puts(says); return ggml() == 0 || std::fputs(when, stderr) < 0; }
"""
# Stands in for an archive whose modes depend on who packs it.
_UMASK_IN_TAR = """
import os
from dgr_build.lanes import package_tar
mask = os.umask(0o022)
package_tar._PROGRAM_MODE = 0o777 & ~0o077 if os.environ["TZ"] != "UTC" else 0o755
os.umask(mask)
"""


@pytest.fixture(scope="module")
def _programs():
    missing = [name for name in ("faketime", "diffoscope") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} is not installed")


@pytest.fixture
def small(git_repo, isolated, project_root, _programs):
    """A maker of what is built twice, by what its build asks of its surroundings."""
    upstream = git_repo("upstream")
    files = {"CMakeLists.txt": _GGML, "ggml.c": b"int ggml(void) { return 0; }\n", "LICENSE": b"none\n"}
    base = upstream.commit("base", files)
    upstream.git("repack", "-adq")
    downloads = isolated / "cache" / "downloads"
    downloads.mkdir(parents=True)
    archive = downloads / "made-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(upstream.objects, "made-1.0/.git/modules/up/objects")
    provider = {
        "kind": "sdist", "package": "made", "version": "1.0", "objects": ".git/modules/up",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(), "size": archive.stat().st_size,
    }  # fmt: skip
    pin = {
        "commit": base, "tree": upstream.tree(), "committed": dt.date(2026, 10, 1), "build": 1,
        "version": "1", "providers": [provider],
    }  # fmt: skip
    upstream.commit("Return one", {"ggml.c": b"int ggml(void) { return 1; }\n"})
    project = git_repo("project")
    matrix = (project_root / "lanes" / "matrix.toml").read_text()
    matrix = re.sub(r'^pkg_config = .*$|^libraries = \["grpc.*$', "", matrix, flags=re.MULTILINE)
    project.write(
        {
            "LICENSE": b"none\n",
            "lanes/matrix.toml": matrix.encode(),
            "manifests/llama.cpp.toml": tomli_w.dumps(pin).encode(),
            "native/main.cpp": _MAIN,
            "native/conan.lock": b"{}\n",
            "native/reference/CMakeLists.txt": b"",
        }
    )
    (project.path / "patches").mkdir()
    export(upstream.path, project.path / "patches", base=base, pinned=(base, pin["tree"]))

    def make(asks="echo nothing", **fields):
        project.write({"native/CMakeLists.txt": _WORKER.replace("ASKS", asks).encode()})
        ws = Workspace(project=project.path, root=isolated / "workspace", cache=isolated / "cache")
        publish_source(ws)
        chosen = choose(
            load_matrix(ws.matrix_file), "cpu", profile=None, host_file=ws.host_overrides, stated=()
        )
        made = enter(ws, chosen.matrix, "host")
        return Wanted(ws=ws, chosen=chosen, made=made, **fields)

    return make


def test_what_takes_nothing_from_its_surroundings_comes_to_the_same_bytes(small):
    wanted = small()
    check = reproduce(wanted)
    assert set(check.result["sha256"]) == {"worker", "wheel", "tar"}
    varied = check.result["surroundings"]
    assert varied["umask"] == ["0022", "0077"]
    assert all(len(set(varied[name])) == 2 for name in ("TZ", "LC_ALL", "HOME", "jobs"))
    assert "400 days" in varied["clock"]
    assert str(wanted.ws.root) not in str(check)
    assert not wanted.ws.reproduction("").exists()


@pytest.mark.parametrize("asks", ["date +%Y", "echo '${CMAKE_SOURCE_DIR}'", "uname -n", "umask"])
def test_what_gets_in_from_the_surroundings_is_found_and_explained(small, asks):
    wanted = small(asks)
    with pytest.raises(CheckError) as failed:
        reproduce(wanted)
    assert re.search(r"^worker: differs from byte \d+ on \(sections \.rodata", failed.value.cause)
    assert '"built"' in failed.value.cause
    assert '"built"' in (wanted.ws.logs("reproduce") / "cpu-worker.txt").read_text()


def test_a_mode_in_the_tarball_that_depends_on_who_packs_is_found(small, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(_UMASK_IN_TAR)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CheckError) as failed:
        reproduce(small())
    assert "bin/dgr-shard-worker: mode 755 and 700" in failed.value.cause
    assert not re.search("^(worker|wheel):", failed.value.cause, re.MULTILINE)


def test_a_worker_that_is_not_the_lanes_own_is_found(small, tmp_path):
    own = tmp_path / "dgr-shard-worker"
    own.write_bytes(b"another")
    with pytest.raises(CheckError):
        reproduce(small(own=own))


def test_what_the_compiler_cache_answers_is_the_same_bytes(small):
    wanted = small()
    ws, chosen = wanted.ws, wanted.chosen
    planned = plan_lane(ws, chosen, publish_source(ws).facts, wanted.made)
    places = worker_places(ws, chosen.folder)
    job = Job(ws=ws, matrix=chosen.matrix, plan=planned.worker, places=places, toolchain=planned.toolchain)
    own = build_plan(job, Options()).program
    assert b"project/main.cpp on " in own.read_bytes()
    reproduce(replace(wanted, own=own))


def test_a_few_objects_are_held_against_each_other_without_the_rest(small):
    check = reproduce(small(objects=2))
    assert set(check.result["sha256"]) == {"project/main.cpp", "source/ggml.c"}


def test_two_builds_alone_are_recorded_and_build_nothing_of_the_lanes_own(small, monkeypatch):
    ws = small().ws
    monkeypatch.setattr("dgr_build.flows.lane.ensure_packages", lambda _: None)  # it needs none
    outcome = run_lane(ws, Request(lane="cpu", only="reproduce", reproduce=True, objects=1, publish=True))
    record = load_json(ws.published_evidence / "reproduce-cpu" / "record.json", Record)
    assert outcome.evidence == ws.evidence / f"{record.id}.json"
    assert record.commands[0].argv == ("dgr-build", "lane", "cpu", "--only", "reproduce", "--objects", "1")
    assert record.digests.lane_digest == outcome.digest
    assert (record.digests.worker_sha256, record.results[0].passes) == (None, True)
    assert "the same bytes" in (ws.published_evidence / "reproduce-cpu" / "README.md").read_text()
    assert not (ws.root / "build").exists()


def test_a_build_that_fails_fails_as_itself_and_leaves_what_it_made(small):
    wanted = small("echo nothing; exit 3")
    with pytest.raises(BuildError) as failed:
        reproduce(wanted)
    assert str(wanted.ws.reproduction("a")) in failed.value.remedy
