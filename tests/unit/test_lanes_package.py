"""Packages of a worker: which systems they are for, what is refused, and the same bytes every time."""

import gzip
import hashlib
import json
import os
import struct
import tarfile
import time
import zipfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.errors import CheckError, UsageError
from dgr_build.lanes.package import Subject, check_subject, package_version
from dgr_build.lanes.package_licenses import linked_licenses
from dgr_build.lanes.package_tar import make_tar
from dgr_build.lanes.package_target import Target, platform_tag, read_target
from dgr_build.lanes.package_wheel import make_wheel

_EPOCH = 1_790_812_800  # 2026-10-01
_BASE = {"libc.so.6": ("GLIBC_2.34",), "libstdc++.so.6": ("GLIBCXX_3.4.29",)}
_SAID = {
    "worker_version": "0.1.0",
    "lane": "cpu",
    "lane_digest": "0123456789abcdef" * 4,
    "isa": "x86-64-v3",
    "upstream_build": 11312,
}


def _elf(versions, run_path="$ORIGIN", machine=62):
    """Return the smallest ELF file that says what it needs: .dynstr, .dynamic, .gnu.version_r, .shstrtab."""
    strings = bytearray(b"\0")

    def text(value):
        strings.extend(value.encode() + b"\0")
        return len(strings) - len(value.encode()) - 1

    needed = [(1, text(name)) for name in versions]
    searched = [(29, text(run_path))] if run_path else []
    wanted = bytearray()
    for n, (library, asked) in enumerate(versions.items()):
        last = n == len(versions) - 1
        wanted += struct.pack("<HHIII", 1, len(asked), text(library), 16, 0 if last else 16 + 16 * len(asked))
        for m, version in enumerate(asked):
            more = 0 if m == len(asked) - 1 else 16
            wanted += struct.pack("<IHHII", 0, 0, m + 2, text(version), more)
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in [*needed, *searched, (0, 0)])
    names = b"\0.dynstr\0.dynamic\0.gnu.version_r\0.shstrtab\0"
    parts = (
        (b".dynstr", 3, bytes(strings), 0, 0, 0),
        (b".dynamic", 6, dynamic, 1, 0, 16),
        (b".gnu.version_r", 0x6FFFFFFE, bytes(wanted), 1, len(versions), 0),
        (b".shstrtab", 3, names, 0, 0, 0),
    )
    body, table = b"", bytes(64)
    for name, kind, content, link, info, entry in parts:
        place = struct.pack(
            "<IIQQQQIIQQ", names.index(name), kind, 0, 0, 64 + len(body), len(content), link, info, 8, entry
        )
        table += place
        body += content + bytes(-len(content) % 8)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 5, 4
    )
    return head + body + table


@pytest.fixture
def subject(tmp_path):
    def make(content=None, **fields):
        worker = tmp_path / "built" / "dgr-shard-worker"
        worker.parent.mkdir(exist_ok=True)
        worker.write_bytes(_elf(_BASE) if content is None else content)
        text = tmp_path / "built" / "LICENSE"
        text.write_text("Do as you like.\n")
        said = {**_SAID, **fields.pop("said", {})}
        stated = {
            "lane": "cpu",
            "lane_digest": said["lane_digest"],
            "worker": worker,
            "version": package_version(said),
            "epoch": _EPOCH,
            "needed": tuple(_BASE),
            "run_path": ("$ORIGIN",),
            "licenses": {"second": text, "first": text},
            "said": said,
        }
        return Subject(**{**stated, **fields})

    return make


