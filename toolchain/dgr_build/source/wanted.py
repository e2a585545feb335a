"""What is looked for in an index of packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A file of a package.

    Args:
        package: its name.
        version: its exact version.
        kind: the source distribution, or a wheel for whatever machine.
        platform: what the file name of a wheel must contain, such as `x86_64`; "" for any.
    """

    package: str
    version: str
    kind: Literal["sdist", "wheel"]
    platform: str = ""

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"
