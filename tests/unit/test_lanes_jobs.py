"""How many compilers may run at once."""

from hypothesis import given
from hypothesis import strategies as st

from dgr_build.lanes.jobs import available_memory, job_count

_GB = 1_000_000_000


def test_memory_limits_jobs():
    assert job_count(16, 6 * _GB) == 4


def test_cores_limit_jobs():
    assert job_count(2, 64 * _GB) == 2


def test_a_small_machine_still_compiles():
    assert job_count(8, 200_000_000) == 1


@given(cores=st.integers(1, 512), memory=st.integers(0, 10**13))
def test_jobs_are_between_one_and_the_cores_and_fit_in_memory(cores, memory):
    jobs = job_count(cores, memory)
    assert 1 <= jobs <= cores
    assert jobs == 1 or jobs * 1_500_000_000 <= memory


def test_the_limit_of_a_control_group_counts(tmp_path):
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert available_memory(tmp_path) == 2_000_000


def test_a_control_group_without_a_limit_does_not_count(tmp_path):
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert available_memory(tmp_path) > 2_000_000
