"""Each comparison of the benchmark on a made upstream of one file, with real git, tar, cmake and ninja."""

from __future__ import annotations

import datetime as dt
import hashlib
import sys
import tarfile

import pytest
import tomli_w

from dgr_build.flows import bench_compile, bench_rows
from dgr_build.flows.bench_ground import Ground
from dgr_build.flows.bench_measure import compare
from dgr_build.patches.export import export
from dgr_build.workspace import Workspace, remove

# Stands for the lane, which would compile for many minutes: publishes both trees and builds one file of each.
_LANE = """
import os, subprocess, sys
from contextlib import closing
from dgr_build.documents.series import load_series
from dgr_build.lanes.stamp import Stamp, write_stamp
from dgr_build.lanes.toolchain import own_program
from dgr_build.patches.project import apply_project
from dgr_build.source import checkout
from dgr_build.source.resolve import open_store
from dgr_build.workspace import Workspace
if sys.argv[1] != "lane":
    os.execv(sys.executable, [sys.executable, "-P", "-m", "dgr_build", *sys.argv[1:]])
ws = Workspace.open()
apply_project(ws, publish_at=ws.source)
with closing(open_store(ws.store)) as store:
    checkout.update(store, load_series(ws.series_file).base_tree, ws.base_source)
for name, source in (("cpu", ws.source), ("cpu-reference", ws.base_source)):
    if "source" in sys.argv:
        break
    build = ws.build(name)
    arguments = ["-S", str(ws.native), "-B", str(build), "-G", "Ninja", f"-DDGR_LLAMA_SOURCE:PATH={source}",
                 f"-DCMAKE_MAKE_PROGRAM:FILEPATH={own_program('ninja')}",
                 "-DCMAKE_CXX_COMPILER_LAUNCHER:STRING=/not/there"]
    variables = {"PATH": "/usr/bin:/bin"}
    for command in ([own_program("cmake"), *arguments[:-1]], [own_program("ninja"), "-C", str(build)]):
        subprocess.run(command, check=True, env=variables)
    stamp = Stamp(project=str(ws.native), family="0" * 64, digest="0" * 64, arguments=tuple(arguments),
                  plan={"variables": variables})
    write_stamp(build, stamp)
"""
_CMAKE = """cmake_minimum_required(VERSION 3.20)
project(small CXX)
add_executable(dgr-shard-worker ${DGR_LLAMA_SOURCE}/src/main.cpp)
"""


@pytest.fixture
def small(git_repo, tmp_path, isolated):
    """A ground over a project with one patch on a made upstream whose archive is in the cache."""
    upstream = git_repo("upstream")
    base = upstream.commit("base", {"src/main.cpp": b"int main() {\n    return 1;\n}\n"})
    upstream.git("repack", "-adq")
    downloads = isolated / "cache" / "downloads"
    downloads.mkdir(parents=True)
    archive = downloads / "made-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(upstream.objects, "made-1.0/.git/modules/up/objects")
    project = git_repo("project")
    (project.path / "manifests").mkdir()
    pin = {
        "commit": base, "tree": upstream.tree(), "committed": dt.date(2026, 10, 1), "build": 1,
        "version": "1",
        "providers": [
            {
                "kind": "sdist", "package": "made", "version": "1.0", "objects": ".git/modules/up",
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(), "size": archive.stat().st_size,
            }
        ],
    }  # fmt: skip
    (project.path / "manifests" / "llama.cpp.toml").write_text(tomli_w.dumps(pin))
    upstream.commit("Return nothing", {"src/main.cpp": b"int main() {\n    return 0;\n}\n"})
    (project.path / "patches").mkdir()
    export(upstream.path, project.path / "patches", base=base, pinned=(base, pin["tree"]))
    project.commit("all", {"native/CMakeLists.txt": _CMAKE.encode()})
    script = tmp_path / "own.py"
    script.write_text(_LANE)
    ws = Workspace(project=project.path, root=isolated / "workspace", cache=isolated / "cache")
    place = isolated / "place"
    place.mkdir()
    yield Ground(ws=ws, place=place, jobs=1, own=(sys.executable, "-P", str(script)))
    remove(place)


def _content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "make",
    [bench_rows.source, bench_rows.verify, bench_rows.verify_kept, bench_compile.edit, bench_compile.cold],
)
def test_both_ways_of_a_comparison_run_and_leave_the_persons_files_alone(small, make, record_property):
    before = _content(small.ws.project)
    row = compare(make(small), 2)
    record_property(row.name, row.ratio.estimate)
    assert len(row.ours_seconds) == len(row.theirs_seconds) == 2
    assert _content(small.ws.project) == before
    assert not small.ws.root.exists()


def test_the_edit_reaches_both_programs_sources(small):
    comparison = bench_compile.edit(small)
    comparison.ours.prepare()
    comparison.ours.run()
    comparison.theirs.prepare()
    comparison.theirs.run()
    ours, theirs = (
        (root / "src" / "current" / "src" / "main.cpp").read_text()
        for root in (small.private, small.place / "plain")
    )
    assert "// measured 0" in ours
    assert "// measured 1" in theirs
