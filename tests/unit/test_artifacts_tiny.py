"""Tiny models: byte determinism, the layer plan, storage types, splitting, and interrupted work."""

from __future__ import annotations

import hashlib
import os
from typing import get_args

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from dgr_build.artifacts import manifest as manifests
from dgr_build.artifacts import tiny, tiny_deepseek4, tiny_write
from dgr_build.artifacts.manifest import manifest_of
from dgr_build.artifacts.tiny import make_tiny, provide, tiny_spec
from dgr_build.documents.recipe import Family, Model, ModelFile, TinyModel
from dgr_build.errors import ArtifactError, HostError, UsageError

_DIMS = tiny_deepseek4.Dims(
    n_layer=6, n_layer_nextn=1, n_hash=2, n_embd=64, n_head=2, n_ff_exp=32, n_expert=4, n_expert_used=2
)
_V4 = TinyModel(arch="deepseek4")
_LLAMA = TinyModel(arch="llama")

# Changing these bytes makes every recorded artifact digest stale: raise the generation in tiny.py with them.
_PINNED = {
    TinyModel(arch="deepseek4"): "c0c10f5e80af0439d8fb688bb83ea6e6b8225b24f90f5b91d20cea6f0b08f9b0",
    TinyModel(
        arch="deepseek4", dtype="q8_0"
    ): "b9080ac174725f1558c9635b10410caf078efa5002adfd55116afe6c42422227",
    TinyModel(arch="llama"): "5ce9970fb7270c76b41937aeb06c85fd8f0c13b2aa586df65cbfcc6e77ee4c34",
    TinyModel(arch="llama", tied=True): "559273f7383a4217bd1610519b173f761f5e6f2237da9ded603999f0aaeaa3ae",
    TinyModel(arch="qwen3"): "fb948e0d1bcd4bf5b07b714c7d825e51093f9d9020aceb3ce258b646904d7a3a",
    TinyModel(arch="qwen3", tied=True): "320ecfb4412a6a3db2b6a01a8f66f7c87202f55200cc34df647ba8dd9af609d3",
    TinyModel(arch="gemma3"): "93a64276be9aaae67dfb706a9ee692a00423a4b40630f2163891961a333839a1",
}


@pytest.fixture
def short_spec():
    return tiny_deepseek4.spec(_DIMS)


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("request_", _PINNED, ids=lambda item: item.stem)
def test_small_profiles_have_their_pinned_bytes(tmp_path, request_):
    artifact = make_tiny(request_, tmp_path / "model.gguf")
    assert artifact.manifest.parts[0].sha256 == _PINNED[request_]
    assert _sha256(artifact.path) == _PINNED[request_]


def test_same_request_gives_same_bytes_under_another_name(tmp_path, short_spec):
    first = make_tiny(_V4, tmp_path / "a.gguf", spec=short_spec)
    second = make_tiny(_V4, tmp_path / "b" / "other.gguf", spec=short_spec)
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.digest == second.digest


def test_another_seed_gives_another_artifact(tmp_path, short_spec):
    first = make_tiny(_V4, tmp_path / "a.gguf", spec=short_spec)
    second = make_tiny(_V4.model_copy(update={"seed": 2}), tmp_path / "b.gguf", spec=short_spec)
    assert first.digest != second.digest


def test_small_v4_has_the_real_layer_plan(tmp_path):
    manifest = make_tiny(_V4, tmp_path / "v4.gguf").manifest
    assert (manifest.arch, manifest.n_layer, manifest.n_layer_nextn) == ("deepseek4", 43, 1)
    assert (manifest.hc_mult, manifest.n_hash_layer, manifest.n_vocab) == (4, 3, 384)
    assert set(manifest.compress_ratios[:43]) == {0, 4, 128}
    assert manifest.compress_ratios[43:] == (0,)
    names = {entry.name for entry in manifest.tensors}
    for block in range(44):
        assert (f"blk.{block}.ffn_gate_tid2eid.weight" in names) == (block < 3)
        assert (f"blk.{block}.exp_probs_b.bias" in names) == (block >= 3)
    assert {f"blk.43.nextn.{part}.weight" for part in ("eh_proj", "enorm", "hnorm")} <= names


def test_every_stage_of_an_even_split_meets_both_kinds_of_compression():
    ratios = tiny_deepseek4.SMALL.ratios()
    for start in range(2, 42):
        assert {4, 128} == set(ratios[start : start + 2])


