"""The project carries patches, never upstream itself: no submodules and no links into other repositories."""

import subprocess

import pytest

pytestmark = pytest.mark.needs_git


@pytest.fixture(scope="module")
def tracked(project_root):
    """The (mode, path) of each file in git's index."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-s", "-z"],
        cwd=project_root,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    records = [record.partition(b"\t") for record in done.stdout.split(b"\0") if record]
    return [(meta.split()[0], path) for meta, _, path in records]


def test_there_are_no_submodules(tracked):
    assert [path for mode, path in tracked if mode == b"160000"] == []
    assert [path for _, path in tracked if path.lower().endswith(b".gitmodules")] == []


def test_patch_files_are_kept_as_bytes(project_root):
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "check-attr", "text", "whitespace", "--", "patches/0001-x.patch"],
        cwd=project_root,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    assert done.stdout.splitlines() == [
        b"patches/0001-x.patch: text: unset",
        b"patches/0001-x.patch: whitespace: unset",
    ]
