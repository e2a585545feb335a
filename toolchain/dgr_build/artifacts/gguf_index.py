"""Reading GGUF headers: which parts a model has, its metadata, and where each tensor lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import GGUFReader

from dgr_build.documents.artifact import TensorEntry
from dgr_build.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

# What the library raises at one or another broken byte.
_BROKEN = (ValueError, LookupError, TypeError, ArithmeticError, MemoryError, RecursionError, OSError)


class _StrictReader(GGUFReader):
    """A reader that stops at the end of the file.

    The library's own returns short arrays there, so a false count in a header would keep it busy for ever.
    """

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
            raise ValueError("a header entry or tensor reaches beyond the end of the file")
        return super()._get(offset, dtype, count, override_order)


@dataclass(frozen=True, kw_only=True)
class Index:
    """What the headers of a model say.

    Attributes:
        metadata: the first part's keys and values.
        tensors: every tensor of every part, in file order.
    """

    metadata: dict[str, Any]
    tensors: tuple[TensorEntry, ...]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of an architecture's key, such as `block_count`."""
        return self.metadata.get(f"{self.metadata['general.architecture']}.{key}", default)


def read_index(paths: tuple[Path, ...]) -> Index:
    """Read the headers of a model's parts.

    Raises:
        ArtifactError: a header is broken, a tensor reaches beyond its file, or the parts are of two models.
    """
    tensors: list[TensorEntry] = []
    metadata: dict[str, Any] = {}
    for number, path in enumerate(paths):
        keys, entries = _read_part(path, number)
        if number == 0:
            metadata = keys
        _check_split(path, keys, number, len(paths))
        tensors += entries
    if "general.architecture" not in metadata:
        raise _broken(paths[0], "it names no architecture")
    stated = metadata.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise _broken(paths[0], f"{stated} tensors stated, {len(tensors)} found in {len(paths)} parts")
    names = {entry.name for entry in tensors}
    if len(names) != len(tensors):
        raise _broken(paths[0], "a tensor occurs twice")
    return Index(metadata=metadata, tensors=tuple(tensors))


def _read_part(path: Path, number: int) -> tuple[dict[str, Any], list[TensorEntry]]:
    try:
        reader = _StrictReader(path)
        keys = {name: field.contents() for name, field in reader.fields.items()}
        entries = [
            TensorEntry(
                name=tensor.name,
                dtype=tensor.tensor_type.name,
                shape=tuple(int(extent) for extent in tensor.shape),
                part=number,
                offset=int(tensor.data_offset),
                size=int(tensor.n_bytes),
            )
            for tensor in reader.tensors
        ]
    except _BROKEN as error:
        raise _broken(path, str(error) or type(error).__name__) from error
    size = path.stat().st_size
    for entry in entries:
        if entry.offset + entry.size > size:
            raise _broken(path, f"{entry.name} reaches beyond the end of the file")
    return keys, entries


def _check_split(path: Path, keys: dict[str, Any], number: int, count: int) -> None:
    stated = keys.get("split.count", 1) or 1
    if stated != count:
        raise _broken(path, f"it says it is one of {stated} parts, its name says {count}")
    if count > 1 and keys.get("split.no") != number:
        raise _broken(path, f"it says it is part {keys.get('split.no')}, its name says {number}")


def _broken(path: Path, cause: str) -> ArtifactError:
    return ArtifactError(f"{path} is no sound GGUF", cause=cause, remedy="fetch or make the file again")
