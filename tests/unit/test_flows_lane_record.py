"""What a lane's record may claim: nothing of a lane that was not built, or not built as the matrix has it."""

import json
from types import SimpleNamespace

import pytest

from dgr_build.documents.base import load_json, save_json
from dgr_build.documents.evidence import Record
from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.series import load_series
from dgr_build.errors import CheckError, HostError
from dgr_build.flows import lane_refused
from dgr_build.flows.lane import Request, run_lane
from dgr_build.flows.lane_source import Published
from dgr_build.lanes.plan import SourceFacts, stated_values

_FACTS = SourceFacts(
    commit="1" * 40, base_tree="2" * 40, patched_tree="3" * 40, upstream_build=1, version="v", epoch=0
)


@pytest.fixture
def ws(ws, project_root):
    """The workspace, with the project's own lanes."""
    ws.matrix_file.parent.mkdir(parents=True)
    ws.matrix_file.write_bytes((project_root / "lanes" / "matrix.toml").read_bytes())
    return ws


@pytest.fixture
def foreign(ws):
    """The name of a lane that no machine can build that runs the tests."""
    text = ws.matrix_file.read_text()
    ws.matrix_file.write_text(text.replace('machine = "arm64"', 'machine = "m68k"'))
    return "metal"


@pytest.fixture
def source(ws, project_root, monkeypatch):
    """A source whose CMake declares every option of the lanes; `.held` tells if the lanes were locked."""
    matrix = load_matrix(ws.matrix_file)

    options = {name for lane in matrix.lane for name in stated_values(matrix, lane)}
    source = SimpleNamespace(held=False, options=options)

    def publish(asked):
        source.held = (asked.root / "locks" / "lanes.holder").is_file()
        asked.base_source.mkdir(parents=True)
        (asked.base_source / "CMakeLists.txt").write_text("\n".join(sorted(source.options)))
        series = load_series(project_root / "patches" / "series.toml")
        return Published(facts=_FACTS, proof="full", series=series, series_sha256="4" * 64)

    monkeypatch.setattr(lane_refused, "publish_source", publish)
    return source


def _published(ws, lane):
    with pytest.raises(HostError):
        run_lane(ws, Request(lane=lane, publish=True))
    return load_json(ws.published_evidence / f"lane-{lane}" / "record.json", Record)


def test_a_lane_that_cannot_be_built_here_has_a_record_that_claims_nothing(ws, foreign, source):
    record = _published(ws, foreign)
    assert {result.verdict for result in record.results} == {"not run"}
    assert not any(result.passes for result in record.results)
    assert record.digests.worker_sha256 is None
    assert [command.argv[:3] for command in record.commands] == [("dgr-build", "lane", foreign)]
    assert source.held


def test_what_another_machine_has_built_is_not_replaced_by_a_refusal(ws, foreign, source):
    refused = _published(ws, foreign)
    digests = refused.digests.model_copy(update={"lane_digest": "5" * 64, "worker_sha256": "6" * 64})
    built = refused.model_copy(update={"digests": digests})
    save_json(ws.published_evidence / f"lane-{foreign}" / "record.json", built)
    assert _published(ws, foreign) == built


def test_an_option_that_the_source_does_not_have_is_a_failure_in_the_record(ws, foreign, source):
    source.options.remove("GGML_METAL_EMBED_LIBRARY")
    record = _published(ws, foreign)
    (failed,) = (result for result in record.results if result.verdict == "failed")
    assert json.loads(failed.shown)["seen"]["unknown"] == ["GGML_METAL_EMBED_LIBRARY"]
    assert not record.sound


def test_a_lane_with_overrides_is_not_published_and_says_so_before_anything_is_built(ws, source):
    with pytest.raises(CheckError) as caught:
        run_lane(ws, Request(lane="cpu", settings=("GGML_LTO=ON",), publish=True))
    assert "GGML_LTO=ON" in caught.value.cause
    assert not (ws.root / "locks").exists()
    assert not ws.published_evidence.exists()