def test_wide_v4_has_the_real_widths_and_is_large_enough():
    spec = tiny_spec(TinyModel(arch="deepseek4", profile="wide"))
    keys = {key.name: key.value for key in spec.keys}
    assert (keys["embedding_length"], keys["expert_count"], keys["expert_used_count"]) == (4096, 256, 6)
    assert keys["expert_shared_count"] == 1
    assert keys["hyper_connection.count"] == 4
    assert {0, 4, 128} == set(keys["attention.compress_ratios"])
    for dtype in ("f32", "q8_0"):
        assert sum(tensor.nbytes(dtype) for tensor in spec.tensors) >= 256 << 20


def test_hash_layers_route_each_token_to_different_experts_of_its_own(tmp_path, short_spec):
    artifact = make_tiny(_V4, tmp_path / "v4.gguf", spec=short_spec)
    tables = [t for t in GGUFReader(artifact.path).tensors if t.name.endswith("ffn_gate_tid2eid.weight")]
    assert len(tables) == 2
    for table in tables:
        rows = np.asarray(table.data)
        assert rows.shape == (384, 2)
        assert rows.dtype == np.int32
        assert (rows[:, 0] != rows[:, 1]).all()
        assert rows.min() == 0
        assert rows.max() == 3
        assert len(np.unique(rows, axis=0)) == 12, "every ordered pair of 4 experts occurs"
    assert not np.array_equal(tables[0].data, tables[1].data)


def test_q8_keeps_norms_and_routing_exact_and_matrices_close(tmp_path, short_spec):
    exact = make_tiny(_V4, tmp_path / "f32.gguf", spec=short_spec)
    packed = make_tiny(_V4.model_copy(update={"dtype": "q8_0"}), tmp_path / "q8.gguf", spec=short_spec)
    wanted = {tensor.name: tensor for tensor in GGUFReader(exact.path).tensors}
    kinds = set()
    for tensor in GGUFReader(packed.path).tensors:
        kinds.add(tensor.tensor_type.name)
        if tensor.tensor_type.name != "Q8_0":
            assert np.array_equal(tensor.data, wanted[tensor.name].data)
            continue
        values = dequantize(tensor.data, tensor.tensor_type)
        original = np.asarray(wanted[tensor.name].data)
        assert np.abs(values - original).max() <= np.abs(original).max() / 127
    assert kinds == {"Q8_0", "F32", "I32"}
    assert packed.manifest.n_bytes < exact.manifest.n_bytes / 2


@pytest.mark.parametrize("split", [2, 3, 7])
def test_split_parts_hold_the_whole_models_tensors(tmp_path, short_spec, split):
    whole = make_tiny(_V4, tmp_path / "whole.gguf", spec=short_spec)
    parts = make_tiny(_V4.model_copy(update={"split": split}), tmp_path / "cut.gguf", spec=short_spec)
    assert [path.name for path in parts.parts] == [
        f"cut-{number:05d}-of-{split:05d}.gguf" for number in range(1, split + 1)
    ]
    assert [t.name for t in parts.manifest.tensors] == [t.name for t in whole.manifest.tensors]
    assert {t.part for t in parts.manifest.tensors} == set(range(split))
    blobs = [path.read_bytes() for path in parts.parts]
    source = whole.path.read_bytes()
    for one, other in zip(whole.manifest.tensors, parts.manifest.tensors, strict=True):
        wanted = source[one.offset : one.offset + one.size]
        assert blobs[other.part][other.offset : other.offset + other.size] == wanted


def test_each_part_says_which_it_is(tmp_path, short_spec):
    parts = make_tiny(_V4.model_copy(update={"split": 3}), tmp_path / "cut.gguf", spec=short_spec)
    for number, path in enumerate(parts.parts):
        fields = GGUFReader(path).fields
        assert fields["split.no"].contents() == number
        assert fields["split.count"].contents() == 3
        assert fields["split.tensors.count"].contents() == len(parts.manifest.tensors)
        assert ("tokenizer.ggml.tokens" in fields) == (number == 0)


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_a_tied_model_has_no_output_of_its_own(arch):
    tied = {tensor.name for tensor in tiny_spec(TinyModel(arch=arch, tied=True)).tensors}
    own = {tensor.name for tensor in tiny_spec(TinyModel(arch=arch)).tensors}
    assert own - tied == {"output.weight"}


def test_gemma3_has_windows_that_tests_cross_and_a_tied_output():
    spec = tiny_spec(TinyModel(arch="gemma3"))
    keys = {key.name: key.value for key in spec.keys}
    assert keys["attention.sliding_window"] == 32
    assert "attention.sliding_window_pattern" not in keys, "as in real files: the family's pattern holds"
    assert keys["block_count"] == 12, "two rounds of five layers with a window and one without"
    assert "output.weight" not in {tensor.name for tensor in spec.tensors}


