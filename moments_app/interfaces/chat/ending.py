"""The end of a stream of events, told from what comes before it, so that it can be held back."""

import re
from collections.abc import Sequence


class Ending:
    """Takes the bytes of a stream as they come and gives back those that may be passed on at once.

    Everything may, but the event that ends the stream and what comes behind it. Of a line that has not come whole,
    only so much is held as that event could begin with.

    Args:
        spellings: how that event begins.
    """

    def __init__(self, spellings: Sequence[bytes]) -> None:
        self.held = b""
        self.is_there = False
        self._is_in_line = False
        self._spellings = spellings
        self._end = re.compile(rb"^(?:%b)" % b"|".join(map(re.escape, spellings)), re.MULTILINE)

    def take(self, chunk: bytes) -> bytes:
        """Return what may be passed on now that these bytes have come."""
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
