"""Which paths a patch may name."""

from __future__ import annotations

import re

from dgr_build.source import names

_PLAIN = re.compile(rb"[\x20-\x7e]+")
_MAX_BYTES = 512


def why_unsafe(path: bytes) -> str:
    """Return why a path must not be written to, or an empty string when it may.

    Each part must be a name that a source tree may hold. Refused as well are names that git itself would
    write in quotes, and `.gitmodules`, which would bring in a submodule.
    """
    if not 0 < len(path) <= _MAX_BYTES:
        return f"its length is {len(path)} bytes; 1 to {_MAX_BYTES} are allowed"
    if not _PLAIN.fullmatch(path) or b'"' in path:
        return "it holds quotes, control characters or bytes that are not ASCII"
    for part in path.split(b"/"):
        if not part:
            return "it is absolute, or a part of it is empty"
        if part.lower() == b".gitmodules":
            return "it would bring in a submodule"
        if reason := names.why_unsafe(part, names.FILE):
            return f"of {part.decode()!r}: {reason}"
    return ""
