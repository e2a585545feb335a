"""Obtaining the pin: the store answers when its proof stands, else providers are tried and proven."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from dulwich.objects import Commit, ObjectID

from dgr_build import console, workspace
from dgr_build.errors import DgrError, HostError, ProofError, SourceUnavailableError
from dgr_build.source import record as records
from dgr_build.source.base_tree import (
    BaseTree,
    base_tree_of,
    is_damaged,
    prove_content,
    recorded,
    stated_commit,
    verify,
)
from dgr_build.source.proof import check_commit, descends, read_object
from dgr_build.source.providers.base import Request
from dgr_build.source.record import ProofRecord
from dgr_build.source.store import copy_tree, lay_out, name_commit, open_store, opened, publish_pack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from dulwich.object_store import BaseObjectStore

    from dgr_build.documents.pin import Pin, Provider
    from dgr_build.workspace import Workspace

__all__ = ["BaseTree", "open_store", "recorded", "resolve", "verify"]

# Loaded when asked for: a warm run needs none of them, and HTTP clients are slow to load.
_PROVIDERS = {
    "git": ("remote", "obtain"),
    "sdist": ("sdist", "obtain"),
    "repository": ("local", "obtain_repository"),
    "bundle": ("local", "obtain_bundle"),
}


def resolve(
    ws: Workspace,
    pin: Pin,
    *,
    providers: Sequence[Provider] | None = None,
    offline: bool = False,
    allow_tree_proof: bool = False,
) -> BaseTree:
    """Return the pinned source, obtaining and proving it where the store does not hold it yet.

    Args:
        ws: the workspace.
        pin: the pin.
        providers: where to get it, whatever the store holds; None for the store, then the pin's providers.
            One that the pin does not name is an override; this is recorded.
        offline: nothing may leave this machine.
        allow_tree_proof: accept a source whose tree proves while no commit object can be had.

    Raises:
        SourceUnavailableError: no provider has it; each is named with its reason.
        ProofError: a provider had it, but it is not what the pin names.
        HostError: there is no space, or the workspace cannot be written.
    """
    if providers is None and (found := recorded(ws, pin, allow_tree_proof=allow_tree_proof)):
        return found
    try:
        with ws.lock("source"):
            # another process may have done it while this one waited
            if providers is None and (found := recorded(ws, pin, allow_tree_proof=allow_tree_proof)):
                return found
            for folder in (ws.root, ws.store, records.path_of(ws.store, pin.tree).parent):
                workspace.sweep(folder)
            commit = stated_commit(pin)
            if is_damaged(ws, pin):
                console.warn(f"the object store is damaged and is made anew: {ws.store}")
                workspace.remove(ws.store)
            chosen = pin.providers if providers is None else tuple(providers)
            job = _Job(ws=ws, pin=pin, stated=commit, offline=offline, allow_tree_proof=allow_tree_proof)
            return base_tree_of(ws, pin, _try_each(job, chosen))
    except OSError as error:
        raise HostError(
            f"the source cannot be kept in {ws.root}",
            cause=str(error),
            remedy="free some space and check who may write there, or set DGR_WORKSPACE and DGR_CACHE",
        ) from error


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What holds for every provider; `stated` is the raw commit object beside the manifest."""

    ws: Workspace
    pin: Pin
    stated: bytes | None
    offline: bool
    allow_tree_proof: bool


def _try_each(job: _Job, providers: Sequence[Provider]) -> ProofRecord:
    failures: list[tuple[Provider, DgrError]] = []
    for provider in providers:
        console.step(f"source from {provider.description}")
        with workspace.staging(job.ws.root, "source") as staging:
            request = Request(pin=job.pin, staging=staging, downloads=job.ws.downloads, offline=job.offline)
            try:
                record, new = _attempt(job, provider, request)
            except (SourceUnavailableError, ProofError) as error:
                failures.append((provider, error))
                console.warn(f"{provider.description}: {_reason(error)}")
                continue
            attempts = tuple((p.description, _reason(e)) for p, e in failures)
            return _publish(job, record.model_copy(update={"attempts": attempts}), new)
    raise _none_did(job.pin, failures)


