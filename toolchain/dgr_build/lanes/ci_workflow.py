"""The complete GitHub Actions workflow of all lanes, as text that is committed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dgr_build.errors import CheckError
from dgr_build.lanes.ci import jobs, settings_of
from dgr_build.lanes.ci_yaml import remarked, spaced, yaml_text
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.ci import Action, Cache, Ci
    from dgr_build.documents.matrix import Matrix
    from dgr_build.lanes.ci import Job

RENEW = "dgr-build matrix --write"
_BY_HAND = "workflow_dispatch"
_EVENTS = 3  # so many start a job that states none
_HEADING = f"""Every lane of lanes/matrix.toml as a job, emitted by `{RENEW}`: change that, not this.
Each job prepares its runner and calls `dgr-build lane`, nothing else; docs/ci.md explains it."""


def workflow(matrix: Matrix, only: str = "*") -> str:
    """Return the workflow; one matrix gives one text.

    Args:
        matrix: the lanes.
        only: a glob over the names of lanes and of jobs.

    Raises:
        UsageError: nothing has such a name, or the matrix has no usable `[ci]` part.
    """
    ci = settings_of(matrix)
    document = {
        "name": "lanes",
        "on": {
            "pull_request": {},
            "push": {"branches": [ci.branch]},
            "schedule": [{"cron": ci.nightly}],
            _BY_HAND: {},
        },
        "permissions": {},
        "concurrency": {
            "group": "lanes-${{ github.event_name }}-${{ github.ref }}",
            "cancel-in-progress": "${{ github.event_name == 'pull_request' }}",
        },
        "jobs": spaced({job.name: _job(job, ci) for job in jobs(matrix, only)}),
    }
    return yaml_text(spaced(document, after="name"), _HEADING + _open_points(ci))


def write_workflow(matrix: Matrix, file: Path) -> bool:
    """Renew the committed workflow; return whether it was another one before.

    Raises:
        UsageError: the matrix has no usable `[ci]` part.
    """
    fresh = workflow(matrix).encode()
    if _read(file) == fresh:
        return False
    write_atomic(file, fresh)
    return True


def check_workflow(matrix: Matrix, file: Path) -> None:
    """Hold the committed workflow against the matrix.

    Raises:
        CheckError: it is missing or another one.
        UsageError: the matrix has no usable `[ci]` part.
    """
    fresh, there = workflow(matrix).encode(), _read(file)
    if there != fresh:
        raise CheckError(
            f"{file} is {'missing' if there is None else 'out of date'}",
            cause=_difference(there, fresh),
            remedy=f"{RENEW}, then commit the file",
        )


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _difference(there: bytes | None, fresh: bytes) -> str:
    """Say where a file begins to differ from what it should be."""
    old, new = (there or b"").splitlines(), fresh.splitlines()
    for number, line in enumerate(new, 1):
        if number > len(old) or old[number - 1] != line:
            return f"line {number} should read: {line.decode().strip()}"
    return f"it should end after line {len(new)}"


def _open_points(ci: Ci) -> str:
    points = [
        f"  {action.uses} {action.version}: {action.open}" for action in ci.action.values() if action.open
    ]
    return "\n".join(["\n\nOpen:", *points]) if points else ""


def _job(job: Job, ci: Ci) -> dict[str, Any]:
    head: dict[str, Any] = {"name": f"lane {job.lane}" + (f", profile {job.profile}" if job.profile else "")}
    if len(job.events) < _EVENTS:
        wanted = json.dumps([*job.events, _BY_HAND])
        head["if"] = f"contains(fromJSON('{wanted}'), github.event_name)"
    return head | {
        "runs-on": job.runs_on,
        "timeout-minutes": job.timeout_minutes,
        "permissions": {"contents": "read"},
        "env": {"DGR_CACHE": "${{ github.workspace }}/" + ci.cache_folder},
        "steps": [
            _use(ci.action["checkout"], "Check out", {"persist-credentials": False}),
            *(_keep(cache, job, ci.action["cache"]) for cache in ci.cache),
            *_prepare(job),
            {"name": f"Build lane {job.lane}", "run": job.command_line},
            _hand_out(ci, job.name, ci.artifacts, "error"),
            _hand_out(ci, f"{job.name}-logs", ci.logs, "ignore", when="failure()"),
        ],
    }


def _use(action: Action, name: str, values: dict[str, Any], when: str = "") -> dict[str, Any]:
    step = {"name": name} | ({"if": when} if when else {}) | {"uses": action.reference, "with": values}
    return remarked(step, "uses", action.version) if action.commit else step


def _keep(cache: Cache, job: Job, action: Action) -> dict[str, Any]:
    # Ended by a slash, which no name holds: `cuda` must not take up what `cuda-quick` left.
    stem = f"{cache.name}/{job.runner}/{job.lane if cache.inputs else job.name}/"
    files = ", ".join(f"'{name}'" for name in cache.inputs)
    end = f"${{{{ hashFiles({files}) }}}}" if files else "${{ github.sha }}"
    values = {"path": "\n".join(cache.paths), "key": stem + end, "restore-keys": stem}
    return _use(action, f"Keep the {cache.name.replace('-', ' ')}", values)


def _prepare(job: Job) -> list[dict[str, Any]]:
    lines = []
    if job.install and job.manager == "apt-get":
        lines.append("sudo apt-get update")
        lines.append(f"sudo apt-get install --yes --no-install-recommends {' '.join(job.install)}")
    elif job.install:
        lines.append(f"brew install {' '.join(job.install)}")
    lines += [f"sudo sysctl --write {setting}" for setting in job.settings]
    return [{"name": "Prepare the runner", "run": "\n".join(lines) + "\n"}] if lines else []


def _hand_out(ci: Ci, name: str, paths: tuple[str, ...], missing: str, when: str = "") -> dict[str, Any]:
    values = {
        "name": name,
        "path": "\n".join(paths),
        "if-no-files-found": missing,
        "include-hidden-files": True,
        "retention-days": ci.retention_days,
    }
    title = "Hand out the logs of a failure" if when else "Hand out packages and evidence"
    return _use(ci.action["upload"], title, values, when)
