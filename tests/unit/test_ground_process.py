from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from dgr_build import process
from dgr_build.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path

_SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def _python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def _gone(pid: int, within_s: float = 10) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_run_returns_output_and_exit_code() -> None:
    done = process.run(_python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_run_ends_a_program_that_takes_too_long() -> None:
    start = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        process.run(_python(_SLEEP), timeout=0.5)
    assert time.monotonic() - start < 5


def test_run_leaves_no_grandchild_in_the_background() -> None:
    script = (
        f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {_SLEEP!r}], stdout=2).pid)"
    )
    done = process.run(["sh", "-c", 'exec "$@" 2>/dev/null', "sh", *_python(script)])
    assert _gone(int(done.stdout))


def test_missing_program_is_the_hosts_lack() -> None:
    with pytest.raises(HostError) as caught:
        process.run(["no-such-program-anywhere"])
    assert "--only doctor" in caught.value.remedy


def test_run_lines_hands_on_each_line_as_it_appears() -> None:
    seen: list[tuple[str, float]] = []
    script = "import sys, time; print('a', flush=True); time.sleep(0.6); print('b', file=sys.stderr)"
    done = process.run_lines(_python(script), lambda line: seen.append((line, time.monotonic())))
    assert [line for line, _ in seen] == ["a", "b"]
    assert seen[1][1] - seen[0][1] > 0.4
    assert done.stdout == "a\nb"


def test_run_lines_ends_the_program_when_its_reader_fails() -> None:
    pids: list[int] = []

    def read(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.run_lines(_python(f"import os; print(os.getpid(), flush=True); {_SLEEP}"), read)
    assert _gone(pids[0])


def test_stop_ends_the_whole_group_even_when_it_ignores_the_request(tmp_path: Path) -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {_SLEEP}"
    parent = (
        "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"child = subprocess.Popen([sys.executable, '-c', {deaf!r}], stdout=subprocess.PIPE);"
        "child.stdout.readline(); print(child.pid, flush=True); child.wait()"
    )
    child = process.Child(_python(parent), stdout=subprocess.PIPE)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    assert child.stop(grace_s=0.3) == -signal.SIGKILL
    child.stdout.close()
    assert _gone(grandchild)


def test_child_dies_with_a_toolchain_that_was_killed() -> None:
    script = (
        "from dgr_build.process import Child; import sys, time;"
        f"child = Child([sys.executable, '-c', {_SLEEP!r}], stdout=2);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        _python(script), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as toolchain:
        assert toolchain.stdout is not None
        pid = int(toolchain.stdout.readline())
        toolchain.send_signal(signal.SIGKILL)
    assert _gone(pid)


def test_child_has_no_standard_input_to_hang_on() -> None:
    assert process.run(_python("print(len(input.__self__.open(0).read()))"), timeout=20).stdout == "0\n"


def test_watcher_sees_commands_as_they_could_be_typed(tmp_path: Path) -> None:
    seen: list[str] = []
    process.watch(seen.append)
    try:
        folder = tmp_path / "a b"
        folder.mkdir()
        process.run(["echo", "two words"], cwd=folder)
    finally:
        process.watch(None)
    typed = subprocess.run(seen[0], shell=True, capture_output=True, text=True, check=True)  # noqa: S602
    assert typed.stdout == "two words\n"
    assert str(folder) in seen[0]


def test_replace_keeps_the_process_id() -> None:
    script = (
        "import os, sys; from dgr_build import process; print(os.getpid(), flush=True);"
        "process.replace([sys.executable, '-c', 'import os; print(os.getpid())'])"
    )
    first, second = process.run(_python(script), env=dict(os.environ)).stdout.split()
    assert first == second


def test_errors_kept_aside_do_not_fall_into_a_line(tmp_path: Path) -> None:
    aside = tmp_path / "errors"
    lines: list[str] = []
    code = "import os; os.write(1, b'ab'); os.write(2, b'noise'); os.write(1, b'cd\\n')"
    done = process.run_lines([sys.executable, "-c", code], lines.append, errors=aside)
    assert lines == ["abcd"]
    assert done.stdout == "abcd"
    assert aside.read_bytes() == b"noise"
