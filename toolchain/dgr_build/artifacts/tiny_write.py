"""Writing a tiny model as one GGUF or as several parts, tensor by tensor, so that memory stays small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import quantize

from dgr_build.artifacts import randomness
from dgr_build.artifacts.parts import part_names
from dgr_build.artifacts.tiny_spec import Fill, TensorSpec, TinySpec
from dgr_build.artifacts.tokenizer import BOS, EOS, UNK, TokenType, vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dgr_build.console import Task
    from dgr_build.documents.recipe import TinyModel

_BYTE_ROW_SCALE = 0.25


def write_model(folder: Path, stem: str, spec: TinySpec, request: TinyModel, task: Task) -> list[Path]:
    """Write the model's parts into `folder` and return their paths in order.

    Args:
        folder: where to write; nothing is published from here.
        stem: the file name without `.gguf` and without a part's number.
        spec: the model.
        request: seed, storage type and number of parts.
        task: is advanced by the bytes of tensor data written.
    """
    split = request.split
    groups = _partition(spec.tensors, split, request.dtype)
    paths = [folder / name for name in part_names(stem, split)]
    for number, (path, tensors) in enumerate(zip(paths, groups, strict=True)):
        writer = GGUFWriter(path, spec.arch)
        try:
            if number == 0:
                _add_keys(writer, spec)
            if split > 1:
                writer.add_uint16("split.no", number)
                writer.add_uint16("split.count", split)
                writer.add_int32("split.tensors.count", len(spec.tensors))
            _write_part(writer, spec, tensors, request, task)
        finally:
            writer.close()
    return paths


def _partition(tensors: Sequence[TensorSpec], parts: int, dtype: str) -> list[list[TensorSpec]]:
    # Runs of about equal size in file order; each keeps at least one tensor.
    total = sum(tensor.nbytes(dtype) for tensor in tensors)
    groups: list[list[TensorSpec]] = [[]]
    done = 0
    for index, tensor in enumerate(tensors):
        left = len(tensors) - index
        must_open = left == parts - len(groups)
        full = done >= total * len(groups) / parts and len(groups) < parts
        if groups[-1] and (must_open or full):
            groups.append([])
        groups[-1].append(tensor)
        done += tensor.nbytes(dtype)
    return groups


def _add_keys(writer: GGUFWriter, spec: TinySpec) -> None:
    writer.add_string("general.name", f"tiny {spec.arch}")
    for key in spec.keys:
        value = list(key.value) if isinstance(key.value, tuple) else key.value
        writer.add_key_value(f"{spec.arch}.{key.name}", value, key.kind)
    tokens = vocabulary(spec.n_vocab)
    writer.add_string("tokenizer.ggml.model", "llama")
    writer.add_array("tokenizer.ggml.tokens", [token.text for token in tokens])
    writer.add_array("tokenizer.ggml.scores", [token.score for token in tokens])
    writer.add_array("tokenizer.ggml.token_type", [int(token.kind) for token in tokens])
    writer.add_key_value("tokenizer.ggml.bos_token_id", BOS, GGUFValueType.UINT32)
    writer.add_key_value("tokenizer.ggml.eos_token_id", EOS, GGUFValueType.UINT32)
    writer.add_key_value("tokenizer.ggml.unknown_token_id", UNK, GGUFValueType.UINT32)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_bool("tokenizer.ggml.add_eos_token", False)
    writer.add_bool("tokenizer.ggml.add_space_prefix", False)


def _write_part(
    writer: GGUFWriter, spec: TinySpec, tensors: Sequence[TensorSpec], request: TinyModel, task: Task
) -> None:
    for tensor in tensors:
        kind = np.dtype(np.int32 if tensor.fill is Fill.EXPERT_IDS else np.float32)
        raw = GGMLQuantizationType.Q8_0 if tensor.stored_as_q8(request.dtype) else None
        writer.add_tensor_info(tensor.name, tensor.shape, kind, tensor.nbytes(request.dtype), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(_data(spec, tensor, request))
        task.advance(tensor.nbytes(request.dtype))


def _data(spec: TinySpec, tensor: TensorSpec, request: TinyModel) -> NDArray[np.generic]:
    if tensor.fill is Fill.EXPERT_IDS:
        rows, picks = tensor.shape
        return randomness.distinct(request.seed, tensor.name, rows, picks, tensor.choices)
    values = randomness.uniform(request.seed, tensor.name, tensor.shape, std=tensor.std, mean=tensor.mean)
    if tensor.by_token:
        scales = [_row_scale(token.kind) for token in vocabulary(spec.n_vocab)]
        values *= np.array(scales, dtype=np.float32)[:, None]
    if tensor.stored_as_q8(request.dtype):
        quantised: NDArray[np.generic] = quantize(values, GGMLQuantizationType.Q8_0)
        return quantised
    return values


def _row_scale(kind: TokenType) -> float:
    if kind is TokenType.BYTE:
        return _BYTE_ROW_SCALE
    return 1.0 if kind is TokenType.NORMAL else 0.0
