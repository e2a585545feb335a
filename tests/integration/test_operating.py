"""A route as its operator sees it: `dgr-build top`, and the page's commands."""

from __future__ import annotations

import json
import subprocess
import sys

from .page_script import free_port, run_page


def test_top_shows_the_route_and_a_stage_that_is_gone(on_the_wire, start_worker, tiny):
    workers = [start_worker(tiny(), *ends).ready() for ends in ((0, 21), (21, 43))]
    lost = start_worker(tiny(), 21, 43).ready()
    lost.stop()
    route = ",".join(worker.address for worker in (*workers, lost))
    with on_the_wire.Session(workers) as session:
        session.run(on_the_wire.prompt(4))
        command = [sys.executable, "-m", "dgr_build", "top", route, "--json", "--interval", "0.2"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 10, done.stderr
    head, last, gone = json.loads(done.stdout)
    assert (head["range"], last["range"]) == ([0, 21], [21, 43])
    for stage, worker in ((head, workers[0]), (last, workers[1])):
        assert (stage["state"], stage["health"]) == ("serving", "SERVING")
        assert stage["instance"] == worker.about.instance
        assert (stage["sessions"], stage["slots"], stage["epoch"]) == (1, 2, 1)
        assert stage["load"] == stage["tokens_per_second"] == 0  # nothing ran between the two looks
        assert stage["executed_rows"] == worker.status.executed_rows
    assert (gone["address"], gone["state"]) == (lost.address, "no answer")


def test_the_commands_of_the_page_on_operating_a_route_work_as_they_are(
    project_workspace, built_cpu_lane, tmp_path
):
    replaced = [("RUN=run", f"RUN='{tmp_path / 'run'}'")]
    replaced += [(port, free_port()) for port in ("7001", "7002", "9401", "9402")]
    replaced.append((".dgr/build/cpu/bin/dgr-shard-worker", f"'{built_cpu_lane.worker}'"))
    section = "A route from its start to its end"
    code, said = run_page(project_workspace.project, "operating.md", section, replaced, tmp_path / "log")
    assert code == 0, said
    tokens = [line for line in said.splitlines() if line.startswith("tokens ")]
    assert len(tokens) == 2, said
    assert tokens[0] == tokens[1]  # over another process in the place of the tail
    assert "[0, 6)" in said
    assert "[6, 12)" in said
    assert 'dgr_worker_refused_frames_total{reason="cache_miss"} 0' in said
    assert said.count('"event":"session_opened"') == said.count('"event":"session_closed"') == 1
    assert '"event":"end","exit_code":0' in said.splitlines()[-1]
