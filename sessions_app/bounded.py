"""Files from elsewhere, read in bounded memory whatever they hold.

A zip file of 400 kB may unpack into 400 MB, name a million files, or ask for a window of gigabytes to be unpacked in;
two bytes of JSON make a list of sixty. So the list of a zip file's files has a limit, its files are only read as
streams, and the values of a JSON text are counted before it is parsed.
"""

import re
from itertools import islice
from typing import IO, Any, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from sessions_app.refusals import Refusal

MIB = 2**20
DIRECTORY_MAX = 4 * MIB  # bytes of the list of files of a zip file

# The other methods unpack a block whole: 4 kB of it may be a hundred megabytes.
_METHODS = (ZIP_STORED, ZIP_DEFLATED)
_LOCKED = 0x1 | 0x40 | 0x2000  # flags of what is encrypted
_PATCHES = 0x20
# A string, so that what is in it doesn't count; at the end of a text it may be cut. It never goes back over one.
_STRING_OR_VALUE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)


class ZipRefused(Refusal):
    """A zip file, or a file in it, is none that is read here. The message says why."""


class _Reading:
    """A file of which at most the limit is read at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, DIRECTORY_MAX + 1) if size >= 0 else DIRECTORY_MAX + 1)
        if len(data) > DIRECTORY_MAX:
            raise ZipRefused(f"The list of its files is longer than {DIRECTORY_MAX // MIB} MiB.")
        return data


def open_zip(file: IO[bytes]) -> ZipFile:
    """Return a file as a zip file.

    Raises:
        BadZipFile: it is none, or damaged.
        ZipRefused: it names more files than are read here.
    """
    try:
        return ZipFile(cast("IO[bytes]", _Reading(file)))
    except (NotImplementedError, ValueError) as error:  # a version, or names, that it can't have
        raise BadZipFile(str(error)) from error


def open_member(archive: ZipFile, member: ZipInfo) -> IO[bytes]:
    """Return a file of a zip file as a stream.

    Raises:
        BadZipFile: it is damaged.
        ZipRefused: it is encrypted, or packed in a way that can't be read in little memory.
    """
    if member.flag_bits & _LOCKED:
        raise ZipRefused("It is encrypted.")
    if member.compress_type not in _METHODS or member.flag_bits & _PATCHES:
        raise ZipRefused("It is compressed by another method than deflate.")
    return archive.open(member)


def most_values(text: str | bytes, start: int = 0) -> int:
    """Return how many values a JSON text has at most: every list, object and comma may begin one."""
    if isinstance(text, bytes):
        return sum(text.count(sign, start) for sign in (b"[", b"{", b","))
    return sum(text.count(sign, start) for sign in "[{,")


def end_of_values(text: str, most: int, start: int = 0) -> int | None:
    """Return where a JSON text has had as many values as it may have; None if it has no more."""
    if most_values(text, start) <= most:
        return None
    places = (found.start() for found in _STRING_OR_VALUE.finditer(text, start) if found[0][0] != '"')
    return next(islice(places, most, None), None)


def has_more_values(line: bytes, most: int) -> bool:
    """Return True if a line of JSON has more values than it may have."""
    return most_values(line) > most and end_of_values(line.decode("latin-1"), most) is not None
