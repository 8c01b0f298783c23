"""Data that an import remembers about every row. They are on disk, so memory use doesn't depend on their number."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_PREPARED = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -2000;
CREATE TABLE noted (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class OnDisk:
    """A dictionary in a temporary file, which is deleted with it. Supports values that JSON has, UUIDs and tuples."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # without a name: a temporary file, already unlinked
        self._file.executescript(_PREPARED)

    def update(self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Store values by key. Existing values are replaced."""
        pairs = values.items() if isinstance(values, Mapping) else values
        noted = [(_text(key), _text(value)) for key, value in pairs]
        self._file.execute("BEGIN")
        self._file.executemany("INSERT OR REPLACE INTO noted VALUES (?, ?)", noted)
        self._file.execute("COMMIT")

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""
        found = self._file.execute("SELECT value FROM noted WHERE key = ?", [_text(key)]).fetchone()
        return json.loads(found[0]) if found else None

    def __contains__(self, key: Any) -> bool:
        return self._file.execute("SELECT 1 FROM noted WHERE key = ?", [_text(key)]).fetchone() is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield all keys and values, as JSON types."""
        for key, value in self._file.execute("SELECT key, value FROM noted"):
            yield json.loads(key), json.loads(value)

    def values(self) -> Iterator[Any]:
        """Yield all values."""
        for _, value in self.items():
            yield value


def _text(value: Any) -> str:
    return json.dumps(value, default=str)