def _linux(versions, machine="x86_64"):
    return Target(system="linux", machine=machine, needed=tuple(versions), loader_paths=(), versions=versions)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"libc.so.6": ("GLIBC_2.2.5",)}, "manylinux_2_17"),
        ({"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.9")}, "manylinux_2_17"),
        ({"libc.so.6": ("GLIBC_2.34",)}, "manylinux_2_34"),
        ({"libm.so.6": ("GLIBC_2.29",), "libc.so.6": ("GLIBC_2.9",)}, "manylinux_2_31"),
        ({"libc.so.6": ("GLIBC_2.34",), "libstdc++.so.6": ("GLIBCXX_3.4.30",)}, "manylinux_2_35"),
        ({"libc.so.6": ("GLIBC_2.17",), "libstdc++.so.6": ("CXXABI_1.3.15",)}, "manylinux_2_39"),
        ({"libc.so.6": ("GLIBC_2.17",), "libgcc_s.so.1": ("GCC_12.0.0",)}, "manylinux_2_35"),
        ({"libc.so.6": ("GLIBC_2.17", "GLIBC_ABI_DT_RELR")}, "manylinux_2_36"),
        ({"libc.so.6": ("GLIBC_2.99",)}, "linux"),
        ({"libc.so.6": ("GLIBC_2.17", "GLIBC_PRIVATE")}, "linux"),
        ({"libc.so.6": ("GLIBC_2.17",), "libvulkan.so.1": ()}, "linux"),
    ],
)
def test_the_tag_covers_the_newest_symbol_of_every_base_library(versions, expected):
    assert platform_tag(_linux(versions)) == f"{expected}_x86_64"
    assert platform_tag(_linux(versions, "aarch64")) == f"{expected}_aarch64"


def test_a_library_that_requirements_bring_does_not_cost_the_tag():
    target = _linux({"libc.so.6": ("GLIBC_2.34",), "libcublas.so.13": ("libcublas.so.13",)})
    assert platform_tag(target, ["libcublas.so.13"]) == "manylinux_2_34_x86_64"
    assert platform_tag(target, ["libcudart.so.13"]) == "linux_x86_64"


@given(st.lists(st.integers(2, 41), min_size=1))
def test_the_tag_never_promises_an_older_glibc_than_is_asked_for(minors):
    tag = platform_tag(_linux({"libc.so.6": tuple(f"GLIBC_2.{minor}" for minor in minors)}))
    assert int(tag.split("_")[2]) >= max(minors)


@pytest.mark.parametrize("machine", [(62, "x86_64"), (183, "aarch64")])
def test_a_program_tells_what_it_needs_of_a_system(tmp_path, machine):
    program = tmp_path / "program"
    program.write_bytes(_elf(_BASE, "$ORIGIN:$ORIGIN/../lib", machine[0]))
    target = read_target(program)
    assert (target.system, target.machine, target.glibc) == ("linux", machine[1], "2.34")
    assert target.loader_paths == ("$ORIGIN", "$ORIGIN/../lib")
    assert target.versions == _BASE


@pytest.mark.parametrize(
    "content",
    [b"", b"#!/bin/sh\n", _elf(_BASE, machine=243), _elf(_BASE)[:100]],
    ids=["empty", "script", "RISC-V", "cut ELF"],
)
def test_what_is_no_program_for_a_known_system_is_refused(subject, tmp_path, content):
    for make in (make_wheel, make_tar):
        with pytest.raises(CheckError):
            make(subject(content), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (_elf(_BASE, ""), {}),
        (_elf(_BASE, "$ORIGIN"), {"run_path": ("$ORIGIN", "$ORIGIN/../../nvidia/cu13/lib")}),
        (_elf(_BASE, "$ORIGIN:/opt/lib"), {}),
        (_elf(_BASE, "/opt/lib"), {"run_path": ("/opt/lib",)}),
        (None, {"needed": ("libc.so.6",)}),
        (None, {"needed": (*_BASE, "libm.so.6")}),
        (None, {"provided": ("libcublas.so.13",)}),
        (None, {"provided": ("libc.so.6",)}),
        (None, {"lane": "cuda"}),
        (None, {"lane_digest": "f" * 64}),
    ],
    ids=["no run path", "short", "longer", "absolute", "needs more", "needs less", "unneeded",
         "run path stays inside", "other lane", "other digest"],
)  # fmt: skip
def test_a_worker_that_is_not_what_is_said_of_it_is_refused(subject, content, fields):
    with pytest.raises(CheckError) as caught:
        check_subject(subject(content, **fields))
    assert "dgr-build lane" in caught.value.remedy


