"""What the matrix says of a lane's exercise is what its published record shows, no more and no less."""

from pathlib import Path

import pytest

from dgr_build.documents.base import load_json
from dgr_build.documents.evidence import Record
from dgr_build.documents.matrix import load_matrix
from dgr_build.documents.noise_floor import NoiseFloor
from dgr_build.documents.pin import load_pin
from dgr_build.documents.recipe import load_recipe

_ROOT = Path(__file__).resolve().parents[2]
_MATRIX = load_matrix(_ROOT / "lanes" / "matrix.toml")
_RECORDS = {name: _ROOT / "evidence" / f"lane-{name}" / "record.json" for name in _MATRIX.lane}


def _shown(file):
    """Return how far a record shows that its lane was taken."""
    if not file.is_file():
        return "nothing"
    record = load_json(file, Record)
    if record.digests.worker_sha256 is None:
        return "nothing"
    ran = [result for result in record.results if "tiny" in result.criterion]
    assert ran, "a record says of every trial whether it was run"
    if all(result.passes for result in ran):
        return "hardware"
    if all(result.verdict == "passed" for result in ran):
        return "software device"
    assert all(result.verdict == "not run" for result in ran)
    return "compiled"


@pytest.mark.parametrize("name", list(_MATRIX.lane))
def test_a_lane_is_called_exercised_as_far_as_its_record_shows(name):
    assert _MATRIX.lane[name].exercised == _shown(_RECORDS[name])


def test_every_backend_has_a_record():
    told = {_MATRIX.lane[name].backend for name, file in _RECORDS.items() if file.is_file()}
    assert told == {lane.backend for lane in _MATRIX.lane.values()}


@pytest.mark.parametrize("name", [name for name, file in _RECORDS.items() if file.is_file()])
def test_a_record_is_about_the_pinned_source_and_its_own_lane(name):
    record = load_json(_RECORDS[name], Record)
    pin = load_pin(_ROOT / "manifests" / "llama.cpp.toml")
    assert (record.digests.pin_commit, record.digests.pin_tree) == (pin.commit, pin.tree)
    assert record.digests.lane == name
    assert record.subject.partition(",")[0] == f"lane {name}"
    assert not record.metrics.get("overrides")


@pytest.mark.parametrize("name", [name for name, lane in _MATRIX.lane.items() if lane.closeness is not None])
def test_a_limit_of_nearness_is_the_measured_noise_floor_and_little_above(name):
    floor = load_json(_ROOT / "evidence" / "noise-floor" / "measurement.json", NoiseFloor)
    assert floor.pin_tree == load_pin(_ROOT / "manifests" / "llama.cpp.toml").tree
    measured = {
        load_recipe(_ROOT / "recipes" / f"{recipe}.toml").model.tiny.arch: error
        for recipe, error in floor.highest().items()
    }
    limits = _MATRIX.lane[name].closeness.nmse
    assert limits.keys() == measured.keys()
    for family, limit in limits.items():
        assert measured[family] <= limit <= 2 * measured[family]
