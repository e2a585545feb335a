"""The benchmark of the toolchain: what may be asked, what is written, what is left alone."""

from __future__ import annotations

import json

import pytest

from dgr_build.cli import main
from dgr_build.documents.base import load_json
from dgr_build.documents.bench import Target, ToolchainBench
from dgr_build.errors import CheckError, HostError, UsageError
from dgr_build.flows import bench_toolchain as flow
from dgr_build.flows.bench_compile import Plain
from dgr_build.flows.bench_ground import ground, started
from dgr_build.flows.bench_measure import Comparison, Way
from dgr_build.flows.bench_toolchain import Asked, measure_toolchain, names_of, require_met
from dgr_build.lanes.stamp import Stamp, write_stamp
from dgr_build.workspace import Workspace


@pytest.fixture
def here(isolated, project_root):
    """A workspace of this clone with folders of the test."""
    return Workspace(project=project_root, root=isolated / "workspace", cache=isolated / "cache")


@pytest.fixture
def fake_rows(monkeypatch):
    """Rows that take no time; `waits` sets how long one of ours takes, in seconds."""
    waits = [0.0]

    def make(name, at_most):
        def comparison(place):
            assert place.private.parent == place.place
            ours, theirs = (Way(what=what, run=lambda: None) for what in ("ours", "theirs"))
            return Comparison(
                name=name, ours=ours, theirs=theirs, target=Target(of="seconds", at_most=at_most)
            )

        return flow._Kind(make=comparison, pairs=3)

    monkeypatch.setattr(flow, "ROWS", {"easy": make("easy", 60), "hard": make("hard", 1e-30)})
    monkeypatch.setattr(flow, "USUAL", ("easy",))
    return waits


def test_what_compiles_everything_is_measured_only_when_it_is_named():
    assert names_of(()) == ("source", "verify", "verify-kept", "noop")
    assert names_of(["cold,verify", "edit"]) == ("verify", "edit", "cold")


def test_an_unknown_row_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError) as caught:
        names_of(["verify,nothing"])
    assert "nothing" in caught.value.message
    assert "noop" in caught.value.cause


@pytest.mark.parametrize(
    "arguments", [["--only", "nothing"], ["--pairs", "1"], ["--jobs", "0"], ["--pairs", "some"]]
)
def test_a_wrong_command_line_is_refused_as_data(isolated, capsys, arguments):
    assert main.run(["bench", "toolchain", *arguments, "--json"]) == UsageError.exit_code
    assert json.loads(capsys.readouterr().out)["remedy"]


def test_the_schema_can_be_printed_without_measuring(isolated, capsys):
    assert main.run(["bench", "toolchain", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "ToolchainBench"
    assert not (isolated / "workspace").exists()


def test_what_was_measured_is_written_as_document_and_page_and_nothing_else_stays(here, fake_rows):
    measured = measure_toolchain(here, Asked())
    bench = load_json(here.evidence / flow.NAME / "record.json", ToolchainBench)
    assert bench == measured.bench
    assert [row.name for row in bench.rows] == ["easy"]
    assert bench.id in (here.evidence / flow.NAME / "README.md").read_text()
    assert not [left for left in (here.root / "bench").iterdir() if left.is_dir()]
    require_met(measured)


def test_a_missed_target_is_written_down_before_it_is_an_error(here, fake_rows):
    measured = measure_toolchain(here, Asked(only=("hard", "easy"), pairs=10))
    assert measured.bench.missed == ("hard",)
    assert (here.evidence / flow.NAME / "record.json").is_file()
    with pytest.raises(CheckError) as caught:
        require_met(measured)
    assert "--only hard" in caught.value.remedy


def test_publishing_writes_to_the_tracked_folder_too(here, fake_rows, isolated):
    (isolated / "clone" / "manifests").mkdir(parents=True)
    (isolated / "clone" / "patches").mkdir()
    for name in ("manifests/llama.cpp.toml", "patches/series.toml"):
        (isolated / "clone" / name).write_bytes((here.project / name).read_bytes())
    clone = Workspace(project=isolated / "clone", root=here.root, cache=here.cache)
    measured = measure_toolchain(clone, Asked(publish=True))
    assert measured.folder == clone.published_evidence / flow.NAME
    assert (measured.folder / "record.json").read_bytes() == (
        clone.evidence / flow.NAME / "record.json"
    ).read_bytes()


def test_an_interrupted_measurement_leaves_nothing(here, fake_rows, monkeypatch):
    def interrupted(place):
        (place.place / "half").mkdir()
        (place.place / "half").chmod(0o555)
        raise KeyboardInterrupt

    monkeypatch.setitem(flow.ROWS, "easy", flow._Kind(make=interrupted, pairs=2))
    with pytest.raises(KeyboardInterrupt):
        measure_toolchain(here, Asked())
    assert not [left for left in (here.root / "bench").iterdir() if left.is_dir()]
    assert not here.evidence.exists()


def test_a_private_run_sees_neither_workspace_nor_cache_of_the_person(here):
    with ground(here, 1) as place:
        variables = place.variables()
        assert variables["DGR_WORKSPACE"] == str(place.private)
        assert variables["DGR_CACHE"] == str(place.place / "cache")
        assert "DGR_MODELS" not in variables
        assert str(here.cache) not in variables.values()


def test_an_archive_that_is_not_in_the_cache_is_asked_for_and_never_downloaded(here):
    with ground(here, 1) as place, pytest.raises(HostError) as caught:
        place.archive()
    assert caught.value.remedy == "dgr-build source resolve --provider sdist"


def test_a_lane_that_is_not_built_is_not_measured(here):
    with pytest.raises((HostError, CheckError)) as caught:
        measure_toolchain(here, Asked(only=("noop",)))
    assert caught.value.remedy


def test_a_command_that_fails_ends_the_measurement_with_what_it_said():
    with pytest.raises(CheckError) as caught:
        started(["sh", "-c", "echo a reason >&2; exit 3"])
    assert "a reason" in caught.value.cause


def test_the_plain_build_has_the_arguments_of_the_lane_without_cache_and_in_other_folders(tmp_path):
    root, place = tmp_path / "private", tmp_path / "plain"
    stamp = Stamp(
        project="/p",
        family="a" * 64,
        digest="b" * 64,
        arguments=(
            "-S", "/p", "-B", f"{root}/build/cpu", f"-DX={root}/src/current", "-DY=1",
            "-DCMAKE_C_COMPILER_LAUNCHER:STRING=/usr/bin/ccache",
        ),
        plan={"variables": {"TZ": "UTC"}},
    )  # fmt: skip
    write_stamp(root / "build" / "cpu", stamp)
    arguments, variables = Plain(root=root, place=place, jobs=1)._as_the_lane("cpu")
    assert arguments == ["-S", "/p", "-B", f"{place}/build/cpu", f"-DX={place}/src/current", "-DY=1"]
    assert variables == {"TZ": "UTC"}
    with pytest.raises(CheckError):
        Plain(root=root, place=place, jobs=1).build("cpu-reference")
