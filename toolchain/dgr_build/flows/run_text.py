"""Generated ids as text, handed on as it comes."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dgr_build.route.client import RouteClient


class Text:
    """Generated ids as text; a character that several tokens make is handed on when it is whole.

    Args:
        client: of a route; its head knows the vocabulary.
        on_text: called with each piece.
    """

    def __init__(self, client: RouteClient, on_text: Callable[[str], None]) -> None:
        self._client = client
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._parts: list[str] = []

    def add(self, token: int) -> None:
        """Take the next token."""
        self._hand_on(self._decoder.decode(self._client.detokenize([token])))

    def end(self) -> str:
        """Hand on what is left, and return the whole text."""
        self._hand_on(self._decoder.decode(b"", final=True))
        return "".join(self._parts)

    def _hand_on(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._on_text(text)
