"""A cursor over the lines of a patch file, which knows where it is when something is wrong."""

from __future__ import annotations

from typing import NoReturn

from dgr_build.errors import PatchError
from dgr_build.patches.model import EXPORT


class Lines:
    """The lines of one file with their line ends, and a place among them.

    A file that does not end with a line feed is refused at once, so that every line has its end.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._lines = data.split(b"\n")
        self.name = name
        self.at = 0
        last = self._lines.pop()
        if b"\0" in data:
            self.at = data[: data.index(b"\0")].count(b"\n")
            self.fail("a zero byte: the patch, or a file that it changes, is not text")
        self._lines = [line + b"\n" for line in self._lines]
        if last or not data:
            self.at = len(self._lines)
            self.fail("the file is cut off: its last line has no line end", remedy=EXPORT)

    def peek(self) -> bytes:
        """Return the next line without taking it; empty at the end."""
        return self._lines[self.at] if self.at < len(self._lines) else b""

    def take(self) -> bytes:
        """Return the next line and step over it; empty at the end."""
        line = self.peek()
        self.at += 1
        return line

    def taken(self) -> bytes:
        """Return all bytes before the cursor."""
        return b"".join(self._lines[: self.at])

    def since(self, at: int) -> bytes:
        """Return the bytes from line `at` (0 is the first) to the cursor."""
        return b"".join(self._lines[at : self.at])

    def fail(self, message: str, *, cause: str = "", remedy: str = "", back: int = 0) -> NoReturn:
        """Refuse the file at the cursor, or `back` lines before it.

        Raises:
            PatchError: always.
        """
        place = min(self.at - back, len(self._lines)) + 1
        raise PatchError(
            f"{self.name}:{place}: {message}",
            cause=cause,
            remedy=remedy or EXPORT,
        )
