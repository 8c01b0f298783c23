"""What has to be stored, because it was acknowledged, against what is."""

import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_CHAT = "chat"  # a mark of a chat round begins with it
_MARK = re.compile(rf"\b(?:{_CHAT})?mark[0-9a-f]{{16}}\b")

Turn = tuple[str, str]  # who said it, and its mark


def new_mark(*, is_chat: bool = False) -> str:
    """Return a word that no other round has."""
    return f"{_CHAT if is_chat else ''}mark{secrets.token_hex(8)}"


def marks_in(text: str) -> list[str]:
    """Return the marks in a text."""
    return _MARK.findall(text)


@dataclass(frozen=True)
class Count:
    """How the ledger compares with the transcript, in turns; and in rounds for what went through the chat endpoint."""

    acknowledged: int
    lost: int
    doubled: int
    rounds: int
    rounds_lost: int


class Ledger:
    """The turns that clients were told are stored. Threads share it."""

    def __init__(self) -> None:
        self._acknowledged: set[Turn] = set()
        self._sent: set[Turn] = set()
        self._lock = threading.Lock()

    def send(self, *turns: Turn) -> None:
        """Note turns that are about to be sent: whatever becomes of them, none may be stored twice."""
        with self._lock:
            self._sent.update(turns)

    def acknowledge(self, *turns: Turn) -> None:
        """Note turns that the site said it has."""
        with self._lock:
            self._acknowledged.update(turns)

    def acknowledged(self) -> set[Turn]:
        """Return the turns that the site said it has, so far."""
        with self._lock:
            return set(self._acknowledged)

    def count(self, stored: Iterable[Turn]) -> Count:
        """Compare with the turns of the transcript.

        Args:
            stored: each turn as often as it is there; those of others are passed over.
        """
        return compare(self.acknowledged(), self._sent, stored)


def compare(acknowledged: set[Turn], sent: set[Turn], stored: Iterable[Turn]) -> Count:
    """Count what of the acknowledged is not stored, and what of the sent is stored more than once."""
    found = Counter(stored)
    lost = acknowledged - found.keys()
    doubled = sum(found[turn] - 1 for turn in sent if found[turn] > 1)
    return Count(len(acknowledged), len(lost), doubled, len(_rounds(acknowledged)), len(_rounds(lost)))


def _rounds(turns: set[Turn]) -> set[str]:
    return {mark for _, mark in turns if mark.startswith(_CHAT)}
