"""The lanes as jobs of GitLab, to be included by a pipeline there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgr_build.lanes.ci import jobs, settings_of
from dgr_build.lanes.ci_yaml import yaml_text

if TYPE_CHECKING:
    from dgr_build.documents.ci import Cache, Ci
    from dgr_build.documents.matrix import Matrix
    from dgr_build.lanes.ci import Job

_HEADING = "Every lane of lanes/matrix.toml as a job. Emitted by `dgr-build matrix --format gitlab`."


def gitlab_jobs(matrix: Matrix, only: str = "*") -> str:
    """Return the jobs as GitLab's YAML; one matrix gives one text.

    Args:
        matrix: the lanes.
        only: a glob over the names of lanes and of jobs.

    Raises:
        UsageError: nothing has such a name, or the matrix has no usable `[ci]` part.
    """
    ci = settings_of(matrix)
    return yaml_text({job.name: _job(job, ci) for job in jobs(matrix, only)}, _HEADING)


def _job(job: Job, ci: Ci) -> dict[str, Any]:
    return {
        "stage": "build",
        "image": job.image,
        **({"tags": job.tags} if job.tags else {}),
        "timeout": f"{job.timeout_minutes} minutes",
        "rules": [{"if": rule} for rule in _rules(job, ci)],
        "variables": {"DGR_CACHE": f"$CI_PROJECT_DIR/{ci.cache_folder}"},
        "cache": [_keep(cache, job) for cache in ci.cache],
        "before_script": _prepare(job),
        "script": [job.command_line],
        "artifacts": {
            "when": "always",
            "paths": [*ci.artifacts, *ci.logs],
            "expire_in": f"{ci.retention_days} days",
        },
    }


def _rules(job: Job, ci: Ci) -> list[str]:
    conditions = {
        "pull_request": '$CI_PIPELINE_SOURCE == "merge_request_event"',
        "push": f'$CI_PIPELINE_SOURCE == "push" && $CI_COMMIT_BRANCH == "{ci.branch}"',
        "schedule": '$CI_PIPELINE_SOURCE == "schedule"',
    }
    return [*(conditions[event] for event in job.events), '$CI_PIPELINE_SOURCE == "web"']


def _keep(cache: Cache, job: Job) -> dict[str, Any]:
    # GitLab takes two files at most for a key and no folders, so the key is the plain name.
    return {
        "key": f"{cache.name}-{job.runner}-{job.lane if cache.inputs else job.name}",
        "paths": cache.paths,
    }


def _prepare(job: Job) -> list[str]:
    if not job.install:
        return []
    names = " ".join(job.install)
    if job.manager == "brew":
        return [f"brew install {names}"]
    return ["apt-get update", f"apt-get install --yes --no-install-recommends {names}"]
