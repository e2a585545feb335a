"""The doctor on the machine that the tests run on, through the launcher's own program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dgr_build.lanes.host import this_machine


def _doctor(tmp_path, *arguments):
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "DGR_WORKSPACE": str(tmp_path / "workspace"),
        "DGR_CACHE": str(tmp_path / "cache"),
        "LC_ALL": "C.UTF-8",
    }
    command = [sys.executable, "-m", "dgr_build", "doctor", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_every_path_it_names_exists_and_every_missing_thing_has_a_remedy(tmp_path):
    done = _doctor(tmp_path, "--json")
    reports = json.loads(done.stdout)
    assert done.returncode == (0 if reports[0]["can_build"] else 3)
    for report in reports:
        for finding in report["findings"]:
            assert finding["path"] is None or Path(finding["path"]).exists()
            assert finding["met"] or finding["remedy"]
    assert not (tmp_path / "workspace").exists()


def test_the_compiler_it_reports_states_that_version(tmp_path, built_cpu_lane):
    done = _doctor(tmp_path, "cpu", "--json")
    assert done.returncode == 0  # it was built here
    found = next(one for one in json.loads(done.stdout)["findings"] if one["name"] == "C++17 compiler")
    stated = subprocess.run([found["path"], "-dumpfullversion"], capture_output=True, text=True, check=True)
    assert stated.stdout.strip() == found["version"]


@pytest.mark.parametrize("lane", ["cuda", "rocm", "vulkan"])
def test_the_table_and_the_details_agree(tmp_path, lane):
    table = _doctor(tmp_path).stdout
    row = next(line for line in table.splitlines() if line.startswith(lane))
    details = _doctor(tmp_path, lane)
    assert (details.returncode == 0) == (row.split()[1] == "yes")


def test_what_it_knows_of_this_machine_is_not_empty(tmp_path):
    host = this_machine(tmp_path / "not" / "there" / "yet")
    assert host.disk > 0
    assert host.memory > 0
    assert host.cpu_flags is None or host.cpu_flags
