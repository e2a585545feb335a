"""`dgr-build matrix`: the lanes for continuous integration, as data or as the workflow that is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from dgr_build import console
from dgr_build.documents.matrix import load_matrix
from dgr_build.errors import UsageError
from dgr_build.lanes.ci import include_list, jobs, plain_data
from dgr_build.lanes.ci_gitlab import gitlab_jobs
from dgr_build.lanes.ci_workflow import check_workflow, workflow, write_workflow
from dgr_build.workspace import Workspace

_WORKFLOW = Path(".github") / "workflows" / "lanes.yml"
_HELP = """Print all lanes as jobs for continuous integration, from lanes/matrix.toml.

`--format github` is one line for `strategy.matrix` through fromJSON, `gitlab` is YAML to include, `json` is
for everything else. The complete GitHub workflow is committed as .github/workflows/lanes.yml: `--workflow`
prints it, `--write` renews it, `--check` exits 8 where it does not fit the matrix any more.

Examples:

  dgr-build matrix --format github --only 'cu*'

  dgr-build matrix --workflow

  dgr-build matrix --write

  dgr-build matrix --check
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("matrix", help=_HELP)(matrix)


def matrix(
    *,
    form: Annotated[
        Literal["github", "gitlab", "json"] | None,
        typer.Option("--format", help="What to print the jobs as; json unless stated."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="GLOB", help="Only lanes or jobs of such a name, for instance 'cu*'."),
    ] = None,
    show: Annotated[bool, typer.Option("--workflow", help="Print the GitHub workflow.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Renew the committed GitHub workflow.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 8 where the committed GitHub workflow is out of date.")
    ] = False,
) -> None:
    """Print the lanes as jobs, or take care of the committed workflow."""
    _one_task(form=form, show=show, write=write, check=check)
    if only is not None and (write or check):
        raise UsageError(
            "--only makes a part, and the committed workflow holds every lane",
            remedy="leave --only out, or print the part: dgr-build matrix --workflow --only GLOB",
        )
    ws = Workspace.open()
    lanes = load_matrix(ws.matrix_file)
    pattern = "*" if only is None else only
    if write:
        new = write_workflow(lanes, ws.project / _WORKFLOW)
        console.result(f"{_WORKFLOW}: {'renewed' if new else 'was up to date'}")
    elif check:
        check_workflow(lanes, ws.project / _WORKFLOW)
        console.result(f"{_WORKFLOW}: up to date")
    elif show:
        console.stream(workflow(lanes, pattern))
    elif form == "gitlab":
        console.stream(gitlab_jobs(lanes, pattern))
    elif form == "github":
        console.stream(json.dumps(include_list(jobs(lanes, pattern))) + "\n")  # GITHUB_OUTPUT takes one line
    else:
        console.result_json(plain_data(jobs(lanes, pattern)))


def _one_task(*, form: str | None, show: bool, write: bool, check: bool) -> None:
    asked = [f"--format {form}"] if form else []
    asked += [name for name, on in (("--workflow", show), ("--write", write), ("--check", check)) if on]
    if len(asked) > 1:
        raise UsageError(
            f"{' and '.join(asked)} are different tasks",
            remedy="ask for one of them; dgr-build matrix --help shows what each does",
        )
