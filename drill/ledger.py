"""A comparison of the acknowledged turns with the stored ones."""

import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_CHAT = "chat"  # the prefix of a chat round's mark
_MARK = re.compile(rf"\b(?:{_CHAT})?mark[0-9a-f]{{16}}\b")

Turn = tuple[str, str]  # the role, and the mark in the text


def new_mark(*, is_chat: bool = False) -> str:
    """Return a word that no other round contains."""
    return f"{_CHAT if is_chat else ''}mark{secrets.token_hex(8)}"


def marks_in(text: str) -> list[str]:
    """Return the marks in a text."""
    return _MARK.findall(text)


@dataclass(frozen=True)
class Count:
    """The result of the comparison in turns and, for the chat endpoint, in rounds."""

    acknowledged: int
    lost: int
    doubled: int
    rounds: int
    rounds_lost: int


class Ledger:
    """The turns that clients sent, and those that were acknowledged. Thread-safe."""

    def __init__(self) -> None:
        self._acknowledged: set[Turn] = set()
        self._sent: set[Turn] = set()
        self._lock = threading.Lock()

    def send(self, *turns: Turn) -> None:
        """Record turns before they are sent. None may be stored twice, whatever the response."""
        with self._lock:
            self._sent.update(turns)

    def acknowledge(self, *turns: Turn) -> None:
        """Record acknowledged turns."""
        with self._lock:
            self._acknowledged.update(turns)

    def acknowledged(self) -> set[Turn]:
        """Return the turns that were acknowledged so far."""
        with self._lock:
            return set(self._acknowledged)

    def count(self, stored: Iterable[Turn]) -> Count:
        """Compare with the turns of the transcript.

        Args:
            stored: The stored turns, with duplicates. Those of other ledgers are ignored.
        """
        return compare(self.acknowledged(), self._sent, stored)


def compare(acknowledged: set[Turn], sent: set[Turn], stored: Iterable[Turn]) -> Count:
    """Count acknowledged turns that are not stored, and sent turns that are stored more than once."""
    found = Counter(stored)
    lost = acknowledged - found.keys()
    doubled = sum(found[turn] - 1 for turn in sent if found[turn] > 1)
    return Count(len(acknowledged), len(lost), doubled, len(_rounds(acknowledged)), len(_rounds(lost)))


def _rounds(turns: set[Turn]) -> set[str]:
    return {mark for _, mark in turns if mark.startswith(_CHAT)}
