from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from dgr_build import workspace
from dgr_build.errors import HostError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def _start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _leftovers(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name.startswith(".staging-"))


def test_publish_puts_a_folder_in_place_and_replaces_the_one_before(tmp_path: Path) -> None:
    final = tmp_path / "final"
    for content in ("one", "two"):
        with workspace.staging(tmp_path, "t") as staged:
            (staged / "inner").mkdir()
            (staged / "inner" / content).write_text(content)
            workspace.publish(staged / "inner", final)
        assert [entry.name for entry in final.iterdir()] == [content]
    assert _leftovers(tmp_path) == []


def test_publish_takes_the_staging_folder_itself(tmp_path: Path) -> None:
    final = tmp_path / "final"
    for content in ("one", "two"):
        with workspace.staging(tmp_path, "t") as staged:
            (staged / content).touch()
            workspace.publish(staged, final)
        assert [entry.name for entry in final.iterdir()] == [content]
    assert _leftovers(tmp_path) == []


def test_published_folder_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with workspace.staging(tmp_path, "t") as staged:
        workspace.publish(staged, tmp_path / "final")
    assert (tmp_path / "final").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_publish_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "final").write_text("old")
    with workspace.staging(tmp_path, "t") as staged:
        (staged / "f").write_text("new")
        workspace.publish(staged / "f", tmp_path / "final")
    assert (tmp_path / "final").read_text() == "new"


def test_publish_brings_the_old_folder_back_when_the_new_one_cannot_take_its_place(tmp_path: Path) -> None:
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "old").touch()
    with pytest.raises(FileNotFoundError):
        workspace.publish(tmp_path / "missing", tmp_path / "final")
    assert (tmp_path / "final" / "old").exists()


_AS_ANOTHER_ACCOUNT = """
import os, sys
from pathlib import Path
from dgr_build import workspace
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
root = Path(sys.argv[1])
for content in ("one", "two"):
    with workspace.staging(root, "t") as staged:
        (staged / "inner").mkdir()
        (staged / "inner" / content).touch()
        (staged / "inner").chmod(0o555)
        workspace.publish(staged / "inner", root / "final")
assert [e.name for e in (root / "final").iterdir()] == ["two"], list((root / "final").iterdir())
assert (root / "final").stat().st_mode & 0o777 == 0o555
workspace.remove(root / "final")
assert list(root.iterdir()) == [], list(root.iterdir())
"""


