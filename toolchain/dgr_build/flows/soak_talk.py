"""The clients of a soak: sessions that generate on and on, and hold every token against the known one."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dgr_build.errors import DgrError, RouteError
from dgr_build.route.client import RouteClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgr_build.route.agreement import Expected
    from dgr_build.route.session import Epoch
    from dgr_build.route.tls import ClientTls


@dataclass(frozen=True, kw_only=True)
class Known:
    """A prompt, and the tokens that the whole model on the unmodified library chooses after it."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Talk:
    """What all clients have in common.

    Args:
        addresses: of the stages.
        expected: what they have to be.
        tls: certificates, None for plaintext.
        known: what may be asked, with the answers.
        frame_s: how long a frame may take.
        patience_s: how long a stage may be gone.
    """

    addresses: Sequence[str]
    expected: Expected
    tls: ClientTls | None
    known: Sequence[Known]
    frame_s: float
    patience_s: float


@dataclass(kw_only=True)
class Tally:
    """What clients saw; shared between them under its lock.

    Args:
        tokens: yielded, all of them right.
        wrong: the first few tokens that were not; nothing may be here.
        generations: that came to their end.
        prefills: epochs that were opened.
        errors: generations that ended in an error, by its kind; each within its time.
        longest_s: the longest wait for a token or an error.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    tokens: int = 0
    wrong: list[str] = field(default_factory=list)
    generations: int = 0
    prefills: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0


class _Counting(RouteClient):
    def __init__(self, talk: Talk, tally: Tally) -> None:
        self._tally = tally
        super().__init__(talk.addresses, expected=talk.expected, tls=talk.tls, patience_s=talk.patience_s)

    def open(self, session: str, epoch: int, key: bytes, sampling: Any = None) -> Epoch:
        with self._tally.lock:
            self._tally.prefills += 1
        return super().open(session, epoch, key, sampling)


class Talker(threading.Thread):
    """One client, a thread that generates until it is told to stop; `broken` is what may not happen."""

    def __init__(self, talk: Talk, tally: Tally, seed: int) -> None:
        super().__init__(name=f"soak-{seed}", daemon=True)
        self.broken: BaseException | None = None
        self._talk, self._tally = talk, tally
        self._choice = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let it end after the token that it waits for."""
        self._stopped.set()

    def run(self) -> None:
        """Talk until told to stop."""
        try:
            while not self._stopped.is_set():
                self._connected()
        except BaseException as error:  # noqa: BLE001 - told to the one who waits for the thread
            self.broken = error

    def _connected(self) -> None:
        talk = self._talk
        try:
            with _Counting(talk, self._tally) as client:
                while not self._stopped.is_set():
                    self._generate(client)
        except RouteError as error:  # a stage was gone when it connected
            self._count(error)
            time.sleep(0.1)

    def _generate(self, client: RouteClient) -> None:
        known = self._choice.choice(self._talk.known)
        wanted = known.tokens[: self._choice.randint(1, len(known.tokens))]
        steps = client.generate(known.prompt, len(wanted), frame_s=self._talk.frame_s)
        number, began = 0, time.monotonic()
        try:
            for number, step in enumerate(steps):
                self._took(time.monotonic() - began)
                self._check(step.token, wanted[number], f"token {number} after {len(known.prompt)} ids")
                if self._stopped.is_set():
                    return
                began = time.monotonic()
        except DgrError as error:
            self._took(time.monotonic() - began)
            self._count(error)
        else:
            with self._tally.lock:
                self._tally.generations += 1
        finally:
            steps.close()

    def _check(self, token: int, wanted: int, where: str) -> None:
        with self._tally.lock:
            if token == wanted:
                self._tally.tokens += 1
            else:
                self._tally.wrong.append(f"{where} is {token}, not {wanted}")

    def _took(self, seconds: float) -> None:
        with self._tally.lock:
            self._tally.longest_s = max(self._tally.longest_s, seconds)

    def _count(self, error: DgrError) -> None:
        with self._tally.lock:
            self._tally.errors[error.message.partition(": ")[2] or error.message] += 1
