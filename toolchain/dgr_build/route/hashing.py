"""The prefix hash: every stage computes it anew, since past the hash layers no logit shows a wrong id."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAG = b"dgr.shard.v1.prefix"


def prefix_start(artifact_digest: str) -> bytes:
    """Return H0 of a session on an artifact, given by the hex digest of its manifest."""
    return hashlib.sha256(_TAG + bytes.fromhex(artifact_digest)).digest()


def prefix_next(before: bytes, token_ids: Sequence[int]) -> bytes:
    """Return the hash after a frame of token ids (definition and test vector: shard.proto)."""
    return hashlib.sha256(before + struct.pack(f"<I{len(token_ids)}i", len(token_ids), *token_ids)).digest()