def test_read_only_folders_are_published_replaced_and_removed_without_root(tmp_path: Path) -> None:
    # Root may write anywhere and would hide the failure, so the child gives root up before it starts.
    own = tmp_path / "own"
    own.mkdir()
    own.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "test_", "popen-")):
            folder.chmod(folder.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", _AS_ANOTHER_ACCOUNT, str(own)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_staging_is_removed_on_error(tmp_path: Path) -> None:
    def fail() -> None:
        with workspace.staging(tmp_path, "t") as staged:
            (staged / "f").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert _leftovers(tmp_path) == []


_STAGE_AND_WAIT = """
import sys, time
from pathlib import Path
from dgr_build import workspace
with workspace.staging(Path(sys.argv[1]), "t") as staged:
    (staged / "f").touch()
    print("ready", flush=True)
    time.sleep(60)
"""


def test_sweep_spares_a_staging_folder_in_use_and_takes_it_after_kill_9(tmp_path: Path) -> None:
    child = _start(_STAGE_AND_WAIT, tmp_path)
    assert child.stdout is not None
    child.stdout.readline()
    held = _leftovers(tmp_path)
    workspace.sweep(tmp_path)
    assert _leftovers(tmp_path) == held != []
    child.send_signal(signal.SIGKILL)
    child.wait()
    workspace.sweep(tmp_path)
    assert _leftovers(tmp_path) == []


def test_sweep_never_takes_a_staging_folder_that_is_just_being_made(tmp_path: Path) -> None:
    stop = threading.Event()

    def keep_sweeping() -> None:
        while not stop.is_set():
            workspace.sweep(tmp_path)

    sweeper = threading.Thread(target=keep_sweeping)
    sweeper.start()
    try:
        for _ in range(150):
            with workspace.staging(tmp_path, "t") as staged:
                (staged / "f").write_text("x")
                assert (staged / "f").read_text() == "x"
    finally:
        stop.set()
        sweeper.join()


def test_sweep_takes_only_old_staged_files(tmp_path: Path) -> None:
    old, new = tmp_path / ".staging-a-1", tmp_path / ".staging-a-2"
    for file in (old, new):
        file.touch()
    os.utime(old, (0, 0))
    workspace.sweep(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_sweep_keeps_the_lock_of_a_folder_staged_for_hours(tmp_path: Path) -> None:
    with workspace.staging(tmp_path, "t") as staged:
        lock = staged.with_name(staged.name + ".lock")
        os.utime(lock, (0, 0))
        workspace.sweep(tmp_path)
        assert lock.exists()
        assert staged.exists()


_HOLD = """
import sys, time
from pathlib import Path
from dgr_build import workspace
with workspace.lock_file(Path(sys.argv[1]), "the store"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def test_second_holder_waits_and_says_for_whom(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    first = _start(_HOLD, lock, 1)
    assert first.stdout is not None
    first.stdout.readline()
    second = _start(_HOLD, lock, 0)
    _, said = second.communicate(timeout=30)
    first.wait()
    assert "the store" in said
    assert str(first.pid) in said


def test_waiting_is_said_even_when_the_holder_left_no_name(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    first = _start(_HOLD, lock, 1)
    assert first.stdout is not None
    first.stdout.readline()
    (tmp_path / "a.holder").unlink()
    second = _start(_HOLD, lock, 0)
    _, said = second.communicate(timeout=30)
    first.wait()
    assert "another process" in said


def test_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    first = _start(_HOLD, lock, 60)
    assert first.stdout is not None
    first.stdout.readline()
    first.kill()
    first.wait()
    start = time.monotonic()
    with workspace.lock_file(lock, "the store"):
        assert time.monotonic() - start < 5


_COUNT = """
import sys
from pathlib import Path
from dgr_build import workspace
lock, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(20):
    with workspace.lock_file(lock, "c"):
        workspace.write_atomic(counter, str(int(counter.read_text()) + 1).encode())
"""


def test_lock_lets_no_two_processes_in_at_once(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    children = [_start(_COUNT, tmp_path / "a.lock", counter) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert counter.read_text() == "60"


def test_write_atomic_keeps_the_old_content_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "f"
    final.write_text("old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        workspace.write_atomic(final, b"new")
    assert final.read_text() == "old"
    assert _leftovers(tmp_path) == []


def test_remove_does_not_follow_links_and_accepts_nothing(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "f").touch()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(precious)
    workspace.remove(tree)
    workspace.remove(tree)
    assert (precious / "f").exists()


def test_require_space_names_what_is_missing(tmp_path: Path) -> None:
    workspace.require_space(tmp_path, 1, "a test")
    with pytest.raises(HostError) as caught:
        workspace.require_space(tmp_path, 1 << 60, "a test")
    assert "DGR_WORKSPACE" in caught.value.remedy


def test_workspace_moves_with_its_variables(isolated: Path) -> None:
    opened = workspace.Workspace.open()
    assert opened.root == isolated / "workspace"
    assert opened.cache == isolated / "cache"
    assert workspace.models_root() == isolated / "models"


def test_project_folder_without_a_pin_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGR_PROJECT", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        workspace.project_root()
    assert "DGR_PROJECT" in caught.value.remedy


@pytest.mark.parametrize("depth", [1, 30])
def test_a_folder_for_sockets_is_short_private_and_does_not_stay(tmp_path, depth):
    wanted = tmp_path.joinpath(*["deep"] * depth)
    with workspace.socket_folder(wanted, "cache") as folder, socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "socket"))
        assert folder.stat().st_uid == os.getuid()
        assert not folder.stat().st_mode & 0o022
    assert not folder.exists()
    assert not [left for left in wanted.iterdir() if left.is_dir()]


def test_a_machine_without_a_short_folder_is_told_so(tmp_path, monkeypatch):
    long = tmp_path.joinpath(*["deep"] * 30)
    long.mkdir(parents=True)
    monkeypatch.setattr(workspace.tempfile, "tempdir", str(long))
    with pytest.raises(HostError) as caught, workspace.socket_folder(long, "cache"):
        pytest.fail("a socket cannot lie here")
    assert "TMPDIR" in caught.value.remedy