@pytest.mark.parametrize("arch", get_args(Family))
def test_wide_profiles_have_the_width_of_real_models(arch):
    keys = {key.name: key.value for key in tiny_spec(TinyModel(arch=arch, profile="wide")).keys}
    assert keys["embedding_length"] == 4096


@pytest.mark.parametrize("moment", ["writing", "publishing", "manifest"])
def test_interrupted_work_leaves_nothing(tmp_path, monkeypatch, short_spec, moment):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    if moment == "writing":
        calls = iter(range(40))
        honest = tiny_write._data
        monkeypatch.setattr(
            tiny_write, "_data", lambda *args: interrupt() if next(calls) == 30 else honest(*args)
        )
    elif moment == "publishing":
        honest_publish = tiny.publish
        monkeypatch.setattr(
            tiny,
            "publish",
            lambda staged, final: interrupt() if "00002" in final.name else honest_publish(staged, final),
        )
    else:
        monkeypatch.setattr(manifests, "save_json", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_tiny(_V4.model_copy(update={"split": 3}), tmp_path / "models" / "cut.gguf", spec=short_spec)
    assert list((tmp_path / "models").iterdir()) == []


def test_what_was_there_is_replaced_with_its_manifest(tmp_path, short_spec):
    out = tmp_path / "model.gguf"
    old = make_tiny(_V4, out, spec=short_spec)
    new = make_tiny(_V4.model_copy(update={"seed": 5}), out, spec=short_spec)
    assert manifests.verify(out).digest == new.digest != old.digest


def test_missing_space_is_said_before_anything_is_written(tmp_path, monkeypatch, short_spec):
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr("dgr_build.workspace.shutil.disk_usage", lambda _: usage)
    with pytest.raises(HostError):
        make_tiny(_V4, tmp_path / "models" / "model.gguf", spec=short_spec)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_name_that_llama_cpp_would_not_recognise_is_refused(tmp_path):
    with pytest.raises(UsageError) as caught:
        make_tiny(_V4, tmp_path / "model.bin")
    assert "model.gguf" in caught.value.remedy


def test_out_under_home_is_refused(tmp_path):
    with pytest.raises(ArtifactError):
        make_tiny(_LLAMA, tmp_path / ".." / ".." / ".." / ".." / ".." / ".." / "home" / "x" / "m.gguf")


def test_a_recipes_tiny_model_is_made_once_and_mended_when_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("DGR_MODELS", str(tmp_path / "models"))
    made = provide(Model(tiny=_LLAMA))
    assert made.path.is_relative_to(tmp_path / "models")
    stamp = made.path.stat().st_mtime_ns
    assert provide(Model(tiny=_LLAMA)).digest == made.digest
    assert made.path.stat().st_mtime_ns == stamp
    content = bytearray(made.path.read_bytes())
    content[-1] ^= 1
    made.path.write_bytes(content)
    assert provide(Model(tiny=_LLAMA)).digest == made.digest
    assert manifest_of(made.path).digest == made.digest


def test_a_recipes_file_must_be_the_artifact_that_it_names(tmp_path, short_spec):
    artifact = make_tiny(_V4, tmp_path / "v4.gguf", spec=short_spec)
    named = Model(file=ModelFile(path=artifact.path, digest=artifact.digest))
    assert provide(named).digest == artifact.digest
    foreign = Model(file=ModelFile(path=artifact.path, digest="0" * 64))
    with pytest.raises(ArtifactError):
        provide(foreign)


def test_a_model_that_nobody_touched_is_not_hashed_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DGR_MODELS", str(tmp_path / "models"))
    made = provide(Model(tiny=_LLAMA))
    provide(Model(tiny=_LLAMA))
    hashed = []
    monkeypatch.setattr(manifests, "_sha256", lambda *_: hashed.append(1))
    assert provide(Model(tiny=_LLAMA)) == made
    assert not hashed


@pytest.mark.parametrize("touched", ["model", "manifest", "note"])
def test_a_model_is_hashed_again_when_any_of_its_files_was_touched(tmp_path, monkeypatch, touched):
    monkeypatch.setenv("DGR_MODELS", str(tmp_path / "models"))
    made = provide(Model(tiny=_LLAMA))
    provide(Model(tiny=_LLAMA))
    note = made.manifest_path.with_name(made.manifest_path.name + ".seen")
    file = {"model": made.path, "manifest": made.manifest_path, "note": note}[touched]
    status = file.stat()
    if touched == "note":
        file.write_text("{}")
    else:
        file.write_bytes(file.read_bytes())  # the same bytes, and the old time: only the change time tells
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    honest, hashed = manifests._sha256, []
    monkeypatch.setattr(manifests, "_sha256", lambda *args: hashed.append(1) or honest(*args))
    assert provide(Model(tiny=_LLAMA)) == made
    assert hashed
