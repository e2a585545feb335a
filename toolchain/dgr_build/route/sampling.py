"""How tokens are chosen, on the wire: asked of the tail, and held against what it says it will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgr_build.errors import RouteError
from dgr_build.route import wire

if TYPE_CHECKING:
    from dgr_build.documents.sampling import Sampling


def to_wire(sampling: Sampling) -> Any:
    """Return the message; None where the tail is to do what it does unasked."""
    return None if sampling.is_plain else wire.pb2.Sampling(**sampling.model_dump())


def require_taken(name: str, request: Any, response: Any) -> None:
    """Check that a stage will choose as it was asked; one of an older version would choose greedily.

    Raises:
        RouteError: it will not.
    """
    if request.HasField("sampling") and request.sampling != response.sampling:
        will = str(response.sampling).replace("\n", " ").strip() or "choose greedily"
        raise RouteError(
            f"{name} does not sample as it was asked to",
            cause=f"it will {will}",
            remedy="run a worker of this version there, or leave sampling out",
        )
