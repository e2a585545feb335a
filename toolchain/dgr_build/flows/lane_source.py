"""Putting the proven source where lanes build it from."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dulwich.objects import ObjectID

from dgr_build.documents.evidence import Digests
from dgr_build.documents.pin import load_pin
from dgr_build.documents.series import load_series
from dgr_build.lanes.plan import SourceFacts
from dgr_build.lanes.remembered import remembered, state_of
from dgr_build.patches.stack import apply_series, read_patches, series_digest
from dgr_build.source import checkout
from dgr_build.source.resolve import open_store, resolve

if TYPE_CHECKING:
    from dgr_build.documents.series import Series
    from dgr_build.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class Published:
    """Both trees, published read-only in the workspace.

    Args:
        facts: what they are.
        proof: whether commit and tree were proven, or the tree alone.
        series: the patch stack between them.
        series_sha256: its digest.
    """

    facts: SourceFacts
    proof: Literal["full", "tree"]
    series: Series
    series_sha256: str

    def digests(self, lane: str) -> Digests:
        """Return the digests of a record about a lane of this source, of which nothing was built yet."""
        return Digests(
            pin_commit=self.facts.commit,
            pin_tree=self.facts.base_tree,
            proof=self.proof,
            patched_tree=self.facts.patched_tree,
            series_sha256=self.series_sha256,
            lane=lane,
            lane_digest=None,
            worker_sha256=None,
        )


def publish_source(ws: Workspace) -> Published:
    """Resolve the pin, apply the stack, and publish the base tree and the patched tree.

    Raises:
        SourceUnavailableError, ProofError: the source cannot be had, or is not the pinned one.
        PatchError: the stack is not what it says.
    """
    pin = load_pin(ws.pin_file)
    series = load_series(ws.series_file)
    base = resolve(ws, pin)
    series_sha256 = series_digest(series)
    with closing(open_store(base.store)) as store:

        def prove() -> dict[str, str]:
            return {"tree": apply_series(store, base.tree, series, ws.series_file.parent).tree}

        # Every patch file is held against its sha256 in the series each time; what the very same bytes come
        # to was proven before, where the store has it.
        read_patches(series, ws.series_file.parent)
        there = ObjectID(series.tree.encode()) in store
        state = state_of((), base.tree, series_sha256)
        tree = (remembered(ws, "stack", state, prove) if there else prove())["tree"]
        checkout.update(store, base.tree, ws.base_source)
        checkout.update(store, tree, ws.source)
    return Published(
        facts=SourceFacts.of(pin, tree),
        proof=base.proof,
        series=series,
        series_sha256=series_sha256,
    )
