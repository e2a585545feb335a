"""Device code: a worker holds it for exactly the architectures of its lane."""

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import CheckError
from dgr_build.lanes.device_code import check_device_code, device_arguments
from dgr_build.lanes.environment.made import Made


@pytest.fixture(scope="module")
def lane(project_root):
    """A maker of lanes with other architectures."""
    matrix = load_matrix(project_root / "lanes" / "matrix.toml")
    return lambda name, *architectures: matrix.lane[name].model_copy(update={"architectures": architectures})


@pytest.fixture
def worker(tmp_path):
    """A program that holds AMD device code for the given architectures, by the ids of its bundles."""

    def make(*architectures):
        file = tmp_path / "a wörk" / "dgr-shard-worker"
        file.parent.mkdir(exist_ok=True)
        ids = [f"hipv4-amdgcn-amd-amdhsa--{name}".encode() for name in architectures]
        file.write_bytes(b"\x7fELF\xff\0host-x86_64-unknown-linux-gnu-\0" + b"\0\xff".join(ids) + b"\0")
        return file

    return make


@pytest.fixture
def toolkit(tmp_path):
    """A toolkit whose cuobjdump lists the given machine code and PTX."""

    def make(elf=(), ptx=(), fails=""):
        tool = tmp_path / "kit" / "bin" / "cuobjdump"
        tool.parent.mkdir(parents=True)
        lines = ["#!/bin/sh", f"printf '%s\\n' \"$@\" > '{tmp_path}/words'"]
        lines += [f"echo '{fails}' >&2; exit 255"] if fails else []
        for option, kind, names in (("--list-elf", "ELF", elf), ("--list-ptx", "PTX", ptx)):
            suffix = "cubin" if kind == "ELF" else "ptx"
            shown = "".join(
                f"{kind} file {n:4}: dgr-shard-worker.{n}.sm_{x}.{suffix}\n" for n, x in enumerate(names)
            )
            (tool.parent / suffix).write_text(shown)
            lines.append(f"[ \"$1\" = {option} ] && cat '{tool.parent}/{suffix}'")
        tool.write_text("\n".join([*lines, "exit 0"]))
        tool.chmod(0o755)
        return Made(name="kit", kind="wheels", digest="0" * 64, root=tool.parent.parent)

    return make


_HOST = Made(name="host", kind="host", digest="0" * 64)


def test_cuda_code_for_just_the_asked_architectures_is_found(lane, worker, toolkit):
    made = toolkit(elf=("86", "120a", "86"), ptx=("75", "90"))
    asked = lane("cuda", "86-real", "120a-real", "75-virtual", "90-virtual")
    found = check_device_code(worker(), asked, made)
    assert found == ("120a-real", "75-virtual", "86-real", "90-virtual")


def test_an_architecture_without_a_suffix_is_machine_code_and_ptx(lane, worker, toolkit):
    made = toolkit(elf=("90",), ptx=("90",))
    assert check_device_code(worker(), lane("cuda", "90"), made) == ("90-real", "90-virtual")


def test_missing_and_superfluous_cuda_architectures_are_both_named(lane, worker, toolkit):
    with pytest.raises(CheckError) as caught:
        check_device_code(worker(), lane("cuda", "86-real", "90-virtual"), toolkit(elf=("86", "52")))
    asked, _, found = caught.value.cause.partition("found")
    assert "90-virtual" in asked
    assert "90-virtual" not in found
    assert "52-real" in found
    assert "52-real" not in asked


def test_ptx_does_not_stand_in_for_machine_code(lane, worker, toolkit):
    with pytest.raises(CheckError):
        check_device_code(worker(), lane("cuda", "90-real"), toolkit(ptx=("90",)))


def test_a_worker_without_any_device_code_is_named_as_such(lane, worker, toolkit):
    said = 'cuobjdump info    : File "x" does not contain device code'
    with pytest.raises(CheckError) as caught:
        check_device_code(worker(), lane("cuda", "90-real"), toolkit(fails=said))
    assert "found none" in caught.value.cause


def test_a_cuobjdump_that_cannot_read_the_worker_is_an_error_in_its_own_words(lane, worker, toolkit):
    with pytest.raises(CheckError) as caught:
        check_device_code(worker(), lane("cuda", "90-real"), toolkit(fails="unknown compression"))
    assert "unknown compression" in caught.value.cause
    assert "wheels" in caught.value.remedy


def test_hip_code_is_found_by_the_ids_of_its_bundles(lane, worker):
    program = worker("gfx90a", "gfx1100", "gfx90a")
    assert check_device_code(program, lane("rocm", "gfx1100", "gfx90a"), _HOST) == ("gfx1100", "gfx90a")


@pytest.mark.parametrize(
    ("held", "shown"),
    [(("gfx90a",), "found gfx90a"), (("gfx90a", "gfx1100", "gfx942"), "gfx942"), ((), "found none")],
)
def test_missing_and_superfluous_hip_architectures_are_named(lane, worker, held, shown):
    with pytest.raises(CheckError) as caught:
        check_device_code(worker(*held), lane("rocm", "gfx1100", "gfx90a"), _HOST)
    assert "asked for gfx1100, gfx90a" in caught.value.cause
    assert shown in caught.value.cause


@pytest.mark.parametrize("name", ["cpu", "vulkan"])
def test_a_lane_without_code_per_architecture_asks_nothing_of_its_worker(lane, tmp_path, name):
    assert check_device_code(tmp_path / "missing", lane(name), _HOST) == ()


@pytest.mark.parametrize("language", ["CUDA", "HIP"])
def test_paths_of_this_machine_are_mapped_away_in_device_code_too(language):
    added = device_arguments(language)
    assert added.languages == (language,)
    (flags,) = [word for word in added.arguments if word.startswith(f"-DCMAKE_{language}_FLAGS")]
    for folder in ("source", "project", "build"):
        assert f"-ffile-prefix-map=${{{folder}}}={folder}" in flags
    for folder in ("source", "project"):
        assert f"-ffile-prefix-map=${{{folder}-from-build}}={folder}" in flags


def test_without_device_code_nothing_is_added():
    assert device_arguments("none").languages == device_arguments("none").arguments == ()
