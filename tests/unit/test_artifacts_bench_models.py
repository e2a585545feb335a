"""Models to measure with: the same bytes everywhere, as heavy as they are said to be."""

from __future__ import annotations

from dgr_build.artifacts.bench_models import HEAVY, SEAM, bench_model_path, provide_bench_model
from dgr_build.artifacts.tiny_llama import spec

# Changing these bytes makes every recorded digest stale: raise the generation beside the models with them.
_SEAM = "89cdba7d3b1e5f6e740d7aa2cf899de0218a7ee8a4bbd27b19bc6c9d883ebc66"


def test_a_model_to_measure_with_has_its_pinned_bytes_and_is_made_once(isolated):
    artifact = provide_bench_model(SEAM)
    assert artifact.path == bench_model_path(SEAM)
    assert artifact.path.is_relative_to(isolated / "models")
    assert artifact.manifest.parts[0].sha256 == _SEAM
    made = artifact.path.stat().st_mtime_ns
    assert provide_bench_model(SEAM) == artifact
    assert artifact.path.stat().st_mtime_ns == made


def test_the_heavy_model_weighs_about_a_gigabyte_and_its_layers_divide_evenly():
    size = sum(tensor.nbytes("q8_0") for tensor in spec(HEAVY.dims()).tensors)
    assert 0.9e9 < size < 1.2e9
    assert all(HEAVY.n_layer % stages == 0 for stages in (2, 3, 4))
