"""The file of an import: a record after another, from plain JSON lines, a JSON array, or such an array in a zip.

One record is held at a time, at most `RECORD_MAX` of it, so the size of the file doesn't matter. What can't be read is
a `Rejected` in its place. An array goes to the standard parser as a text that grows until a value is whole; why not to
a streaming one is decision 10.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

from sessions_app.imports.import_sessions import Rejected
from sessions_app.refusals import Refusal

MIB = 2**20
RECORD_MAX = 32 * MIB  # bytes of a line, characters of a conversation in an array
CHUNK = MIB
CONVERSATIONS = re.compile(r"(^|.*/)conversations(-\d+)?\.json")
WHITE_SPACE = re.compile(r"[ \t\r\n]*")


class Unreadable(Refusal):
    """The file can't be read as what it is said to be; the text says why."""


@dataclass(frozen=True)
class Found:
    """A JSON value, and where in the file."""

    where: str
    value: Any


class Source:
    """A file on disk, opened anew for each reading.

    Args:
        path: of the file.

    Raises:
        Unreadable: there is none on disk, it can't be opened, or it is a zip file cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise Unreadable(f"{path}: only a file on disk can be imported: its beginning is read twice")
        try:
            self._file: IO[bytes] = path.open("rb")
            self.size = path.stat().st_size
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from error
        with self._file:
            self.is_zip = self._file.read(2) == b"PK"
        if self.is_zip and not zipfile.is_zipfile(path):
            raise Unreadable(f"{path}: it begins as a zip file, but its end is missing")

    @property
    def position(self) -> int:
        """Bytes of the file read by now."""
        return self.size if self._file.closed else self._file.tell()

    @cached_property
    def first_names(self) -> frozenset[str]:
        """Names of the fields of the file's first value, or of an array's first element; none if it is no object."""
        with self.path.open("rb") as file:
            is_array = self.is_zip or file.read(CHUNK).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
        for found in self.elements() if is_array else self.lines():
            return frozenset(found.value if isinstance(found, Found) and isinstance(found.value, dict) else ())
        return frozenset()

    def lines(self) -> Iterator[Found | Rejected]:
        """The values of a file that has one a line; blank lines are nothing."""
        if self.is_zip:
            yield Rejected("the file", "It is a zip file; what is wanted are JSON lines.")
            return
        self._file = self.path.open("rb")
        with self._file:
            number = 0
            while line := self._file.readline(RECORD_MAX + 1):
                number += 1
                if len(line) > RECORD_MAX:
                    self._to_next_line(line)
                    yield Rejected(f"line {number}", f"It is longer than {RECORD_MAX // MIB} MiB.")
                elif line.strip():
                    yield _parsed(f"line {number}", line)

    def _to_next_line(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._file.readline(CHUNK)

    def elements(self) -> Iterator[Found | Rejected]:
        """The elements of a JSON array; in a zip file, of each `conversations.json` or `conversations-000.json`."""
        self._file = self.path.open("rb")
        with self._file:
            if not self.is_zip:
                yield from _elements(self._file, "conversation")
                return
            with zipfile.ZipFile(self._file) as archive:
                yield from _members(archive)


def _members(archive: zipfile.ZipFile) -> Iterator[Found | Rejected]:
    members = sorted(info.filename for info in archive.infolist() if CONVERSATIONS.fullmatch(info.filename))
    if not members:
        yield Rejected("the zip file", "There is no conversations.json in it.")
    for member in members:
        if archive.getinfo(member).flag_bits & 1:
            yield Rejected(member, "It is encrypted.")
            continue
        with archive.open(member) as stream:
            yield from _elements(stream, "conversation" if len(members) == 1 else f"{member}, conversation")


def _parsed(where: str, line: bytes) -> Found | Rejected:
    try:
        return Found(where, json.loads(line))
    except RecursionError:
        return Rejected(where, "It is nested too deeply.")
    except ValueError:
        return Rejected(where, "It is not valid JSON in UTF-8.")


def _elements(stream: IO[bytes], what: str) -> Iterator[Found | Rejected]:
    """The elements of the array in this stream; after one that can't be read, none."""
    number = 0
    try:
        for number, value in enumerate(_Text(stream).elements(), 1):
            yield Found(f"{what} {number}", value)
        return
    except Unreadable as error:
        reason = str(error)
    except RecursionError:
        reason = "It is nested too deeply."
    except ValueError:
        reason = "It is not valid JSON in UTF-8."
    # The last is how `zipfile` says that a member is compressed in a way it does not know.
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError):
        reason = "The file is damaged there."
    yield Rejected(f"{what} {number + 1}", f"{reason} Nothing after it was read.")


class _Text:
    """The part of a stream's text that is in hand, read on as needed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def elements(self) -> Iterator[Any]:
        """Those of the array that the text is.

        Raises:
            Unreadable: at what can't be read; says why.
            ValueError, RecursionError: the same, as the parser has it.
        """
        if self._next() != "[":
            raise Unreadable("What is wanted is a JSON array.")
        mark = "["
        while mark != "]":
            self._at += 1
            if mark == "[" and self._next() == "]":
                break
            yield self._value()
            mark = self._next()
            if mark not in (",", "]"):
                raise Unreadable("It is not valid JSON, or the file ends in the middle.")
        self._at += 1
        if self._next():
            raise Unreadable("There is more after the end of the array.")

    def _next(self) -> str:
        """The next character that isn't white space; blank at the end."""
        while True:
            white = WHITE_SPACE.match(self._text, self._at)
            self._at = white.end() if white else self._at
            if self._at < len(self._text) or not self._read_on():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if len(self._text) - self._at > RECORD_MAX:
                    raise Unreadable(f"It is not valid JSON, or longer than {RECORD_MAX // MIB} MiB.") from None
            else:
                if end < len(self._text):  # else a number may go on
                    self._at = end
                    return value
            if not self._read_on():
                raise Unreadable("It is not valid JSON, or the file ends in the middle.")

    def _read_on(self) -> bool:
        """Doubles what is in hand, so that a long value isn't parsed over and over; False at the end."""
        rest = self._text[self._at :]
        more = self._stream.read(max(CHUNK, len(rest)))
        self._text, self._at = rest + more, 0
        return bool(more)
