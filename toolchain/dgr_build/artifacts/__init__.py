"""Artifacts: GGUF files, their manifests, where they may lie, and the tiny models the tests run on."""
