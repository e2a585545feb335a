"""Which names and modes a tree of upstream may hold: what is dangerous on any file system is refused."""

from __future__ import annotations

import re
import stat
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = 0o100644
EXECUTABLE = 0o100755
SUBMODULE = 0o160000
_MAX_NAME_BYTES = 255
_CONTROLS = {"Cc", "Zl", "Zp"}
# Characters that HFS+ ignores when it compares names.
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
# The short names NTFS may give to .git and .gitmodules.
_SHORT = re.compile(r"git~[0-9]+|gitmod~[0-9]+|gi7eba~[0-9]+")


def folded(name: str) -> str:
    """Return what file systems that ignore case, form or invisible characters compare instead of the name."""
    plain = unicodedata.normalize("NFKC", name.translate(_IGNORED))
    return unicodedata.normalize("NFKC", plain.casefold().translate(_IGNORED))


def why_unsafe(name: bytes, mode: int) -> str:
    """Return why an entry of a tree is refused, or an empty string when it is fine.

    Refused are: names that leave their folder, reach `.git` under any spelling some file system accepts, or
    mean something else elsewhere; submodules, symbolic links and odd modes.
    """
    return _why_unsafe_name(name) or _why_unsafe_mode(mode)


def _why_unsafe_name(name: bytes) -> str:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return "its name is not UTF-8"
    plain = folded(text)
    checks = (
        (not 0 < len(name) <= _MAX_NAME_BYTES, f"its name is empty or longer than {_MAX_NAME_BYTES} bytes"),
        (text in {".", ".."}, "its name leaves its folder"),
        (any(c in text for c in "/\\:"), "its name holds a slash, a backslash or a colon"),
        (any(unicodedata.category(c) in _CONTROLS for c in text), "its name holds control characters"),
        (plain.rstrip(" .") == ".git" or _SHORT.fullmatch(plain), "some file system takes its name for .git"),
        (
            plain.rstrip(" .") == ".gitmodules" and text != ".gitmodules",
            "some file system takes its name for .gitmodules",
        ),
        (text != text.translate(_IGNORED), "its name holds invisible characters"),
        (text != text.rstrip(" ."), "its name ends with a space or a dot, which some file systems drop"),
    )
    return next((why for unsafe, why in checks if unsafe), "")


def _why_unsafe_mode(mode: int) -> str:
    if stat.S_IFMT(mode) == SUBMODULE:
        return "it is a submodule (gitlink), whose content no tree id proves"
    if stat.S_ISLNK(mode):
        return "it is a symbolic link, which may point anywhere"
    if mode not in {FILE, EXECUTABLE, stat.S_IFDIR}:
        return f"its mode {mode:o} is none of 100644, 100755 and 40000"
    return ""


def collision(names: Iterable[bytes]) -> tuple[bytes, bytes] | None:
    """Return two names of one folder that some file system takes for the same, or None."""
    seen: dict[str, bytes] = {}
    for name in names:
        other = seen.setdefault(folded(name.decode(errors="replace")), name)
        if other != name:
            return other, name
    return None
