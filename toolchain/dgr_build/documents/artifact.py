"""The manifest of a model file: what it is, part by part, tensor by tensor, and the digest that names it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from dgr_build.documents.base import Document, Sha256, digest

FileName = Annotated[str, StringConstraints(pattern=r"^[^/\x00]+$")]
Count = Annotated[int, Field(ge=0)]


class Part(Document):
    """One file of an artifact: its name beside the manifest, its size in bytes, its content."""

    file: FileName
    size: Count
    sha256: Sha256


class TensorEntry(Document):
    """Where a tensor lies.

    Attributes:
        name: the tensor's name.
        dtype: ggml's name of its type, in capitals.
        shape: fastest dimension first, as the GGUF header has it.
        part: index of the part that holds it.
        offset: of its first byte, from the start of that part.
        size: in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    part: Count
    offset: Count
    size: Count


class ArtifactManifest(Document):
    """A model as an artifact.

    Attributes:
        manifest: version of this document.
        arch: upstream's name of the model family.
        n_layer: main layers, those that a range can own.
        n_layer_nextn: blocks after them that predict further tokens (reserved, not executable for alpha).
        n_embd: width of one residual stream.
        n_vocab: number of tokens.
        hc_mult: residual streams; 1 for models without hyper-connections.
        n_hash_layer: leading layers that route by token id.
        compress_ratios: attention compression of each block, empty for families without it.
        parts: the files, in order.
        tensors: the index, in file order.
    """

    manifest: Literal[1] = 1
    arch: str
    n_layer: Annotated[int, Field(ge=1)]
    n_layer_nextn: Count
    n_embd: Annotated[int, Field(ge=1)]
    n_vocab: Annotated[int, Field(ge=1)]
    hc_mult: Annotated[int, Field(ge=1)]
    n_hash_layer: Count
    compress_ratios: tuple[Count, ...]
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    tensors: tuple[TensorEntry, ...]

    def digest(self) -> str:
        """Return the artifact digest.

        It covers everything but the file names, so that a copy under another name is the same artifact.
        """
        return digest(self.model_dump(mode="json", exclude={"parts": {"__all__": {"file"}}}))

    @property
    def n_bytes(self) -> int:
        """Size of all parts together."""
        return sum(part.size for part in self.parts)

    @property
    def boundary_width(self) -> int:
        """Floats that cross a cut for each token."""
        return self.hc_mult * self.n_embd
