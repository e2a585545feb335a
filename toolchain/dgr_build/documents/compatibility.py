"""What works with what: host compilers and architectures by toolkit, devices by backend, room by lane."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, StringConstraints, model_validator

from dgr_build.documents.base import Document, load_toml
from dgr_build.documents.matrix import Filled, Requirement, Version

CudaArchitecture = Annotated[str, StringConstraints(pattern=r"^\d{2,3}[af]?$")]
GfxTarget = Annotated[str, StringConstraints(pattern=r"^gfx[0-9a-f]{3,4}$")]


class CudaToolkit(Document):
    """One version of the CUDA toolkit.

    Attributes:
        version: major and minor.
        gcc: the highest major version of g++ that nvcc accepts.
        clang: the highest major version of clang++ that nvcc accepts.
        architectures: what code can be made for, real or virtual, as CMake numbers them.
    """

    version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]
    gcc: PositiveInt
    clang: PositiveInt
    architectures: Annotated[tuple[CudaArchitecture, ...], Field(min_length=1)]


class Hip(Document):
    """HIP.

    Attributes:
        minimum: the lowest version that llama.cpp takes.
        target_since: the first version that serves a target, by target.
    """

    minimum: Version
    target_since: dict[GfxTarget, Version]


class Device(Document):
    """What a backend computes on.

    Attributes:
        name: what a person calls it.
        files: device files, one of which shows that it is there.
        software: the package of an environment whose driver does in place of hardware, "" for none.
        software_names: what devices that are no hardware have in their descriptions.
        remedy: how to get it.
    """

    name: Filled
    files: Annotated[tuple[Filled, ...], Field(min_length=1)]
    software: str = ""
    software_names: tuple[Filled, ...] = ()
    remedy: Filled


class Resources(Document):
    """Room that a lane takes beside its environment: megabytes of disk, and of memory for one compiler."""

    disk_mb: PositiveInt
    memory_mb: PositiveInt


class Compatibility(Document):
    """Everything known about what works with what.

    Attributes:
        schema_version: of this document.
        cuda: toolkits, oldest first.
        hip: HIP.
        environment: what the machine needs to make an environment, by its kind.
        device: by backend; a backend that is not there needs no device.
        resources: by backend.
    """

    schema_version: Literal[1] = Field(alias="schema")
    cuda: Annotated[tuple[CudaToolkit, ...], Field(min_length=1)]
    hip: Hip
    environment: dict[Literal["host", "sysroot", "wheels"], tuple[Requirement, ...]]
    device: dict[str, Device]
    resources: dict[str, Resources]

    @model_validator(mode="after")
    def _toolkits_ascend(self) -> Self:
        versions = [tuple(int(part) for part in toolkit.version.split(".")) for toolkit in self.cuda]
        if versions != sorted(set(versions)):
            raise ValueError("cuda: versions must ascend, each once")
        return self


def load_compatibility(path: Path) -> Compatibility:
    """Read the table.

    Raises:
        UsageError: it cannot be read, or a field is wrong; each wrong field is named.
    """
    return load_toml(path, Compatibility)
