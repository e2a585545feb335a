"""`dgr-build model`: tiny models, manifests, and checks of model files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dgr_build import console
from dgr_build.artifacts import manifest as manifests
from dgr_build.artifacts.manifest import Artifact
from dgr_build.artifacts.tiny import make_tiny
from dgr_build.documents.base import parse
from dgr_build.documents.recipe import TinyModel

_model = typer.Typer(
    name="model",
    help="Make tiny models, and describe and check model files. Files under /home are refused.",
    no_args_is_help=True,
)

_File = Annotated[Path, typer.Argument(help="A GGUF file, or any part of a split one.", metavar="FILE")]
_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group to the root of the command line."""
    app.add_typer(_model)


@_model.command()
def tiny(
    arch: Annotated[str, typer.Option(help="The model family: deepseek4, llama, qwen3 or gemma3.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to make; by default one under the models root (DGR_MODELS).")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="small: milliseconds a token; wide: width 4096, few layers, about 500 MB.")
    ] = "small",
    dtype: Annotated[str, typer.Option(help="How matrices are stored: f32 or q8_0.")] = "f32",
    seed: Annotated[int, typer.Option(help="Selects the weights; equal seeds give equal bytes.")] = 1,
    split: Annotated[int, typer.Option(help="Number of GGUF parts.")] = 1,
    tied: Annotated[
        bool, typer.Option("--tied", help="llama and qwen3: the embedding is the output too.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Make a tiny model with random weights, and its manifest.

    The deepseek4 one has the real model's plan: 43 main layers of all three attention kinds, 3 of them routed
    by token id, 4 residual streams and an MTP block. The bytes depend on the options only.

    Example: dgr-build model tiny --arch deepseek4 --out /var/tmp/v4.gguf --split 3
    """
    asked = {"arch": arch, "profile": profile, "dtype": dtype, "seed": seed, "split": split, "tied": tied}
    _show(make_tiny(parse(asked, TinyModel, "the command line"), out), as_json=as_json)


@_model.command()
def manifest(
    file: _File,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite a manifest that differs.")] = False,
    as_json: _Json = False,
) -> None:
    """Make the manifest of a model file, beside it; one that is there already is checked instead.

    Example: dgr-build model manifest /models/v4-00001-of-00003.gguf
    """
    _show(manifests.ensure_manifest(file, replace=replace), as_json=as_json)


@_model.command()
def verify(file: _File, as_json: _Json = False) -> None:
    """Hash a model file again and compare it with its manifest.

    Example: dgr-build model verify /models/v4.gguf
    """
    _show(manifests.verify(file), as_json=as_json)


@_model.command()
def show(file: _File, as_json: _Json = False) -> None:
    """Show what a model file is, by its manifest; only sizes are checked.

    Example: dgr-build model show /models/v4.gguf --json
    """
    _show(manifests.load(file), as_json=as_json)


def _show(artifact: Artifact, *, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "path": str(artifact.path),
        "manifest": str(artifact.manifest_path),
        "digest": artifact.digest,
        **artifact.manifest.model_dump(mode="json", exclude={"manifest", "tensors"}),
        "n_tensors": len(artifact.manifest.tensors),
        "bytes": artifact.manifest.n_bytes,
    }
    if as_json:
        console.result_json(facts)
        return
    facts["parts"] = ", ".join(part.file for part in artifact.manifest.parts)
    facts["compress_ratios"] = " ".join(str(ratio) for ratio in artifact.manifest.compress_ratios) or "none"
    console.facts(facts)
