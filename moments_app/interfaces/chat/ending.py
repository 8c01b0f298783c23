"""Recognize the end of a stream of events, so that it can be held back."""

import re
from collections.abc import Sequence


class Ending:
    """Receives the bytes of a stream, and returns those that can be passed on now.

    All bytes can, except the event that ends the stream and everything after it. Of an incomplete line, only as much is
    held back as could be the start of that event.

    Args:
        spellings: possible starts of that event.
    """

    def __init__(self, spellings: Sequence[bytes]) -> None:
        self.held = b""
        self.is_there = False
        self._is_in_line = False
        self._spellings = spellings
        self._end = re.compile(rb"^(?:%b)" % b"|".join(map(re.escape, spellings)), re.MULTILINE)

    def take(self, chunk: bytes) -> bytes:
        """Return what can be passed on after these bytes arrived."""
        data, self.held = self.held + chunk, b""
        if self.is_there:
            self.held = data
            return b""
        start = data.find(b"\n") + 1 or len(data) if self._is_in_line else 0
        found = self._end.search(data, start)
        if found:
            self.is_there = True
            return self._split(data, found.start())
        line = max(start, data.rfind(b"\n") + 1)
        is_beginning = any(end.startswith(data[line:]) for end in self._spellings)
        passed = self._split(data, line if is_beginning else len(data))
        if passed:
            self._is_in_line = not passed.endswith(b"\n")
        return passed

    def _split(self, data: bytes, place: int) -> bytes:
        self.held = data[place:]
        return data[:place]
