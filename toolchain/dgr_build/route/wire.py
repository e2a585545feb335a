"""The Python code of the wire contract, generated from native/proto on first use.

`pb2` holds the messages and `pb2_grpc` the stubs; both are loaded when they are first asked for.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from dgr_build.errors import BuildError
from dgr_build.workspace import Workspace, publish, staging

_PROTO = Path("dgr/shard/v1/shard.proto")
_STEM = "dgr.shard.v1.shard"


def __getattr__(name: str) -> Any:
    if name not in {"pb2", "pb2_grpc"}:
        raise AttributeError(name)
    return _load()[("pb2", "pb2_grpc").index(name)]


@cache
def _load() -> tuple[Any, Any]:
    folder = str(generated(Workspace.open()))
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(f"{_STEM}_pb2"), importlib.import_module(f"{_STEM}_pb2_grpc")
    finally:
        sys.path.remove(folder)


def generated(ws: Workspace) -> Path:
    """Return the folder with the generated code of the contract as it is now; made where it is missing.

    Raises:
        BuildError: the contract is not valid.
    """
    source = ws.native / "proto"
    made_by = f"grpcio-tools {version('grpcio-tools')}\n".encode()  # code of another version may not load
    digest = hashlib.sha256(made_by + (source / _PROTO).read_bytes()).hexdigest()
    final = ws.root / "proto" / digest
    if final.is_dir():
        return final
    with ws.lock("proto"):
        if not final.is_dir():
            with staging(final.parent, "proto") as folder:
                _generate(source, folder)
                publish(folder, final)
    return final


def _generate(source: Path, folder: Path) -> None:
    protoc = importlib.import_module("grpc_tools.protoc")
    arguments = [f"-I{source}", f"-I{files('grpc_tools') / '_proto'}"]
    arguments += [f"--python_out={folder}", f"--grpc_python_out={folder}", str(source / _PROTO)]
    if protoc.main(["protoc", *arguments]) != 0:
        raise BuildError(
            f"{_PROTO} does not compile",
            cause="protoc's own words are above",
            remedy=f"mend {source / _PROTO}",
        )
