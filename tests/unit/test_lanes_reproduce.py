"""Surroundings that differ in all that is promised, and differences that are named and explained."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import CheckError, HostError
from dgr_build.flows.reproduce import Wanted
from dgr_build.lanes import differences, reproduce
from dgr_build.lanes.differences import Difference, compare, explain, first_offset
from dgr_build.lanes.environment.made import Made
from dgr_build.lanes.lane import choose
from dgr_build.lanes.object_set import choose_objects
from dgr_build.lanes.reproduce import Clock, named_machine, other_clock, require_different, two_surroundings
from dgr_build.workspace import Workspace

_HOST = Made(name="host", kind="host", digest="")
_SEEN = {
    "folder": "/a", "umask": "0022", "TZ": "UTC", "LC_ALL": "C", "HOME": "/x", "jobs": "2", "clock": "1000",
}  # fmt: skip
_OTHER = {
    "folder": "/b", "umask": "0077", "TZ": "Asia/Tokyo", "LC_ALL": "tr", "HOME": "/y", "jobs": "1",
    "clock": "34561000",
}  # fmt: skip


def _tar(path: Path, **fields_of_member):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("top/README.txt", "top/bin/worker"):
            info = tarfile.TarInfo(name)
            info.mode, info.size = 0o755, 4
            if name.endswith("worker"):
                for field, value in fields_of_member.items():
                    setattr(info, field, value)
            tar.addfile(info, io.BytesIO(b"text"))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return path


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_two_surroundings_share_nothing(cores):
    first, second = two_surroundings(cores)
    for field in fields(first):
        assert getattr(first, field.name) != getattr(second, field.name)
    for name in ("TZ", "LC_ALL", "HOME"):
        assert first.variables[name] != second.variables[name]
    assert min(first.jobs, second.jobs) >= 1
    assert " " in second.folder
    assert not second.folder.isascii()


@pytest.mark.parametrize("name", [*reproduce.PROMISED])
def test_a_build_that_did_not_have_what_was_promised_is_no_proof(name):
    require_different(_SEEN, _OTHER)
    with pytest.raises(CheckError) as refused:
        require_different(_SEEN, {**_OTHER, name: _SEEN[name]})
    assert name in refused.value.cause


def test_a_clock_that_compilers_cannot_have_is_not_asked_for():
    require_different(_SEEN, {**_OTHER, "clock": _SEEN["clock"]}, clock=False)


@pytest.mark.parametrize(("lane", "possible"), [("cpu", True), ("rocm", True), ("cuda", False)])
def test_the_compiler_of_cuda_gets_no_other_clock_which_would_hang_it(project_root, lane, possible):
    ws = Workspace(project=project_root, root=Path("/nowhere"), cache=Path("/nowhere"))
    chosen = choose(load_matrix(ws.matrix_file), lane, profile=None, host_file=ws.host_overrides, stated=())
    assert Wanted(ws=ws, chosen=chosen, made=_HOST).clock_compiles is possible


def test_without_faketime_nothing_is_built(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError) as refused, other_clock(_HOST):
        pass
    assert "faketime" in refused.value.remedy


def test_the_real_clock_needs_no_library_and_another_one_says_how_far_it_is_ahead():
    clock = Clock(library=Path("/lib/clock.so"), foreign=False)
    assert clock.variables(0) == {}
    assert clock.variables(400)["FAKETIME"] == "+400d"
    assert clock.variables(400)["LD_PRELOAD"] == "/lib/clock.so"


def test_a_machine_keeps_its_name_where_no_other_is_asked_for():
    assert named_machine("") == ()


@given(
    same=st.binary(max_size=40),
    ours=st.binary(max_size=9),
    theirs=st.binary(max_size=9),
    chunk=st.integers(1, 9),
)
def test_the_first_byte_that_differs_is_found_wherever_reads_end(tmp_path_factory, same, ours, theirs, chunk):
    folder = tmp_path_factory.getbasetemp()
    first, second = folder / "first", folder / "second"
    first.write_bytes(same + ours)
    second.write_bytes(same + theirs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "_CHUNK", chunk)
        at = first_offset(first, second)
    one, other = same + ours, same + theirs
    assert one[:at] == other[:at]
    assert one == other or one[at : at + 1] != other[at : at + 1]


def test_equal_outputs_have_no_differences_and_every_other_is_named(tmp_path):
    paths = {name: tmp_path / name for name in ("one", "same", "other")}
    for name, path in paths.items():
        path.write_text("text" if name != "other" else "texT")
    assert compare({"a": paths["one"]}, {"a": paths["one"]}) == ()
    found = compare(
        {"a": paths["one"], "b": paths["one"], "c": paths["one"]}, {"a": paths["one"], "b": paths["other"]}
    )
    assert [difference.output for difference in found] == ["b", "c"]
    assert found[1].second is None
    assert "only the first" in found[1].line


def test_a_name_that_differs_is_a_difference(tmp_path):
    for name in ("x-1.whl", "x-2.whl"):
        (tmp_path / name).write_text("text")
    (found,) = compare({"wheel": tmp_path / "x-1.whl"}, {"wheel": tmp_path / "x-2.whl"})
    assert "x-1.whl and x-2.whl" in found.line


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"mode": 0o700}, "mode 755 and 700"), ({"mtime": 5}, "time 0 and 5"), ({"uname": "root"}, "owner")],
)
def test_what_differs_in_a_tarball_is_named_with_its_member(tmp_path, changed, named):
    first, second = _tar(tmp_path / "a" / "x.tar.gz"), _tar(tmp_path / "b" / "x.tar.gz", **changed)
    (found,) = compare({"tar": first}, {"tar": second})
    assert found.where.startswith(f"top/bin/worker: {named}")


def test_a_tarball_that_is_only_packed_otherwise_says_so(tmp_path):
    first = _tar(tmp_path / "a" / "x.tar.gz")
    second = tmp_path / "b" / "x.tar.gz"
    second.parent.mkdir()
    second.write_bytes(gzip.compress(gzip.decompress(first.read_bytes()), mtime=9))
    (found,) = compare({"tar": first}, {"tar": second})
    assert "packed" in found.where


def test_the_order_in_a_wheel_is_seen(tmp_path):
    for folder, names in (("a", "xy"), ("b", "yx")):
        (tmp_path / folder).mkdir()
        with zipfile.ZipFile(tmp_path / folder / "x.whl", "w") as wheel:
            for name in names:
                wheel.writestr(zipfile.ZipInfo(name), "text")
    (found,) = compare({"wheel": tmp_path / "a" / "x.whl"}, {"wheel": tmp_path / "b" / "x.whl"})
    assert "x stands where the other has y" in found.line


_DIFFOSCOPE = """#!/bin/sh
printf '%s\n' "$@" > "${0%/*}/arguments"
while [ "$1" != --text ]; do shift; done
cat > "$2" <<'REPORT'
--- a
+++ b
├── readelf --headers {}
│ -size 9
│ +size 10
├── strings {}
│  same
│ -built at ten
│ +built at eleven
REPORT
exit 1
"""


@pytest.fixture
def diffoscope(tmp_path, monkeypatch):
    """A program of this name that finds a difference and writes down what it was given."""
    program = tmp_path / "bin" / "diffoscope"
    program.parent.mkdir()
    program.write_text(_DIFFOSCOPE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def test_a_difference_is_explained_by_diffoscope_what_can_be_read_first(diffoscope, tmp_path):
    difference = Difference(output="worker", first=tmp_path / "a", second=tmp_path / "b", offset=3)
    report = tmp_path / "logs" / "worker.txt"
    said = explain(difference, report, 60)
    assert "same" not in said
    assert said.index("built at eleven") < said.index("size 9")
    assert "readelf" in report.read_text()
    given_to_it = diffoscope.with_name("arguments").read_text().split()
    assert given_to_it[-2:] == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_a_diffoscope_that_takes_too_long_is_ended_and_said_so(diffoscope, tmp_path, monkeypatch):
    diffoscope.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(differences, "_GRACE_S", 0.2)
    difference = Difference(output="worker", first=tmp_path / "a", second=tmp_path / "b", offset=3)
    assert "ended after" in explain(difference, tmp_path / "report", 0.1)


def test_a_difference_without_diffoscope_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(differences.shutil, "which", lambda _: None)
    difference = Difference(output="worker", first=tmp_path / "a", second=tmp_path / "b", offset=3)
    assert "apt-get install" in explain(difference, tmp_path / "report", 60)


def _commands(names, clone="/one"):
    """Objects as CMake lists them; some generators put the source's own folder into their path."""
    return [
        {
            "directory": f"{clone}/b",
            "output": f"{clone}/b/x/ggml-cuda.dir{clone}/{name}.o",
            "file": f"{clone}/src/{name}",
        }
        for name in names
    ]


