"""dgr-build source: obtain, show and prove the pinned llama.cpp commit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dgr_build import console
from dgr_build.source import report
from dgr_build.workspace import Workspace

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the command group to the root application."""
    group = typer.Typer(no_args_is_help=True, help="The pinned source: obtain, show, prove.")
    group.command("resolve")(resolve)
    group.command("show")(show)
    group.command("verify")(verify)
    app.add_typer(group, name="source")


def resolve(
    offline: Annotated[bool, typer.Option("--offline", help="Use only what is on this machine.")] = False,
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Only providers of this kind (git, sdist, repository, bundle); can be repeated."),
    ] = None,
    repository: Annotated[Path | None, typer.Option(help="Take it from this git repository instead.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="Take it from this git bundle file instead.")] = None,
    allow_tree_proof: Annotated[
        bool,
        typer.Option(
            "--allow-tree-proof",
            help="Accept a source without commit object; it is never published as the pin.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Obtain the pinned commit from the first provider that has it, and prove it object by object.

    A second run finds it in the store. With --provider, --repository or --bundle the source is obtained from
    there again, whatever the store holds. Example: dgr-build source resolve --repository ../llama.cpp
    """
    done = report.resolve_project(
        Workspace.open(),
        kinds=provider or (),
        named=report.by_hand(repository, bundle),
        offline=offline,
        allow_tree_proof=allow_tree_proof,
    )
    _print(report.facts_of(done), done, as_json)


def show(as_json: Json = False) -> None:
    """Print the pin, its lineage and providers, and what is known of the source in the store.

    Nothing is fetched or proven. Example: dgr-build source show --json
    """
    shown = report.show_project(Workspace.open())
    if as_json:
        console.result_json(shown)
    else:
        console.facts(report.flat(shown))


def verify(as_json: Json = False) -> None:
    """Prove the source in the store again, every object of it. Example: dgr-build source verify."""
    done = report.verify_project(Workspace.open())
    _print(report.facts_of(done), done, as_json)


def _print(facts: dict[str, object], done: report.BaseTree, as_json: bool) -> None:
    if as_json:
        console.result_json(asdict(done) | {"store": str(done.store)})
    else:
        console.facts(facts)
