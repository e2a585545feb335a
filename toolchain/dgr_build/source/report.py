"""The pinned source of this project: what the commands do, and what they tell about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgr_build.documents.base import parse
from dgr_build.documents.pin import BundleProvider, Provider, RepositoryProvider, load_pin
from dgr_build.errors import UsageError
from dgr_build.source.resolve import BaseTree, recorded, resolve, verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dgr_build.documents.pin import Pin
    from dgr_build.workspace import Workspace

__all__ = ["BaseTree", "by_hand", "facts_of", "flat", "resolve_project", "show_project", "verify_project"]


def by_hand(repository: Path | None, bundle: Path | None) -> tuple[Provider, ...]:
    """Return the providers that a person names by path.

    Raises:
        UsageError: a path holds characters that no manifest could.
    """
    named: list[Provider] = []
    if repository is not None:
        facts = {"kind": "repository", "path": str(repository.absolute())}
        named.append(parse(facts, RepositoryProvider, "--repository"))
    if bundle is not None:
        facts = {"kind": "bundle", "path": str(bundle.absolute())}
        named.append(parse(facts, BundleProvider, "--bundle"))
    return tuple(named)


def resolve_project(
    ws: Workspace,
    *,
    kinds: Sequence[str] = (),
    named: Sequence[Provider] = (),
    offline: bool = False,
    allow_tree_proof: bool = False,
) -> BaseTree:
    """Obtain the project's pin; sources named by hand stand in for the manifest's.

    Raises:
        UsageError: no provider is of the kinds asked for.
        SourceUnavailableError, ProofError, HostError: see `resolve`.
    """
    pin = load_pin(ws.pin_file)
    return resolve(
        ws,
        pin,
        providers=[*named, *_of_kinds(pin, kinds)] if named or kinds else None,
        offline=offline,
        allow_tree_proof=allow_tree_proof,
    )


def _of_kinds(pin: Pin, kinds: Sequence[str]) -> list[Provider]:
    there = [p.kind for p in pin.providers]
    for kind in kinds:
        if kind not in there:
            raise UsageError(
                f"the pin has no provider of kind {kind!r}",
                cause=f"it has: {', '.join(there) or 'none'}",
                remedy="dgr-build source show lists them; --repository and --bundle name others",
            )
    return [p for p in pin.providers if p.kind in kinds]


def verify_project(ws: Workspace) -> BaseTree:
    """Prove the project's pin in the store anew.

    Raises:
        SourceUnavailableError, ProofError: see `verify`.
    """
    return verify(ws, load_pin(ws.pin_file))


def show_project(ws: Workspace) -> dict[str, Any]:
    """Return the pin, and what is recorded of it in the store."""
    pin = load_pin(ws.pin_file)
    known = recorded(ws, pin, allow_tree_proof=True)
    return {
        "pin": pin.model_dump(mode="json", exclude={"providers", "lineage"}),
        "lineage": pin.lineage.model_dump(mode="json", exclude_none=True) if pin.lineage else None,
        "providers": [p.description for p in pin.providers],
        "resolved": facts_of(known) if known else None,
    }


def facts_of(done: BaseTree) -> dict[str, Any]:
    """Return what a person wants to read about a proven source."""
    facts: dict[str, Any] = {
        "commit": done.commit,
        "tree": done.tree,
        "content sha256": done.content_sha256,
        "version": f"{done.version} (b{done.build})",
        "proof": done.proof if done.proof == "full" else "tree only: the commit is stated, not proven",
        "provider": done.provider + (" (named by hand)" if done.override else ""),
        "lineage": done.ancestry,
        "files": f"{done.files} ({done.size / 1e6:.1f} MB)",
        "store": str(done.store),
    }
    for number, (provider, reason) in enumerate(done.attempts, start=1):
        facts[f"tried {number}"] = f"{provider}: {reason}"
    for number, remark in enumerate(done.remarks, start=1):
        facts[f"remark {number}"] = remark
    return facts


def flat(shown: dict[str, Any]) -> dict[str, Any]:
    """Return nested facts under dotted names, for a listing."""
    lines: dict[str, Any] = {}
    for name, value in shown.items():
        if isinstance(value, dict):
            lines |= {f"{name}.{inner}": item for inner, item in value.items()}
        elif isinstance(value, list):
            lines |= {f"{name}.{number}": item for number, item in enumerate(value, start=1)}
        else:
            lines[name] = "no: dgr-build source resolve obtains it" if value is None else value
    return lines
