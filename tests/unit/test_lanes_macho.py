"""Programs of macOS, read from bytes that the tests compose: no Mac takes part, and no linker of one."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import CheckError
from dgr_build.lanes.inspect import Limits, check_facts, program_facts
from dgr_build.lanes.macho import macho_facts
from dgr_build.lanes.package import Subject, check_subject, package_version
from dgr_build.lanes.package_tar import make_tar
from dgr_build.lanes.package_target import platform_tag, read_target
from dgr_build.lanes.package_wheel import make_wheel
from dgr_build.workspace import Workspace

_ARM64, _X86_64, _RISCV = 0x0100000C, 0x01000007, 0x01000018
_EXECUTE, _DYLIB = 2, 6
_MACOS, _IOS = 1, 2
_LOAD, _LOAD_WEAK, _RUN_PATH, _BUILD_VERSION, _UNHEARD_OF = 0x0C, 0x80000018, 0x8000001C, 0x32, 0x7E
_SYSTEM = "/usr/lib/libSystem.B.dylib"
_METAL = "/System/Library/Frameworks/Metal.framework/Versions/A/Metal"


def _command(kind, fixed, text=""):
    body = fixed + (text.encode() + b"\0" if text else b"")
    body += bytes(-len(body) % 8)
    return struct.pack("<II", kind, 8 + len(body)) + body


def _library(name, kind=_LOAD):
    return _command(kind, struct.pack("<IIII", 24, 2, 0x10000, 0x10000), name)


def _run_path(path):
    return _command(_RUN_PATH, struct.pack("<I", 12), path)


def _oldest(major, minor=0, patch=0, platform=_MACOS):
    version = major << 16 | minor << 8 | patch
    return _command(_BUILD_VERSION, struct.pack("<IIIIII", platform, version, 15 << 16, 1, 3, 0x10F0000))


def _file(*commands, processor=_ARM64, kind=_EXECUTE):
    head = (0xFEEDFACF, processor, 0, kind, len(commands), sum(map(len, commands)), 0x200085, 0)
    return struct.pack("<IIIIIIII", *head) + b"".join(commands)


_USUAL = (_oldest(14), _library(_SYSTEM), _library(_METAL), _run_path("@loader_path"))
_FOR_TWO = struct.pack(">II", 0xCAFEBABE, 2) + b"".join(
    struct.pack(">IIIII", processor, 0, 4096 * place, len(_file(*_USUAL)), 12)
    for place, processor in ((1, _X86_64), (2, _ARM64))
)
_FOR_TWO = (_FOR_TWO.ljust(4096, b"\0") + _file(*_USUAL, processor=_X86_64)).ljust(8192, b"\0") + _file(
    *_USUAL
)


@pytest.fixture
def program(tmp_path):
    def write(content):
        file = tmp_path / "dgr-shard-worker"
        file.write_bytes(content)
        return file

    return write


def test_a_program_states_its_libraries_run_paths_processor_and_oldest_macos(program):
    facts = program_facts(program(_file(*_USUAL, _run_path("@loader_path/../lib"))))
    assert (facts.system, facts.machine, facts.macos) == ("macos", "ARM64", "14.0")
    assert facts.needed == (_SYSTEM, _METAL)
    assert facts.loader_paths == ("@loader_path", "@loader_path/../lib")
    assert (facts.glibc, facts.text_relocations, facts.versions) == ("0", False, {})


def test_a_library_that_may_be_missing_at_start_counts_as_needed(program):
    facts = macho_facts(program(_file(_oldest(14), _library("/opt/lib/libx.dylib", _LOAD_WEAK))))
    assert facts.needed == ("/opt/lib/libx.dylib",)


def test_a_load_command_that_nobody_knows_yet_is_passed_over(program):
    assert macho_facts(program(_file(_command(_UNHEARD_OF, bytes(16)), *_USUAL))).needed == (_SYSTEM, _METAL)


@pytest.mark.parametrize(
    "content",
    [
        _file(*_USUAL)[:40],
        _file(*_USUAL, kind=_DYLIB),
        _file(_library(_SYSTEM)),
        _file(_oldest(17, platform=_IOS)),
        _FOR_TWO,
    ],
    ids=["cut", "a library", "no oldest macOS", "for iOS", "for two processors"],
)
def test_what_is_no_program_of_one_processor_for_macos_is_refused(program, content):
    with pytest.raises(CheckError) as caught:
        program_facts(program(content))
    assert "dgr-build lane" in caught.value.remedy


@given(st.data())
def test_a_damaged_program_is_read_or_refused_and_nothing_else(tmp_path_factory, data):
    content = bytearray(_file(*_USUAL))
    for place in data.draw(st.lists(st.integers(4, len(content) - 1), max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.getbasetemp() / "damaged"
    file.write_bytes(content[: data.draw(st.integers(4, len(content)))])
    try:
        read_target(file)
    except CheckError as error:
        assert error.remedy  # noqa: PT017 - most of them are refused, not all


@pytest.mark.parametrize(
    ("oldest", "tag"),
    [
        ((14,), "macosx_14_0_arm64"),
        ((14, 2), "macosx_15_0_arm64"),
        ((14, 0, 1), "macosx_15_0_arm64"),
        ((10, 15), "macosx_10_15_arm64"),
        ((10, 15, 4), "macosx_10_16_arm64"),
    ],
)
def test_the_tag_promises_no_older_macos_than_the_program_starts_on(program, oldest, tag):
    assert platform_tag(read_target(program(_file(_oldest(*oldest), _library(_SYSTEM))))) == tag


def test_the_tag_names_the_processor_and_one_without_a_name_is_refused(program):
    assert platform_tag(read_target(program(_file(*_USUAL, processor=_X86_64)))) == "macosx_14_0_x86_64"
    with pytest.raises(CheckError):
        read_target(program(_file(*_USUAL, processor=_RISCV)))


_LIMITS = Limits(libraries={_SYSTEM, _METAL}, run_path=("@loader_path",), glibc="0", macos="14.0", private=())


@pytest.mark.parametrize("stated", ["14.0", "14", "15.1"])
def test_a_program_that_needs_what_its_lane_states_is_fit(program, stated):
    file = program(_file(*_USUAL))
    check_facts(file, program_facts(file), replace(_LIMITS, macos=stated))


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (_file(*_USUAL, _library("@rpath/libgrpc.dylib")), "@rpath/libgrpc.dylib"),
        (_file(*_USUAL, _run_path("/opt/homebrew/lib")), "/opt/homebrew/lib"),
        (_file(_oldest(14, 2), *_USUAL[1:]), "macOS 14.2"),
        (_file(_oldest(14, 0, 1), *_USUAL[1:]), "macOS 14.0.1"),
        (_file(*_USUAL) + b"/home of/project/src/x.m", "/home of/project"),
    ],
    ids=["library", "run path", "newer macOS", "newer by a little", "path of the build"],
)
def test_what_a_program_must_not_state_is_named(program, tmp_path, content, shown):
    file = program(content)
    with pytest.raises(CheckError) as caught:
        check_facts(file, program_facts(file), replace(_LIMITS, private=[tmp_path / "/home of/project"]))
    assert shown in caught.value.cause


def test_a_lane_that_promises_no_macos_has_no_program_for_it(program):
    file = program(_file(*_USUAL))
    with pytest.raises(CheckError):
        check_facts(file, program_facts(file), replace(_LIMITS, macos="0"))


def test_every_lane_for_macos_states_its_oldest_and_libraries_that_every_mac_has():
    lanes = load_matrix(Workspace.open().matrix_file).lane.values()
    for lane in (lane for lane in lanes if "Darwin" in lane.systems):
        assert lane.cmake["CMAKE_OSX_DEPLOYMENT_TARGET"]
        assert {_SYSTEM, "/usr/lib/libc++.1.dylib"} <= set(lane.extra_libraries)
        assert all(name.startswith(("/usr/lib/", "/System/Library/")) for name in lane.extra_libraries)


@pytest.mark.parametrize(
    ("make", "named"), [(make_wheel, "macosx_14_0_arm64.whl"), (make_tar, "macos-arm64.tar.gz")]
)
def test_a_worker_for_macos_is_packaged_under_its_tag(program, tmp_path, make, named):
    said = {"worker_version": "0.1.0", "lane": "metal", "lane_digest": "e" * 64, "upstream_build": 11312}
    license_file = tmp_path / "LICENSE"
    license_file.write_text("Do as you like.\n")
    subject = Subject(
        lane="metal",
        lane_digest=said["lane_digest"],
        worker=program(_file(*_USUAL)),
        version=package_version(said),
        epoch=1_790_812_800,
        needed=(_SYSTEM, _METAL),
        run_path=("@loader_path",),
        licenses={"first": license_file},
        said=said,
    )
    assert check_subject(subject).system == "macos"
    assert make(subject, tmp_path / "out").name.endswith(named)