_PLAIN = [f"cuda/{name}.cu" for name in "abcdefgh"]
_INSTANCES = [f"cuda/template-instances/{name}.cu" for name in ("fattn-vec-x", "mmq-y")]


def test_an_object_set_is_the_same_wherever_the_clone_lies():
    one = choose_objects(_commands([*_PLAIN, *_INSTANCES]), {"/one/src": "source"}, 5)
    other = choose_objects(
        _commands([*_INSTANCES, *_PLAIN[::-1]], clone="/the other/ä"), {"/the other/ä/src": "source"}, 5
    )
    assert [*one] == [*other]
    assert len(one) == 5
    assert all(name.startswith("source/cuda/") for name in one)
    assert not any(output.startswith("/") for output in one.values())


def test_an_object_set_is_of_device_code_with_one_instance_of_attention():
    host = {"directory": "/one/b", "output": "/one/b/w/worker.dir/main.cpp.o", "file": "/one/native/main.cpp"}
    chosen = choose_objects([host, *_commands([*_PLAIN, *_INSTANCES])], {"/one/src": "source"}, 5)
    assert [name for name in chosen if "template-instances" in name] == [f"source/{_INSTANCES[0]}"]
    assert not any("main.cpp" in name for name in chosen)


def test_an_object_set_of_a_lane_without_device_code_is_of_what_there_is():
    commands = [
        {"directory": "/b", "output": f"w.dir/{name}.o", "file": f"/s/{name}"} for name in ("a.cpp", "b.cpp")
    ]
    assert choose_objects(commands, {}, 6) == {"a.cpp": "w.dir/a.cpp.o", "b.cpp": "w.dir/b.cpp.o"}


def test_a_build_without_objects_is_refused():
    with pytest.raises(CheckError):
        choose_objects([], {}, 3)
