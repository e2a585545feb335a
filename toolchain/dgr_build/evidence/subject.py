"""What a record is about: the digests of source, patches, lane, programs and models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build.documents.evidence import ArtifactFacts, ChangedFile, Digests
from dgr_build.documents.pin import load_pin
from dgr_build.lanes.archives import sha256_file
from dgr_build.source.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dgr_build.artifacts.manifest import Artifact
    from dgr_build.documents.recipe import Recipe
    from dgr_build.documents.series import Series
    from dgr_build.lanes.lane import BuiltLane
    from dgr_build.workspace import Workspace


def digests_of(
    ws: Workspace,
    built: BuiltLane,
    models: Mapping[str, Artifact] | None = None,
    *,
    recipes: Sequence[Recipe] = (),
    numerics: Mapping[str, str] | None = None,
) -> Digests:
    """Return the digests of everything that took part.

    Args:
        ws: the workspace that the lane was built in.
        built: the lane.
        models: the models by what a person calls them; those of this project are synthetic.
        recipes: the recipes that were run.
        numerics: digests that workers reported, by what they are called.

    Raises:
        SourceUnavailableError, ProofError: the source is not proven here.
    """
    base = resolve(ws, load_pin(ws.pin_file))
    return Digests(
        pin_commit=base.commit,
        pin_tree=base.tree,
        proof=base.proof,
        patched_tree=built.version["patched_tree"],
        series_sha256=sha256_file(ws.series_file),
        lane=built.lane,
        lane_digest=built.digest,
        worker_sha256=built.sha256,
        reference_sha256=sha256_file(built.reference) if built.reference is not None else None,
        artifacts=tuple(facts_of(name, artifact) for name, artifact in (models or {}).items()),
        recipes={recipe.name: recipe.digest() for recipe in recipes},
        numerics=dict(numerics or {}),
    )


def facts_of(name: str, artifact: Artifact, *, synthetic: bool = True) -> ArtifactFacts:
    """Return what a record says of a model."""
    manifest = artifact.manifest
    return ArtifactFacts(
        name=name,
        digest=artifact.digest,
        arch=manifest.arch,
        n_layer=manifest.n_layer,
        parts=manifest.parts,
        synthetic=synthetic,
    )


def changed_files(series: Series) -> tuple[ChangedFile, ...]:
    """Return the upstream files that the whole stack changes, from their first content to their last."""
    files: dict[str, ChangedFile] = {}
    for patch in series.patches:
        for entry in patch.files:
            before = files[entry.path].before if entry.path in files else entry.before
            files[entry.path] = ChangedFile(path=entry.path, before=before, after=entry.after)
    return tuple(files[path] for path in sorted(files))
