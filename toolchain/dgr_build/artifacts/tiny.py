"""Making tiny models: staged aside, checked for space, and published with their manifest last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build import console
from dgr_build.artifacts.effort import over_bytes
from dgr_build.artifacts.manifest import Artifact, manifest_of, manifest_path, verify, write_manifest
from dgr_build.artifacts.parts import part_names
from dgr_build.artifacts.seen import known_sound, remember_sound
from dgr_build.artifacts.storage import check_model_path, models_root
from dgr_build.errors import ArtifactError, UsageError
from dgr_build.workspace import lock_file, publish, require_space, staging, sweep

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.artifacts.tiny_spec import TinySpec
    from dgr_build.documents.recipe import Model, TinyModel

# Raised whenever the bytes for equal requests change, so that older files are not taken for new ones.
_GENERATION = 1
_HEADERS = 1 << 20  # room for metadata and tensor tables of one part


def tiny_spec(request: TinyModel) -> TinySpec:
    """Return the model that a request asks for, as data."""
    # Slow to load, and needed once.
    from dgr_build.artifacts import tiny_deepseek4, tiny_gemma3, tiny_llama, tiny_qwen3  # noqa: PLC0415

    wide = request.profile == "wide"
    if request.arch == tiny_llama.ARCH:
        return tiny_llama.spec(tiny_llama.WIDE if wide else tiny_llama.SMALL, tied=request.tied)
    if request.arch == tiny_qwen3.ARCH:
        return tiny_qwen3.spec(tiny_qwen3.WIDE if wide else tiny_qwen3.SMALL, tied=request.tied)
    if request.arch == tiny_gemma3.ARCH:
        return tiny_gemma3.spec(tiny_gemma3.WIDE if wide else tiny_gemma3.SMALL)
    return tiny_deepseek4.spec(tiny_deepseek4.WIDE if wide else tiny_deepseek4.SMALL)


def make_tiny(request: TinyModel, out: Path | None = None, *, spec: TinySpec | None = None) -> Artifact:
    """Make a tiny model and its manifest; what was at `out` before is replaced.

    Args:
        request: what to make.
        out: the file, ending in `.gguf`; a split model's parts are named after it. By default it lies
            under the models root.
        spec: another model in place of the request's own (tests use smaller ones).

    Returns:
        the artifact, whose `path` is the file or its first part.

    Raises:
        ArtifactError: `out` leads under /home.
        HostError: there is not enough space.
        UsageError: `out` does not end in `.gguf`.
    """
    from dgr_build.artifacts.tiny_write import write_model  # noqa: PLC0415 - slow to load, needed once

    target = default_path(request) if out is None else out
    if target.suffix != ".gguf":
        raise UsageError(
            f"a model file ends in .gguf: {target}", remedy=f"--out {target.with_suffix('.gguf')}"
        )
    folder = check_model_path(target).parent
    model = spec or tiny_spec(request)
    size = sum(tensor.nbytes(request.dtype) for tensor in model.tensors)
    require_space(folder, size + request.split * _HEADERS, "the model")
    sweep(folder)
    with staging(folder, "model") as aside:
        with over_bytes(f"making {target.name}", size) as task:
            write_model(aside, target.stem, model, request, task)
        names = part_names(target.stem, request.split)
        staged = manifest_of(aside / names[0])
        artifact = Artifact(path=folder / names[0], manifest=staged.manifest)
        _publish(aside, artifact)
    return artifact


def _publish(aside: Path, artifact: Artifact) -> None:
    # A manifest never lies beside parts that it does not describe: the old goes first, the new comes last.
    artifact.manifest_path.unlink(missing_ok=True)
    try:
        for part in artifact.parts:
            publish(aside / part.name, part)
        write_manifest(artifact)
    except BaseException:
        for part in artifact.parts:
            part.unlink(missing_ok=True)
        raise


def default_path(request: TinyModel) -> Path:
    """Return where a tiny model is kept when nobody says otherwise."""
    return models_root() / "tiny" / f"{request.stem}-g{_GENERATION}.gguf"


def provide(model: Model) -> Artifact:
    """Return the artifact of a recipe, verified; a tiny model is made where it is not there yet.

    Raises:
        ArtifactError: the file is missing, broken, under /home, or not the artifact that the recipe names.
        HostError: there is not enough space for a tiny model.
    """
    if model.tiny is not None:
        return provide_at(model.tiny, default_path(model.tiny))
    if model.file is None:  # the document admits exactly one of the two
        raise UsageError("the recipe names no model")
    artifact = verify(model.file.path)
    if artifact.digest != model.file.digest:
        raise ArtifactError(
            f"{artifact.path} is another artifact than the recipe names",
            cause=f"its digest is {artifact.digest}, the recipe says {model.file.digest}",
            remedy="fetch the model that the recipe names, or write this digest into a recipe of your own",
        )
    return artifact


def _verified(first: Path) -> Artifact:
    sound = verify(first)
    remember_sound(sound)
    return sound


def provide_at(request: TinyModel, target: Path, *, spec: TinySpec | None = None) -> Artifact:
    """Return a made model that lies at `target`, verified; it is made where it is not there yet.

    Args:
        request: what to make.
        target: the file.
        spec: another model in place of the request's own.

    Raises:
        ArtifactError: `target` leads under /home.
        HostError: there is not enough space.
    """
    first = target.with_name(part_names(target.stem, request.split)[0])
    with lock_file(target.with_suffix(".lock"), target.name):
        if manifest_path(first).is_file():
            try:
                return known_sound(first) or _verified(first)
            except ArtifactError as error:
                console.warn(f"{error.message} ({error.cause}); making it again")
        return make_tiny(request, target, spec=spec)
