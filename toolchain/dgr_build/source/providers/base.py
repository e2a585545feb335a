"""What a provider is given, and how one is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from dgr_build.documents.pin import Pin


@dataclass(frozen=True, kw_only=True)
class Request:
    """One attempt to obtain the pin.

    Attributes:
        pin: what is wanted.
        staging: a private empty folder, gone after the attempt.
        downloads: the folder for downloads, shared between clones.
        offline: nothing may leave this machine.
        remarks: filled by the provider with what a person should know.
    """

    pin: Pin
    staging: Path
    downloads: Path
    offline: bool = False
    remarks: list[str] = field(default_factory=list)
