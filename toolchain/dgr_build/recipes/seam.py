"""What a cut costs: the bytes that cross it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgr_build.documents.artifact import ArtifactManifest

_F32 = 4


def bytes_per_token(manifest: ArtifactManifest) -> int:
    """Return the size of one token's residual at a cut, in bytes: every stream, in float32."""
    return manifest.boundary_width * _F32
