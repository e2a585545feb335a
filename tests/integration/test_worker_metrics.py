"""The metrics of real workers: in the format of Prometheus, and what Status says."""

from __future__ import annotations

import json
import subprocess
import urllib.request

import pytest

from .prometheus_text import parse


@pytest.fixture(scope="module")
def workers(start_worker, tiny):
    """A route of two stages that tell metrics."""
    settings = {"metrics_listen": "127.0.0.1:0", "log_format": "json"}
    return [start_worker(tiny(), *ends, **settings).ready() for ends in ((0, 21), (21, 43))]


def _scrape(worker):
    events = [json.loads(line) for line in worker.log.read_text().splitlines()]
    (port,) = [event["port"] for event in events if event["event"] == "metrics_listening"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return parse(answer.read().decode())


def test_metrics_follow_the_format_and_agree_with_status(workers, on_the_wire):
    with on_the_wire.Session(workers) as session:
        session.run(on_the_wire.prompt(8))
        for token in (3, 4, 5):
            session.run([token])
        for worker in workers:
            status, told = worker.status, _scrape(worker)
            assert status.executed_frames == 4
            assert status.executed_rows == 11
            for name, value in {
                "frames_total": status.executed_frames,
                "rows_total": status.executed_rows,
                "failed_frames_total": status.failed_frames,
                "received_bytes_total": status.bytes_in,
                "sent_bytes_total": status.bytes_out,
                "slots": status.slots_total,
                "slots_free": status.slots_free,
                "sessions": 1,
                "newest_epoch": status.newest_epoch,
                "queued_frames": 0,
                "draining": 0,
                "weights_bytes": worker.about.own_tensor_bytes,
            }.items():
                assert told[f"dgr_worker_{name}"].value() == value, name
            compute, wait = told["dgr_worker_compute_seconds"], told["dgr_worker_wait_seconds"]
            assert compute.value("_count", kind="prefill") == 1
            assert compute.value("_count", kind="decode") == 3
            for family, total_us in ((compute, status.busy_us), (wait, status.waited_us)):
                spent = sum(family.value("_sum", kind=kind) for kind in ("decode", "prefill"))
                assert spent == pytest.approx(total_us / 1e6)
            assert status.busy_us > 0
            assert sum(told["dgr_worker_refused_frames_total"].samples.values()) == status.rejected_frames
            assert told["dgr_worker_resident_bytes"].value() == pytest.approx(status.resident_bytes, rel=0.2)
            ((_, labels),) = told["dgr_worker_info"].samples
            about, said = worker.about, dict(labels)
            assert said["lane_digest"] == about.build.lane_digest
            assert (said["first"], said["last"]) == (str(about.range.first), str(about.range.last))
            assert said["artifact"] == about.artifact.digest
    head, last = workers
    assert head.status.bytes_out == last.status.bytes_in


def test_metrics_beyond_loopback_need_to_be_insisted_on(built_cpu_lane):
    command = [built_cpu_lane.worker, "--model", "/nonexistent", "--artifact-digest", "0" * 64]
    command += ["--metrics-listen", "0.0.0.0:0"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--metrics-beyond-loopback" in done.stderr
