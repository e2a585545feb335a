"""Making, keeping and checking the manifest of a model file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgr_build.artifacts.effort import over_bytes
from dgr_build.artifacts.parts import part_paths
from dgr_build.artifacts.storage import check_model_path
from dgr_build.documents.artifact import ArtifactManifest, Part
from dgr_build.documents.base import load_json, save_json
from dgr_build.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.artifacts.gguf_index import Index
    from dgr_build.console import Task

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A model on this machine: its first file, which is what llama.cpp opens, and its manifest."""

    path: Path
    manifest: ArtifactManifest

    @property
    def digest(self) -> str:
        """The artifact digest."""
        return self.manifest.digest()

    @property
    def parts(self) -> tuple[Path, ...]:
        """All files, in order."""
        return tuple(self.path.with_name(part.file) for part in self.manifest.parts)

    @property
    def manifest_path(self) -> Path:
        """Where the manifest lies."""
        return manifest_path(self.path)


def manifest_path(first: Path) -> Path:
    """Return where the manifest of a model lies: beside its first file."""
    return first.with_name(first.name + ".manifest.json")


def manifest_of(path: Path) -> Artifact:
    """Read and hash a model, and return it with its true manifest; nothing is written.

    Args:
        path: a whole GGUF, or any part of a split one.

    Raises:
        ArtifactError: the file is missing, broken or under /home.
    """
    from dgr_build.artifacts.gguf_index import read_index  # noqa: PLC0415 - a warm lane reads none

    paths = part_paths(check_model_path(path))
    for part in paths:
        check_model_path(part)
    index = read_index(paths)
    sizes = [part.stat().st_size for part in paths]
    parts = []
    with over_bytes(f"hashing {paths[0].name}", sum(sizes)) as task:
        for part, size in zip(paths, sizes, strict=True):
            parts.append(Part(file=part.name, size=size, sha256=_sha256(part, task)))
    return Artifact(path=paths[0], manifest=_describe(index, tuple(parts), paths[0]))


def write_manifest(artifact: Artifact) -> Path:
    """Write an artifact's manifest beside its first file and return where."""
    target = artifact.manifest_path
    save_json(target, artifact.manifest)
    return target


def ensure_manifest(path: Path, *, replace: bool = False) -> Artifact:
    """Write the manifest of a model where there is none; check it where there is one.

    Args:
        path: a whole GGUF, or any part of a split one.
        replace: write a new one whatever the old one says.

    Raises:
        ArtifactError: the file is missing, broken or under /home, or differs from its manifest.
    """
    first = part_paths(check_model_path(path))[0]
    if manifest_path(first).exists() and not replace:
        return verify(first)
    artifact = manifest_of(first)
    write_manifest(artifact)
    return artifact


def load(path: Path) -> Artifact:
    """Return a model by its recorded manifest, checking only that each file has its size.

    Raises:
        ArtifactError: the manifest or a file is missing, broken or of another size, or lies under /home.
    """
    first = part_paths(check_model_path(path))[0]
    recorded = manifest_path(first)
    try:
        manifest = load_json(recorded, ArtifactManifest)
    except UsageError as error:
        raise ArtifactError(
            f"no sound manifest for {first}",
            cause=f"{error.message}: {error.cause}",
            remedy=f"dgr-build model manifest {first}",
        ) from error
    artifact = Artifact(path=first, manifest=manifest)
    for part, wanted in zip(artifact.parts, manifest.parts, strict=True):
        check_model_path(part)
        size = part.stat().st_size if part.is_file() else None
        if size != wanted.size:
            found = "is missing" if size is None else f"has {size} bytes, not {wanted.size}"
            raise _differs(first, f"{part.name} {found}")
    return artifact


def verify(path: Path) -> Artifact:
    """Hash a model again and compare it with its recorded manifest.

    Raises:
        ArtifactError: anything differs; the first difference is named.
    """
    recorded = load(path)
    found = manifest_of(recorded.path)
    for wanted, part in zip(recorded.manifest.parts, found.manifest.parts, strict=False):
        if wanted != part:
            raise _differs(found.path, f"{part.file} has sha256 {part.sha256}, {wanted.sha256} recorded")
    if found.manifest != recorded.manifest:
        fields = [
            name
            for name in ArtifactManifest.model_fields
            if getattr(found.manifest, name) != getattr(recorded.manifest, name)
        ]
        raise _differs(found.path, f"the manifest's {', '.join(fields)} are not what the file says")
    return found


def _differs(first: Path, cause: str) -> ArtifactError:
    return ArtifactError(
        f"{first} is not what its manifest says",
        cause=cause,
        remedy=f"make or fetch it again; if the file is right: dgr-build model manifest {first} --replace",
    )


def _sha256(path: Path, task: Task) -> str:
    value = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            value.update(chunk)
            task.advance(len(chunk))
    return value.hexdigest()


def _describe(index: Index, parts: tuple[Part, ...], first: Path) -> ArtifactManifest:
    try:
        n_blocks = int(index.get("block_count"))
        n_embd = int(index.get("embedding_length"))
    except TypeError as error:
        raise ArtifactError(
            f"{first} is no language model",
            cause="block_count or embedding_length is missing",
            remedy="give a GGUF of a language model",
        ) from error
    nextn = int(index.get("nextn_predict_layers", 0))
    names = {entry.name for entry in index.tensors}
    if nextn and f"blk.{n_blocks - nextn}.nextn.eh_proj.weight" not in names:
        raise ArtifactError(
            f"{first} states {nextn} predicting blocks that it does not hold",
            cause="llama.cpp would take them for main layers",
            remedy="convert the model again, with these blocks or without the key",
        )
    tokens = index.metadata.get("tokenizer.ggml.tokens", ())
    return ArtifactManifest(
        arch=str(index.metadata["general.architecture"]),
        n_layer=n_blocks - nextn,
        n_layer_nextn=nextn,
        n_embd=n_embd,
        n_vocab=int(index.get("vocab_size", len(tokens))),
        hc_mult=int(index.get("hyper_connection.count", 1)),
        n_hash_layer=int(index.get("hash_layer_count", 0)),
        compress_ratios=tuple(int(ratio) for ratio in index.get("attention.compress_ratios", ())),
        parts=parts,
        tensors=index.tensors,
    )
