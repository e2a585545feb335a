"""Which paths a patch may name."""

from __future__ import annotations

import re

from dulwich.index import validate_path_element_default, validate_path_element_hfs, validate_path_element_ntfs

_PRINTABLE = re.compile(rb"[\x20-\x7e]+")
_DOT_FILES = re.compile(rb"\.git(?:modules)?|git(?:mod)?~[0-9]+", re.IGNORECASE)
_MAX_BYTES = 512


def why_unsafe(path: bytes) -> str:
    """Return why a path must not be written to, or an empty string when it may.

    Refused are paths that leave the tree, that reach into `.git` under any spelling that some file system
    takes for it, that would bring in a submodule, and those that git itself would write in quotes.
    """
    if not path or len(path) > _MAX_BYTES:
        return f"its length is {len(path)} bytes; 1 to {_MAX_BYTES} are allowed"
    if not _PRINTABLE.fullmatch(path) or b'"' in path:
        return "it holds quotes, control characters or bytes that are not ASCII"
    if b"\\" in path or b":" in path:
        return "it holds a backslash or a colon"
    return next(filter(None, map(_why_unsafe_part, path.split(b"/"))), "")


def _why_unsafe_part(part: bytes) -> str:
    if part in {b"", b".", b".."}:
        return "it is absolute, or a part of it is empty, '.' or '..'"
    if part != part.strip() or part.endswith(b"."):
        return "a part of it begins or ends with a space, or ends with a dot"
    safe = (validate_path_element_default, validate_path_element_ntfs, validate_path_element_hfs)
    if _DOT_FILES.fullmatch(part) or not all(check(part) for check in safe):
        return f"{part.decode()} belongs to git, or some file system takes it for what does"
    return ""
