"""What memory is searched for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

KINDS = ("fact", "moment", "turn")
MODES = ("hybrid", "semantic", "text")


@dataclass(frozen=True)
class Vector:
    """A query's vector, and the model that made it: primary key and width."""

    model: int
    dimensions: int
    numbers: list[float]


@dataclass(frozen=True)
class RecallRequest:
    """A search of one person's memory.

    Args:
        text: the query.
        kinds: of memory, some of `KINDS`.
        since: only what was said at this time or later.
        mode: search by words (`text`), by meaning (`semantic`), or by both (`hybrid`).
        vector: of the text; without one the search is by words alone.
    """

    text: str
    kinds: Sequence[str] = KINDS
    since: datetime | None = None
    mode: str = "hybrid"
    vector: Vector | None = None

    @property
    def degraded(self) -> bool:
        """Meaning was asked for and can't be had."""
        return self.mode != "text" and self.vector is None

    @property
    def used_mode(self) -> str:
        """The mode that memory is searched in."""
        return "text" if self.degraded else self.mode

    def by_mode(self) -> "list[RecallRequest]":
        """Return the request as one of its own for each search that it takes."""
        modes = ("text", "semantic") if self.used_mode == "hybrid" else (self.used_mode,)
        return [replace(self, mode=mode) for mode in modes]
