"""What a lane needs of a machine, looked for with fake programs and on made-up machines."""

import dataclasses
import json
import platform
from pathlib import Path

import pytest

from dgr_build.cli.main import run
from dgr_build.documents.matrix import Environment, InstructionSet, load_matrix
from dgr_build.errors import HostError
from dgr_build.flows import doctor as flow
from dgr_build.flows.doctor import Report, consult, enough
from dgr_build.lanes.doctor import can_build, can_run, examine, missing_cpu_flags, refuse, require_cpu
from dgr_build.lanes.environment_needs import Reach
from dgr_build.lanes.finding import Finding
from dgr_build.lanes.host import Host, read_cpu_flags
from dgr_build.lanes.requirements import Place
from dgr_build.lanes.toolchain import find_toolchain, version_numbers
from dgr_build.workspace import Workspace

_ROOT = Path(__file__).resolve().parents[2]
_MATRIX = load_matrix(_ROOT / "lanes" / "matrix.toml")
_V3 = "sse4_2 avx avx2 fma f16c bmi2"


def _program(folder, name, output, code=0):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def bin_folder(tmp_path, monkeypatch):
    """An empty folder that is the whole PATH of the caller."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def machine(tmp_path):
    """A made-up Linux machine that can make every environment and build lane cpu."""
    root = tmp_path / "machine"
    for name, output in (
        ("g++", "12.2.0"),
        ("ld", "GNU ld 2.40"),
        ("mmdebstrap", "mmdebstrap 1.3.5"),
        ("bwrap", "bubblewrap 0.8.0"),
        ("pkg-config", "1.51.1"),
    ):
        _program(root / "usr/bin", name, output)
    return Host(
        system="Linux",
        machine="x86_64",
        cpu_flags=frozenset(_V3.split()),
        path=("/usr/bin",),
        root=root,
        disk=100_000_000_000,
        memory=16_000_000_000,
    )


def _finding(findings, name):
    return next(finding for finding in findings if finding.name == name)


def _missing(findings, kind="build"):
    return [finding.name for finding in findings if not finding.met and finding.kind == kind]


@pytest.mark.parametrize("lane", ["cpu", "cuda", "rocm", "vulkan"])
def test_a_machine_that_has_everything_lacks_nothing_to_build(machine, lane):
    assert _missing(examine(_MATRIX, lane, host=machine)) == []


@pytest.mark.parametrize(
    ("lane", "program", "name", "old"),
    [
        ("cpu", "g++", "C++17 compiler", "10.2.1"),
        ("cuda", "g++", "C++17 compiler", "10.2.1"),
        ("cpu", "ld", "binutils linker", "GNU ld 2.34"),
        ("cuda", "ld", "binutils linker", "GNU ld 2.34"),
        ("rocm", "mmdebstrap", "mmdebstrap", "mmdebstrap 1.2.0"),
        ("vulkan", "bwrap", "bubblewrap", "bubblewrap 0.4.1"),
    ],
)
def test_programs_are_judged_by_the_version_they_state(machine, lane, program, name, old):
    file = _program(machine.root / "usr/bin", program, old)
    stale = _finding(examine(_MATRIX, lane, host=machine), name)
    assert not stale.met
    assert stale.path == str(file)
    assert stale.version in old
    assert stale.remedy.startswith("apt-get install")
    file.unlink()
    gone = _finding(examine(_MATRIX, lane, host=machine), name)
    assert not gone.met
    assert gone.path == ""


def test_a_program_that_states_no_version_does_not_do(machine):
    _program(machine.root / "usr/bin", "bwrap", "hello")
    assert _missing(examine(_MATRIX, "vulkan", host=machine)) == ["bubblewrap"]


@pytest.mark.parametrize("lane", ["rocm", "vulkan"])
def test_a_lane_of_a_debian_root_needs_no_compiler_of_the_machine(machine, lane):
    for name in ("g++", "ld", "pkg-config"):
        (machine.root / "usr/bin" / name).unlink()
    assert _missing(examine(_MATRIX, lane, host=machine)) == []


@pytest.mark.parametrize("lane", ["rocm", "vulkan"])
def test_what_makes_and_enters_a_root_is_looked_for_in_the_callers_path_alone(machine, lane):
    bare = dataclasses.replace(machine, path=("/opt/bin",))
    assert _missing(examine(_MATRIX, lane, host=bare)) == ["mmdebstrap", "bubblewrap"]
    for name in ("mmdebstrap", "bwrap"):
        (machine.root / "opt/bin").mkdir(parents=True, exist_ok=True)
        (machine.root / "usr/bin" / name).rename(machine.root / "opt/bin" / name)
    found = examine(_MATRIX, lane, host=bare)
    assert _missing(found) == []
    assert _finding(found, "bubblewrap").path == str(machine.root / "opt/bin/bwrap")


@pytest.fixture
def somebody(machine):
    """The made-up machine as a user sees it who is not root and has everything that such a user needs."""
    for name in ("newuidmap", "newgidmap"):
        _program(machine.root / "usr/bin", name, "usage", 1)
    (machine.root / "etc").mkdir()
    for name in ("subuid", "subgid"):
        (machine.root / "etc" / name).write_text("other:100000:65536\nsomebody:165536:65536\n")
    return dataclasses.replace(machine, uid=1000, user="somebody")


_IDS = "subordinate ids of somebody"


@pytest.mark.parametrize("lane", ["rocm", "vulkan"])
def test_who_is_not_root_needs_ids_of_their_own_to_make_a_root(somebody, lane):
    assert _missing(examine(_MATRIX, lane, host=somebody)) == []
    for name in ("subuid", "subgid"):
        (somebody.root / "etc" / name).unlink()
    (somebody.root / "usr/bin/newgidmap").unlink()
    findings = examine(_MATRIX, lane, host=somebody)
    assert _missing(findings) == ["programs that map ids", _IDS]
    assert _finding(findings, "programs that map ids").remedy == "apt-get install uidmap"
    assert _finding(findings, "programs that map ids").note == "no newgidmap"
    assert _finding(findings, _IDS).remedy == (
        "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 somebody (as root)"
    )


@pytest.mark.parametrize(
    "line", ["", "1000:165536:65536", "somebody:165536:1000", "somebody:165536", "somebody:x:y"]
)
def test_only_the_file_that_lacks_ids_is_named_with_ids_that_nobody_has(somebody, line):
    (somebody.root / "etc/subgid").write_text(f"other:100000:65536\n{line}\nmore:231072:65536\n")
    found = _finding(examine(_MATRIX, "vulkan", host=somebody), _IDS)
    assert not found.met
    assert "/etc/subgid" in found.note
    assert "/etc/subuid" not in found.note
    assert found.remedy == "usermod --add-subgids 296608-362143 somebody (as root)"


def test_ids_are_asked_of_nobody_who_makes_no_root(somebody, machine):
    for name in ("subuid", "subgid"):
        (somebody.root / "etc" / name).unlink()
    made = Reach(made=True, root=machine.root)
    for host, lane, reach in ((machine, "vulkan", Reach(made=False)), (somebody, "vulkan", made)):
        names = [finding.name for finding in examine(_MATRIX, lane, host=host, reach=reach)]
        assert not [name for name in names if "ids" in name]
    for lane in ("cpu", "cuda"):
        assert _missing(examine(_MATRIX, lane, host=somebody)) == []


def test_fakechroot_does_in_place_of_ids_as_it_does_for_mmdebstrap(somebody):
    (somebody.root / "etc/subuid").unlink()
    _program(somebody.root / "usr/bin", "fakechroot", "2.20")
    found = _finding(examine(_MATRIX, "vulkan", host=somebody), _IDS)
    assert found.met
    assert "fakechroot" in found.note


def test_a_lane_of_wheels_needs_no_debian_tools(machine):
    for name in ("mmdebstrap", "bwrap"):
        (machine.root / "usr/bin" / name).unlink()
    assert _missing(examine(_MATRIX, "cuda", host=machine)) == []


def test_what_a_lane_brings_by_itself_counts_as_there_with_the_command_that_makes_it(machine):
    environment = _MATRIX.lane["cuda"].environment
    for name in (f"environment {environment}", "CUDA compiler"):
        found = _finding(examine(_MATRIX, "cuda", host=machine), name)
        assert found.met
        assert found.brought
        assert found.remedy == f"dgr-build env create {environment}"


def test_an_nvcc_of_the_machine_is_not_looked_at(machine):
    _program(machine.root / "usr/bin", "nvcc", "release 11.8")
    assert _finding(examine(_MATRIX, "cuda", host=machine), "CUDA compiler").path == ""


def test_inside_a_toolkit_that_is_made_everything_is_looked_for(machine, tmp_path):
    toolkit = tmp_path / "toolkit"
    _program(toolkit / "bin", "nvcc", "Cuda compilation tools, release 13.0, V13.0.88")
    reach = Reach(made=True, root=toolkit, size=900_000_000)
    found = examine(_MATRIX, "cuda", host=machine, reach=reach)
    assert _finding(found, "CUDA compiler").path == str(toolkit / "bin" / "nvcc")
    assert _missing(found) == ["cuBLAS beside the compiler"]
    assert "env remove" in _finding(found, "cuBLAS beside the compiler").remedy
    (toolkit / "lib").mkdir()
    (toolkit / "lib" / "libcublas.so").touch()
    assert _missing(examine(_MATRIX, "cuda", host=machine, reach=reach)) == []


def test_inside_a_root_programs_are_started_by_entering_it(machine, tmp_path):
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/hipcc").symlink_to("/nowhere/but/inside")
    enter = _program(tmp_path, "enter", "HIP version: 6.1.40091-0")
    reach = Reach(made=True, root=root, enter=(str(enter),))
    found = _finding(examine(_MATRIX, "rocm", host=machine, reach=reach), "HIP compiler")
    assert found.met
    assert found.path == "/usr/bin/hipcc"
    matrix = _with_lane("rocm", architectures=("gfx1201",))
    late = _finding(examine(matrix, "rocm", host=machine, reach=reach), "HIP and its GPU targets")
    assert not late.met
    assert "6.3" in late.remedy


def _with_lane(name, **changes):
    lane = _MATRIX.lane[name].model_copy(update=changes)
    return _MATRIX.model_copy(update={"lane": {**_MATRIX.lane, name: lane}})


def test_architectures_that_the_toolkit_of_the_lane_dropped_are_refused(machine):
    findings = examine(_with_lane("cuda", architectures=("70-real", "90-real")), "cuda", host=machine)
    assert _missing(findings) == ["GPU architectures"]
    assert "12.9" in _finding(findings, "GPU architectures").remedy


def test_a_compiler_that_nvcc_refuses_is_refused_with_the_one_that_is_here(machine):
    _program(machine.root / "usr/bin", "g++", "16.1.0")
    name = "host compiler for CUDA 13.0"
    assert "apt-get install g++-15" in _finding(examine(_MATRIX, "cuda", host=machine), name).remedy
    _program(machine.root / "usr/bin", "g++-14", "14.2.0")
    found = _finding(examine(_MATRIX, "cuda", host=machine), name)
    assert not found.met
    assert f"={machine.root / 'usr/bin/g++-14'}" in found.remedy
    assert _missing(examine(_MATRIX, "cpu", host=machine)) == []


@pytest.mark.parametrize(
    ("lane", "device", "name"),
    [("cuda", "dev/nvidiactl", "NVIDIA driver"), ("rocm", "dev/kfd", "AMD GPU driver")],
)
def test_a_driver_is_needed_to_run_and_not_to_build(machine, lane, device, name):
    findings = examine(_MATRIX, lane, host=machine)
    assert _missing(findings, "run") == [name]
    assert [finding.name for finding in findings].count(name) == 1
    (machine.root / device).parent.mkdir()
    (machine.root / device).touch()
    assert _missing(examine(_MATRIX, lane, host=machine), "run") == []


def test_a_software_device_stands_in_for_vulkan_hardware_and_is_told_apart(machine):
    report = Report(lane="vulkan", environment="e", findings=examine(_MATRIX, "vulkan", host=machine))
    assert report.runs_on == "software device"
    (machine.root / "dev/dri").mkdir(parents=True)
    (machine.root / "dev/dri/renderD128").touch()
    report = dataclasses.replace(report, findings=examine(_MATRIX, "vulkan", host=machine))
    assert report.runs_on == "hardware"


@pytest.mark.parametrize(("what", "name"), [("disk", "free disk"), ("memory", "free memory")])
def test_too_little_room_is_missing_and_enough_is_not(machine, what, name):
    poor = dataclasses.replace(machine, **{what: 1_000_000_000})
    assert _missing(examine(_MATRIX, "cuda", host=poor)) == [name]


def test_an_environment_that_is_not_made_takes_its_disk_too(machine):
    small = dataclasses.replace(machine, disk=5_000_000_000)
    reach = Reach(made=False, size=5_800_000_000)
    assert _missing(examine(_MATRIX, "rocm", host=small, reach=reach)) == ["free disk"]
    made = Reach(made=True, size=5_800_000_000)
    assert _missing(examine(_MATRIX, "rocm", host=small, reach=made)) == []


@pytest.mark.parametrize("lane", ["cpu", "cuda", "rocm", "vulkan"])
def test_on_a_mac_the_linux_lanes_lack_the_system_and_nothing_silly(machine, lane):
    mac = dataclasses.replace(machine, system="Darwin", machine="arm64", cpu_flags=None)
    missing = [finding for finding in examine(_MATRIX, lane, host=mac) if not finding.met]
    assert missing[0].name == "operating system"
    assert "Linux" in missing[0].remedy
    assert not [finding for finding in missing if "apt-get" in finding.remedy]
    assert not [finding for finding in missing if finding.name in ("mmdebstrap", "free disk")]


def test_on_a_mac_metal_asks_for_apples_tools(machine, tmp_path):
    mac = Host(system="Darwin", machine="arm64", cpu_flags=None, path=("/usr/bin",), root=tmp_path / "mac")
    findings = examine(_MATRIX, "metal", host=mac)
    assert "Xcode command line tools" in _missing(findings)
    assert _finding(findings, "C++17 compiler").remedy == "xcode-select --install"
    _program(mac.root / "usr/bin", "xcrun", "15.2")
    _program(mac.root / "usr/bin", "clang++", "16.0.0")
    _program(mac.root / "usr/bin", "ld", "ld 1.0")
    findings = examine(_MATRIX, "metal", host=mac)
    assert _missing(findings) == []
    assert _missing(findings, "run") == []


def test_on_an_arm_machine_an_x86_lane_is_refused_before_a_compiler_sees_it(machine):
    arm = dataclasses.replace(machine, machine="aarch64", cpu_flags=frozenset({"asimd"}))
    findings = examine(_MATRIX, "cpu", host=arm)
    assert _missing(findings) == ["machine"]
    assert _missing(findings, "run") == ["processor"]
    assert "x86_64" in _finding(findings, "machine").remedy


def test_on_an_x86_machine_a_lane_for_it_is_named_instead_of_metal(machine):
    assert "dgr-build lane cpu" in _finding(examine(_MATRIX, "metal", host=machine), "machine").remedy


def test_a_processor_that_lacks_a_flag_does_not_keep_the_lane_from_being_built(machine):
    old = dataclasses.replace(machine, cpu_flags=machine.cpu_flags - {"avx2"})
    findings = examine(_MATRIX, "cpu", host=old)
    assert _missing(findings) == []
    assert _missing(findings, "run") == ["processor"]
    assert "avx2" in _finding(findings, "processor").note


def test_a_processor_of_which_nothing_is_known_is_not_taken_for_able(machine):
    assert _missing(examine(_MATRIX, "cpu", host=dataclasses.replace(machine, cpu_flags=None)), "run")


def test_a_refusal_says_what_is_missing_first_with_its_remedy(machine):
    for name in ("mmdebstrap", "bwrap"):
        (machine.root / "usr/bin" / name).unlink()
    findings = examine(_MATRIX, "rocm", host=machine)
    error = refuse("rocm", findings)
    names = [line.strip().partition(":")[0] for line in error.cause.splitlines()]
    first_met = names.index(next(finding.name for finding in findings if finding.met))
    assert names.index("mmdebstrap") < names.index("bubblewrap") < names.index("AMD GPU driver") < first_met
    assert error.remedy == "apt-get install mmdebstrap; apt-get install bubblewrap"


def test_nothing_missing_to_build_passes_and_a_missing_driver_is_no_error(machine):
    findings = examine(_MATRIX, "cuda", host=machine)
    assert can_build(findings)
    assert not can_run(findings)
    (machine.root / "usr/bin/g++").unlink()
    findings = examine(_MATRIX, "cuda", host=machine)
    assert not can_build(findings)
    assert "apt-get install g++" in refuse("cuda", findings).remedy


def test_a_folder_of_the_path_that_cannot_be_looked_into_holds_nothing(machine):
    # The kernel refuses the name; a folder that another user closed is refused in the same way.
    place = Place(folders=("/" + "x" * 300, "/usr/bin"), root=machine.root)
    assert place.find("ld") == Path("/usr/bin/ld")


def test_findings_as_data_have_a_remedy_exactly_where_something_is_to_be_done():
    common = {"name": "x", "kind": "build", "wanted": "y", "remedy": "do it"}
    assert Finding(**common, met=False).to_json()["remedy"] == "do it"
    assert Finding(**common, met=True, brought=True).to_json()["remedy"] == "do it"
    assert Finding(**common, met=True).to_json()["remedy"] is None


def test_without_a_lane_only_lane_cpu_decides(machine):
    ws = Workspace.open()
    assert enough(consult(ws, host=machine))
    (machine.root / "usr/bin/mmdebstrap").unlink()
    assert enough(consult(ws, host=machine))
    assert not enough(consult(ws, "rocm", host=machine))
    (machine.root / "usr/bin/g++").unlink()
    assert not enough(consult(ws, host=machine))


def test_the_state_of_each_environment_is_asked_for_by_its_name(machine, monkeypatch):
    asked = []

    def reach(_ws, _matrix, name):
        asked.append(name)
        return Reach(made=False, size=5_800_000_000)

    monkeypatch.setattr(flow, "environment_reach", reach)
    consult(Workspace.open(), "rocm", host=machine)
    assert asked == [_MATRIX.lane["rocm"].environment]


def test_the_doctor_makes_nothing(isolated):
    run(["doctor"])
    assert not (isolated / "workspace").exists()
    assert not (isolated / "cache").exists()


@pytest.mark.skipif(platform.system() == "Darwin", reason="metal can be built there")
def test_a_lane_that_cannot_be_built_ends_with_3_and_its_findings_as_data(isolated, capsys):
    assert run(["doctor", "metal", "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["can_build"] is False
    assert report["findings"][0]["met"] is False
    assert all(finding["remedy"] for finding in report["findings"] if not finding["met"])


def test_a_lane_that_does_not_exist_is_a_usage_error(isolated):
    assert run(["doctor", "gpu"]) == 2


@pytest.mark.skipif(platform.system() == "Darwin", reason="metal can be built there")
def test_a_lane_that_cannot_be_built_here_ends_with_3_and_lists_what_it_needs(bin_folder, isolated, capsys):
    assert run(["lane", "metal", "--json"]) == 3
    error = json.loads(capsys.readouterr().out)
    assert error["error"] == "host"
    assert [
        needed.name for needed in _MATRIX.lane["metal"].requires if needed.name not in error["cause"]
    ] == []
    assert error["remedy"]
    assert not (isolated / "workspace").exists()


def test_the_list_shows_every_lane_with_its_state_here(isolated, capsys):
    assert run(["lane", "list", "--package", "wheel"]) == 2
    assert "--package" in capsys.readouterr().err
    assert run(["lane", "list", "--json"]) == 0
    states = {state["name"]: state["status"] for state in json.loads(capsys.readouterr().out)}
    assert list(states) == list(_MATRIX.lane)
    assert "lacks operating system" in states["metal"] or platform.system() == "Darwin"


@pytest.mark.parametrize(
    ("arguments", "code"), [(["lane", "gpu"], 2), (["lane", "cpu", "--only", "dance"], 2)]
)
def test_what_does_not_exist_is_a_usage_error(isolated, arguments, code):
    assert run(arguments) == code


def _isa(flags=_V3, machine=None):
    return InstructionSet(
        machine=machine or platform.machine(), cpu_flags=tuple(flags.split()), compiler_flags=(), cmake={}
    )


def _cpuinfo(tmp_path, flags):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\nprocessor\t: 1\nflags\t\t: fpu {flags}\n")
    return file


def test_a_processor_that_has_every_flag_may_run_the_lane(tmp_path):
    require_cpu("x86-64-v3", _isa(), _cpuinfo(tmp_path, _V3 + " avx512f"))


@pytest.mark.parametrize("lacking", _V3.split())
def test_a_processor_that_lacks_a_flag_is_refused_before_anything_runs(tmp_path, lacking):
    flags = " ".join(flag for flag in _V3.split() if flag != lacking)
    with pytest.raises(HostError) as caught:
        require_cpu("x86-64-v3", _isa(), _cpuinfo(tmp_path, flags))
    assert lacking in caught.value.cause
    assert "--only build" in caught.value.remedy


def test_a_flag_that_is_part_of_a_longer_one_does_not_count(tmp_path):
    assert missing_cpu_flags(_isa("avx"), _cpuinfo(tmp_path, "avx2 avx_vnni")) == ("avx",)


def test_the_features_of_an_arm_processor_are_read(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU implementer\t: 0x41\n")
    assert read_cpu_flags(file) == {"fp", "asimd", "asimddp"}


def test_another_family_of_processors_is_refused(tmp_path):
    assert missing_cpu_flags(_isa(machine="vax"), _cpuinfo(tmp_path, _V3))


def _environment(folder, **bounds):
    return Environment(kind="host", summary="x", path=(str(folder),), **bounds)


def _compilers(folder, gcc=None, clang=None):
    _program(folder, "ld", "GNU ld 2.40")
    _program(folder, "getconf", "glibc 2.36")
    for cxx, c, version in (("g++", "gcc", gcc), ("clang++", "clang", clang)):
        if version:
            _program(folder, cxx, version)
            _program(folder, c, version)


def test_gcc_is_taken_when_it_is_new_enough(bin_folder):
    _compilers(bin_folder, gcc="12.2.0", clang="16.0.0")
    assert find_toolchain(_environment(bin_folder, gcc="11", clang="14")).cxx.path == bin_folder / "g++"


def test_clang_is_taken_when_gcc_is_too_old(bin_folder):
    _compilers(bin_folder, gcc="10.4.0", clang="16.0.0")
    tools = find_toolchain(_environment(bin_folder, gcc="11", clang="14"))
    assert tools.cxx.path == bin_folder / "clang++"
    assert tools.c.path == bin_folder / "clang"


def test_without_a_compiler_that_will_do_everything_tried_is_named(bin_folder):
    _compilers(bin_folder, gcc="10.4.0")
    with pytest.raises(HostError) as caught:
        find_toolchain(_environment(bin_folder, gcc="11", clang="14"))
    assert "10.4.0" in caught.value.cause
    assert "clang++" in caught.value.cause
    assert "apt-get install" in caught.value.remedy


def test_a_c_plus_plus_compiler_without_its_c_compiler_does_not_do(bin_folder):
    _program(bin_folder, "g++", "12.2.0")
    with pytest.raises(HostError) as caught:
        find_toolchain(_environment(bin_folder, gcc="11"))
    assert "no gcc" in caught.value.cause


def test_versions_compare_as_numbers():
    assert version_numbers("2025.10") > version_numbers("2025.9")
    assert version_numbers("11") <= version_numbers("11.2.0")


def test_an_environment_in_trouble_keeps_its_lane_from_being_built(machine):
    reach = Reach(made=False, trouble="its definition changed", remedy="dgr-build env lock sid")
    findings = examine(_MATRIX, "rocm", host=machine, reach=reach)
    found = _finding(findings, f"environment {_MATRIX.lane['rocm'].environment}")
    assert not found.met
    assert found.remedy == "dgr-build env lock sid"
