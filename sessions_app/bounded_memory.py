"""Read uploaded files in bounded memory.

A zip file of 400 kB may unpack to 400 MB, contain a million files, or need a decompression window of gigabytes. JSON
may contain one value per two bytes, and each value takes sixty bytes in memory. So this module limits the directory of
a zip file, reads its files as streams, and counts the values of JSON before it parses them. An import stores its data
about rows on disk (`DiskDict`).
"""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import IO, Any, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from sessions_app.refusals import Refusal

MIB = 2**20
DIRECTORY_MAX = 4 * MIB  # maximum bytes of a zip file's directory

# With other methods, Python decompresses a whole block at once. A block of 4 kB may decompress to 100 MB.
_METHODS = (ZIP_STORED, ZIP_DEFLATED)
_ENCRYPTED = 0x1 | 0x40 | 0x2000  # flags of encrypted files
_PATCHES = 0x20
# Matches the characters that may start a value. Also matches whole strings, to skip the brackets and commas in them.
# The text may end within a string. Never backtracks.
_STRING_OR_VALUE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -2000;
CREATE TABLE entry (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class ZipRefused(Refusal):
    """A zip file, or a file in it, can't be read. The message says why."""


class _BoundedFile:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, DIRECTORY_MAX + 1) if size >= 0 else DIRECTORY_MAX + 1)
        if len(data) > DIRECTORY_MAX:  # zipfile reads the whole directory at once
            raise ZipRefused(f"The list of its files is longer than {DIRECTORY_MAX // MIB} MiB.")
        return data


def open_zip(file: IO[bytes]) -> ZipFile:
    """Open a file as a zip file. Raise BadZipFile if it isn't one, or ZipRefused if it contains too many files."""
    try:
        return ZipFile(cast("IO[bytes]", _BoundedFile(file)))
    except (NotImplementedError, ValueError) as error:  # an unknown version, or an invalid file name
        raise BadZipFile(str(error)) from error


def open_member(archive: ZipFile, member: ZipInfo) -> IO[bytes]:
    """Open a file in a zip file as a stream. Raise BadZipFile if it is damaged.

    Raise ZipRefused if it is encrypted, or if its compression method needs too much memory.
    """
    if member.flag_bits & _ENCRYPTED:
        raise ZipRefused("It is encrypted.")
    if member.compress_type not in _METHODS or member.flag_bits & _PATCHES:
        raise ZipRefused("Its compression method is not deflate.")
    return archive.open(member)


def max_value_count(text: str | bytes, start: int = 0) -> int:
    """Return an upper bound for the number of values in JSON: the number of opening brackets, braces and commas."""
    if isinstance(text, bytes):
        return sum(text.count(sign, start) for sign in (b"[", b"{", b","))
    return sum(text.count(sign, start) for sign in "[{,")


def end_of_values(text: str, max_count: int, start: int = 0) -> int | None:
    """Return the position where JSON exceeds `max_count` values, or None if it doesn't."""
    if max_value_count(text, start) <= max_count:
        return None
    places = (found.start() for found in _STRING_OR_VALUE.finditer(text, start) if found[0][0] != '"')
    return next(islice(places, max_count, None), None)


def has_more_values(line: bytes, max_count: int) -> bool:
    return max_value_count(line) > max_count and end_of_values(line.decode("latin-1"), max_count) is not None


class DiskDict:
    """A dictionary in a temporary file. Supports JSON types, UUIDs and tuples."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # an empty name means a temporary file
        self._file.executescript(_SCHEMA)

    def update(self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        pairs = values.items() if isinstance(values, Mapping) else values
        entries = [(_to_json(key), _to_json(value)) for key, value in pairs]
        self._file.execute("BEGIN")
        self._file.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?)", entries)
        self._file.execute("COMMIT")

    def get(self, key: Any) -> Any:
        found = self._file.execute("SELECT value FROM entry WHERE key = ?", [_to_json(key)]).fetchone()
        return json.loads(found[0]) if found else None

    def __contains__(self, key: Any) -> bool:
        return self._file.execute("SELECT 1 FROM entry WHERE key = ?", [_to_json(key)]).fetchone() is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        for key, value in self._file.execute("SELECT key, value FROM entry"):
            yield json.loads(key), json.loads(value)

    def values(self) -> Iterator[Any]:
        for _, value in self.items():
            yield value


def _to_json(value: Any) -> str:
    return json.dumps(value, default=str)
