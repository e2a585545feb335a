"""Manifests: what they say, what they notice, and what broken files do."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dgr_build.artifacts import tiny_deepseek4, tiny_llama
from dgr_build.artifacts.gguf_index import read_index
from dgr_build.artifacts.manifest import ensure_manifest, load, manifest_of, verify
from dgr_build.artifacts.parts import part_paths
from dgr_build.artifacts.tiny import make_tiny
from dgr_build.artifacts.tiny_spec import TinySpec
from dgr_build.documents.recipe import TinyModel
from dgr_build.errors import ArtifactError

_V4 = tiny_deepseek4.spec(
    tiny_deepseek4.Dims(
        n_layer=3, n_layer_nextn=1, n_hash=1, n_embd=64, n_head=2, n_ff_exp=32, n_expert=4, n_expert_used=2
    )
)
_LLAMA = tiny_llama.spec(tiny_llama.Dims(n_layer=1, n_embd=32, n_head=1, n_head_kv=1, n_ff=32))


@pytest.fixture
def split(tmp_path):
    return make_tiny(TinyModel(arch="deepseek4", split=3), tmp_path / "m.gguf", spec=_V4)


@pytest.fixture(scope="module")
def small_bytes(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "m.gguf"
    return make_tiny(TinyModel(arch="llama"), out, spec=_LLAMA).path.read_bytes()


def _edit(artifact, change):
    data = json.loads(artifact.manifest_path.read_text())
    change(data)
    artifact.manifest_path.write_text(json.dumps(data))


def test_manifest_is_what_the_files_say_whichever_part_is_named(split):
    for part in split.parts:
        assert verify(part) == split
    assert manifest_of(split.parts[2]).manifest == split.manifest
    assert load(split.path).digest == split.digest


def test_digest_survives_renaming_but_not_a_changed_byte(tmp_path):
    first = make_tiny(TinyModel(arch="llama"), tmp_path / "a.gguf", spec=_LLAMA)
    copy = tmp_path / "b.gguf"
    content = bytearray(first.path.read_bytes())
    copy.write_bytes(content)
    assert manifest_of(copy).digest == first.digest
    content[-1] ^= 1
    copy.write_bytes(content)
    assert manifest_of(copy).digest != first.digest


def test_changed_byte_in_any_part_is_noticed(split):
    content = bytearray(split.parts[1].read_bytes())
    content[-1] ^= 1
    split.parts[1].write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        verify(split.path)
    assert split.parts[1].name in caught.value.cause
    assert load(split.path).digest == split.digest, "sizes alone cannot tell"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["parts"][1].update(sha256="0" * 64),
        lambda data: data["tensors"][5].update(offset=0),
        lambda data: data.update(n_layer=4),
        lambda data: data["tensors"].pop(),
        lambda data: data["parts"][0].update(size=1),
        lambda data: data.update(surprise=1),
        lambda data: data.pop("arch"),
        lambda data: data["parts"][0].update(file="../elsewhere.gguf"),
    ],
    ids=["hash", "offset", "layers", "tensors", "size", "unknown-field", "missing-field", "path"],
)
def test_tampered_manifest_is_refused(split, change):
    _edit(split, change)
    with pytest.raises(ArtifactError) as caught:
        verify(split.path)
    assert caught.value.exit_code == 9
    assert "dgr-build model manifest" in caught.value.remedy


def test_missing_part_is_named(split):
    split.parts[1].unlink()
    with pytest.raises(ArtifactError) as caught:
        load(split.path)
    assert split.parts[1].name in caught.value.message


def test_parts_of_two_models_are_refused(split, tmp_path):
    other = make_tiny(TinyModel(arch="deepseek4", split=3), tmp_path / "o" / "m.gguf", spec=_short(_V4))
    split.parts[2].write_bytes(other.parts[2].read_bytes())
    with pytest.raises(ArtifactError):
        manifest_of(split.path)


def test_swapped_parts_are_refused(split):
    second, third = split.parts[1].read_bytes(), split.parts[2].read_bytes()
    split.parts[1].write_bytes(third)
    split.parts[2].write_bytes(second)
    with pytest.raises(ArtifactError):
        manifest_of(split.path)


def test_manifest_is_made_once_then_checked_and_replaced_only_when_asked(split):
    split.manifest_path.unlink()
    assert ensure_manifest(split.path).digest == split.digest
    _edit(split, lambda data: data.update(n_embd=1))
    with pytest.raises(ArtifactError):
        ensure_manifest(split.path)
    assert ensure_manifest(split.path, replace=True) == split
    assert verify(split.path) == split


def test_predicting_block_that_is_stated_but_absent_is_refused(tmp_path):
    without = TinySpec(
        arch=_V4.arch,
        n_vocab=_V4.n_vocab,
        keys=_V4.keys,
        tensors=tuple(tensor for tensor in _V4.tensors if ".nextn." not in tensor.name),
    )
    with pytest.raises(ArtifactError) as caught:
        make_tiny(TinyModel(arch="deepseek4"), tmp_path / "m.gguf", spec=without)
    assert "main layers" in caught.value.cause


def test_boundary_width_counts_every_stream(split):
    assert split.manifest.boundary_width == 4 * 64


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"not a model at all" * 10, b"GGUF\x03\0\0\0" + b"\xff" * 64]
)
def test_what_is_no_gguf_is_refused(tmp_path, content):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ArtifactError):
        manifest_of(path)


@settings(deadline=5000, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_headers_are_read_or_refused_and_never_hang(small_bytes, tmp_path, data):
    content = bytearray(small_bytes)
    header = 12_000
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, header))
        content[at] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.sampled_from([len(content), len(content) - 1, header, 100]))]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    try:
        read_index(part_paths(path))
    except ArtifactError as error:
        assert error.remedy  # noqa: PT017 - both outcomes are right


def _short(spec):
    return TinySpec(arch=spec.arch, n_vocab=spec.n_vocab, keys=spec.keys, tensors=spec.tensors[:-1])
