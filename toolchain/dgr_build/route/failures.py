"""What a worker's refusal means: the stage, the field, and the cause, read from the typed details."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from dgr_build.errors import RouteError
from dgr_build.route import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRAILER = "grpc-status-details-bin"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A status with its details as data.

    Args:
        code: gRPC's name of the status.
        text: its message.
        field: the offending field, where a rule was broken.
        is_miss: the cache is not where the frame expected it; a new epoch helps.
        layers: the range of the stage that failed, where one did.
    """

    code: str
    text: str
    field: str = ""
    is_miss: bool = False
    layers: tuple[int, int] | None = None


def read(error: Any) -> Refusal:
    """Return what a gRPC error says."""
    refusal = Refusal(code=error.code().name, text=error.details() or "")
    for key, value in error.trailing_metadata() or ():
        if key == _TRAILER:
            with suppress(DecodeError):  # not ours: code and text still say what there is to say
                for detail in wire.pb2.RpcStatus.FromString(value).details:
                    refusal = _with_detail(refusal, detail)
    return refusal


def _with_detail(refusal: Refusal, detail: Any) -> Refusal:
    rejected, miss, failure = wire.pb2.Rejected(), wire.pb2.CacheMiss(), wire.pb2.Failure()
    field, is_miss, layers = refusal.field, refusal.is_miss, refusal.layers
    if detail.Unpack(rejected):
        field = rejected.field
    elif detail.Unpack(miss):
        is_miss = True
    elif detail.Unpack(failure):
        layers = (failure.range.first, failure.range.last)
    return Refusal(code=refusal.code, text=refusal.text, field=field, is_miss=is_miss, layers=layers)


def route_error(
    refusal: Refusal, where: str, names: Mapping[tuple[int, int], str] = MappingProxyType({})
) -> RouteError:
    """Return the error that a person reads.

    Args:
        refusal: what the worker said.
        where: the stage that was spoken to, such as "stage 0 [0, 15) at 127.0.0.1:7001".
        names: the stages by their layers, to name the one that failed further down.
    """
    failed = where
    if refusal.layers is not None:
        first, last = refusal.layers
        failed = names.get(refusal.layers, f"the stage of layers [{first}, {last})")
    field = f" ({refusal.field})" if refusal.field else ""
    return RouteError(
        f"{failed} failed: {refusal.code}{field}",
        cause=refusal.text,
        remedy="read the logs of the workers, then run the recipe again",
    )
