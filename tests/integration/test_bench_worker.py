"""The benchmark's client against real workers on a tiny model: all that needs nothing of upstream's.

How fast anything is, is not asserted.
"""

from __future__ import annotations

import pytest

from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import HostError
from dgr_build.flows.bench_worker import GROUPS
from dgr_build.flows.bench_worker_ground import Settings, WorkerGround
from dgr_build.flows.bench_worker_measure import measured
from dgr_build.flows.bench_worker_programs import Client
from dgr_build.flows.programs import worker_of
from dgr_build.lanes.bench_client import build_client

_SETTINGS = Settings(prompt=32, decode=3, stages=(2, 3), delays_ms=(0, 2), frame_rows=(1, 64), frame_count=5)


@pytest.fixture(scope="module")
def ground(project_workspace, built_cpu_lane, tiny, tmp_path_factory):
    ws = project_workspace
    matrix = load_matrix(ws.matrix_file)
    return WorkerGround(
        ws=ws,
        folder=tmp_path_factory.mktemp("bench"),
        settings=_SETTINGS,
        worker=worker_of(ws, matrix, "cpu"),
        artifact=tiny("llama"),
        seam=tiny("llama"),
        client=Client(program=build_client(ws, matrix)),
        upstream=None,
    )


def _measured(ground, group):
    return {pairing.name: measured(pairing, group, 2) for pairing in GROUPS[group].pairings(ground)}


def test_routes_are_measured_beside_each_other(ground):
    assert set(_measured(ground, "stages")) == {"stages-2-decode", "stages-3-decode"}
    assert set(_measured(ground, "prefill")) == {"stages-2-prefill"}


def test_a_delay_is_in_the_floor_and_in_what_is_measured(ground):
    rows = _measured(ground, "floor")
    assert set(rows) == {"floor-0ms", "floor-2ms"}
    assert rows["floor-2ms"].detail["floor_ms"] >= 6
    assert all(value >= 6 for value in rows["floor-2ms"].ours_values)


def test_frames_are_measured_with_the_bytes_that_they_have(ground):
    rows = _measured(ground, "frames")
    width = ground.seam.manifest.boundary_width
    for count in _SETTINGS.frame_rows:
        told = rows[f"frame-{count}-rows"].detail["message_bytes"]
        assert 0 < told - count * width * 4 < 300 + 3 * count


def test_sessions_beside_each_other_are_counted_together(ground):
    with ground.route(1, sessions=3, positions=16, frame=8) as route:
        assert route.decode(4, sessions=3, prompt=8) > 0


def test_a_cold_stage_reads_what_it_owns(ground):
    try:
        rows = _measured(ground, "load")
    except HostError as kept:
        pytest.skip(f"{kept.message}: {kept.cause}")
    for row in rows.values():
        assert row.detail["own_tensor_bytes"] < ground.artifact.manifest.n_bytes / 2
        assert all(value >= row.detail["own_tensor_bytes"] * 0.9 for value in row.ours_values)
        assert row.verdict == "met"