@pytest.mark.parametrize(
    "fields",
    [
        {"version": "llama"},
        {"version": "0.1.0+llama.007"},
        {"requires": ("nvidia cublas 13",)},
        {"licenses": {}},
        {"licenses": {"../up": None}},
    ],
)
def test_words_that_no_installer_would_take_are_refused(subject, fields):
    with pytest.raises(UsageError):
        check_subject(subject(**fields))


def test_the_version_names_the_lane_digest_even_where_it_is_all_digits():
    said = {**_SAID, "lane_digest": "012345678901" + "0" * 52}
    assert package_version(said) == "0.1.0+llama11312.d012345678901"


def _members(package):
    """Return name, content, permissions and time of every file in a package."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as file:
            return [
                (m.filename, file.read(m), m.external_attr >> 16 & 0o777, m.date_time)
                for m in file.infolist()
            ]
    with tarfile.open(package) as file:
        files = [m for m in file.getmembers() if m.isfile()]
        return [(m.name.partition("/")[2], file.extractfile(m).read(), m.mode, m.mtime) for m in files]


@pytest.mark.parametrize("make", [make_wheel, make_tar])
def test_a_package_is_the_same_under_another_umask_zone_folder_home_and_clock(
    subject, tmp_path, monkeypatch, make
):
    first = make(subject(), tmp_path / "one")
    elsewhere = tmp_path / "söme where else"
    elsewhere.mkdir()
    worker = subject().worker
    worker.chmod(0o700)
    os.utime(worker, (1, 1))
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setenv("SKBUILD_WHEEL_BUILD_TAG", "7")
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    time.tzset()
    before = os.umask(0o077)
    try:
        given = subject()
        second = make(replace(given, licenses=dict(reversed(given.licenses.items()))), elsewhere / "two")
    finally:
        os.umask(before)
        monkeypatch.undo()
        time.tzset()
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("make", [make_wheel, make_tar])
def test_a_package_holds_nothing_of_where_and_when_it_was_made(subject, tmp_path, make):
    package = make(subject(), tmp_path / "out")
    folder = str(tmp_path).encode()
    for name, content, mode, when in _members(package):
        assert folder not in content, name
        assert mode == (0o755 if name.endswith("bin/dgr-shard-worker") else 0o644), name
        assert when in {_EPOCH, (2026, 10, 1, 0, 0, 0)}, name
    assert [path.name for path in (tmp_path / "out").iterdir()] == [package.name]


def test_the_members_of_a_tarball_are_sorted_nobodys_and_below_one_folder(subject, tmp_path):
    package = make_tar(subject(), tmp_path / "out")
    assert package.read_bytes()[3:8] == bytes(5)  # no name, no time in the header of gzip
    with tarfile.open(package) as file:
        members = file.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {m.name.partition("/")[0] for m in members} == {package.name.removesuffix(".tar.gz")}
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", _EPOCH)}
    assert str(tmp_path).encode() not in gzip.decompress(package.read_bytes())


@pytest.mark.parametrize("make", [make_wheel, make_tar])
def test_the_manifest_is_true_of_the_package(subject, tmp_path, make):
    run_path = "$ORIGIN/../../nvidia/cu13/lib"
    versions = {**_BASE, "libcublas.so.13": ("libcublas.so.13",)}
    given = subject(
        _elf(versions, f"$ORIGIN:{run_path}"),
        needed=tuple(versions),
        run_path=("$ORIGIN", run_path),
        requires=("nvidia-cublas==13.1.1.3",),
        provided=("libcublas.so.13",),
    )
    members = {name: content for name, content, _, _ in _members(make(given, tmp_path / "out"))}
    about = json.loads(next(content for name, content in members.items() if name.endswith("MANIFEST.json")))
    hashes = {name: entry["sha256"] for name, entry in about["files"].items()}
    ours = {name: content for name, content in members.items() if ".dist-info/" not in name}
    assert hashes == {
        name: hashlib.sha256(content).hexdigest()
        for name, content in ours.items()
        if not name.endswith("MANIFEST.json")
    }
    needs = about["needs"]
    assert (about["lane"], about["lane_digest"]) == ("cpu", _SAID["lane_digest"])
    assert (needs["glibc"], needs["isa"], needs["platform_tag"]) == (
        "2.34",
        "x86-64-v3",
        "manylinux_2_34_x86_64",
    )
    assert needs["loader_paths"] == ["$ORIGIN", run_path]
    assert needs["python_packages"][0]["minimum"] == "13.1.1.3"
    assert {library["name"]: library["from"] for library in needs["libraries"]} == {
        "libc.so.6": "system",
        "libstdc++.so.6": "system",
        "libcublas.so.13": "python packages",
    }


def test_a_runtime_that_nothing_brings_is_named(subject, tmp_path):
    versions = {**_BASE, "libamdhip64.so.6": ("hip_4.2", "hip_6.0")}
    given = subject(_elf(versions), needed=tuple(versions))
    members = {name: content for name, content, _, _ in _members(make_tar(given, tmp_path))}
    runtime = next(
        library
        for library in json.loads(members["MANIFEST.json"])["needs"]["libraries"]
        if "hip" in library["name"]
    )
    assert runtime == {"name": "libamdhip64.so.6", "from": "vendor runtime", "newest_symbols": {"hip": "6.0"}}
    assert b"libamdhip64.so.6 with hip 6.0" in members["README.txt"]
    assert make_wheel(given, tmp_path).name.endswith("-py3-none-linux_x86_64.whl")


def test_a_wheel_says_what_it_requires_and_carries_every_license(subject, tmp_path):
    lane = {"lane": "cpu-clang", "said": {"lane": "cpu-clang"}}
    package = make_wheel(subject(**lane, requires=("nvidia-cublas>=13.1",)), tmp_path / "out")
    members = {name: content.decode() for name, content, _, _ in _members(package) if "bin/" not in name}
    info = f"dgr_worker_cpu_clang-{package_version(_SAID)}.dist-info"
    assert "Requires-Dist: nvidia-cublas>=13.1" in members[f"{info}/METADATA"]
    assert "Tag: py3-none-manylinux_2_34_x86_64" in members[f"{info}/WHEEL"]
    assert "dgr-shard-worker = dgr_worker_cpu_clang:main" in members[f"{info}/entry_points.txt"]
    text = members[f"{info}/licenses/LICENSES.txt"]
    assert text.index("first") < text.index("second")
    assert text.count("Do as you like.") == 2


def test_packing_again_replaces_the_package_of_the_same_name(subject, tmp_path):
    for make in (make_wheel, make_tar):
        package = make(subject(), tmp_path / "out")
        good = package.read_bytes()
        package.write_bytes(b"of an earlier version of this tool")
        assert make(subject(), tmp_path / "out") == package
        assert package.read_bytes() == good


def test_the_license_of_a_package_goes_with_each_archive_and_header_of_it(tmp_path):
    info, docs, lib = (tmp_path / path for path in ("var/lib/dpkg/info", "usr/share/doc", "usr/lib"))
    for folder in (
        info,
        docs / "libgrpc-dev",
        docs / "zlib1g-dev",
        docs / "unused",
        docs / "libspdlog-dev",
        lib,
    ):
        folder.mkdir(parents=True)
    (info / "libgrpc-dev:amd64.list").write_text("/.\n/usr/lib/libgrpc.a\n/usr/lib/libgpr.a\n")
    (info / "zlib1g-dev.list").write_text("/lib/libz.a\n")
    (info / "libspdlog-dev:amd64.list").write_text("/usr/include/spdlog/spdlog.h\n")
    (info / "unused.list").write_text("/usr/lib/libunused.a\n")
    for folder in docs.iterdir():
        (folder / "copyright").write_text(folder.name)
    archives = [lib / name for name in ("libgrpc.a", "libgpr.a", "libz.a", "libmine.a")]
    found = linked_licenses(archives, tmp_path)
    assert found == {
        name: docs / name / "copyright" for name in ("libgrpc-dev", "libspdlog-dev", "zlib1g-dev")
    }