def _attempt(job: _Job, provider: Provider, request: Request) -> tuple[ProofRecord, Path]:
    """Obtain the pin from one provider and prove it; return the record, and the objects folder with the pack.

    Raises:
        SourceUnavailableError, ProofError: the provider does not do.
    """
    pin = job.pin
    new = request.staging / "new"
    module, function = _PROVIDERS[provider.kind]
    obtain = getattr(import_module(f"dgr_build.source.providers.{module}"), function)
    obtained: AbstractContextManager[BaseObjectStore] = obtain(provider, request)
    with obtained as source:
        commit = _commit_of(source, pin) or job.stated
        if commit is None and not job.allow_tree_proof:
            raise ProofError(
                f"no commit object {pin.commit} could be had, only its tree can be proven",
                cause="neither the source nor the manifest holds it",
                remedy="dgr-build source resolve --allow-tree-proof tries it; it is never published",
            )
        pack = copy_tree(source, pin.tree, commit, new)
        with opened(new) as copied:
            proven = prove_content(copied, pin)
        shown = pin.lineage is not None and descends(source, pin.commit, pin.lineage.merge)
    record = ProofRecord(
        commit=pin.commit,
        tree=pin.tree,
        content_sha256=proven.content_sha256,
        proof="full" if commit else "tree",
        provider=provider.description,
        override=provider not in pin.providers,
        ancestry="proven" if shown else "stated",
        remarks=tuple(request.remarks),
        trees=proven.trees,
        blobs=proven.blobs,
        files=proven.files,
        size=proven.size,
        pack=pack,
    )
    return record, new


def _publish(job: _Job, record: ProofRecord, new: Path) -> ProofRecord:
    """Put the pack into the store. It goes last: without it all the rest counts for nothing."""
    lay_out(job.ws.store)
    if record.proof == "full":
        name_commit(job.ws.store, record.commit)
    records.write(job.ws.store, record)
    publish_pack(record.pack, new, job.ws.store)
    return record


def _commit_of(source: BaseObjectStore, pin: Pin) -> bytes | None:
    """Return the source's commit object, checked, or None when it has the tree only.

    Raises:
        SourceUnavailableError: it has neither.
        ProofError: it is damaged, or does not name the pinned tree.
    """
    try:
        has_commit = ObjectID(pin.commit.encode()) in source
        has_tree = ObjectID(pin.tree.encode()) in source
    except Exception as error:
        raise ProofError("the objects cannot be read", cause=f"{type(error).__name__}: {error}") from error
    if not has_commit and not has_tree:
        raise SourceUnavailableError(f"it holds neither commit {pin.commit} nor tree {pin.tree}")
    if not has_commit:
        return None
    content = read_object(source, pin.commit.encode(), Commit, "commit")
    check_commit(content, pin.commit, pin.tree, "the source's commit object")
    return content


def _reason(error: DgrError) -> str:
    return f"{error.message} ({error.cause})" if error.cause else error.message


def _none_did(pin: Pin, failures: Sequence[tuple[Provider, DgrError]]) -> DgrError:
    """Return what to raise after every provider failed: the proof's error when one had something."""
    cause = "; ".join(f"{p.description}: {_reason(e)}" for p, e in failures) or "no provider is named"
    remedies = [e.remedy for _, e in failures if e.remedy]
    refuted = next((e for _, e in failures if isinstance(e, ProofError)), None)
    if refuted is not None:
        return ProofError(
            f"no source of commit {pin.commit} could be proven", cause=cause, remedy=refuted.remedy or _OTHER
        )
    return SourceUnavailableError(
        f"no provider has commit {pin.commit}", cause=cause, remedy=" or: ".join([_OTHER, *remedies[:1]])
    )


_OTHER = "dgr-build source resolve --repository DIR, or --bundle FILE, with a clone or bundle of that commit"
