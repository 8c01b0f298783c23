"""The files that can be imported: their formats, and a source that reads their records.

The reader of a format yields the messages in a file with their sessions (`Record`), facts without a message
(`Statement`), and records that it can't import (`RejectedRecord`). It writes nothing. To add a format, write a module
with `DESCRIPTION`, `recognizes` and `read`, and call `register_format` in an app's module
`import_formats`.

A file contains JSON lines or a JSON array, or is a zip file that contains such an array.

Only one record is in memory at a time, with at most `RECORD_MAX` characters and `VALUES_MAX` values, so files may have
any size, even after they are unpacked. For a record that can't be read, the source yields a `RejectedRecord`. Arrays
are read with the standard parser, which is called with more and more text until a value is complete.
docs/dependencies.md explains why no streaming parser is used.
"""

import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Protocol

from django.utils.module_loading import autodiscover_modules
from pydantic import ValidationError as ShapeError
from rest_framework.exceptions import ValidationError

from sessions_app.api.fields import PublicIdField, TextField
from sessions_app.api.messages import MessageInput
from sessions_app.bounded_memory import MIB, ZipRefused, end_of_values, has_more_values, open_member, open_zip
from sessions_app.imports.import_sessions import Record, RejectedRecord, SessionRef, Statement
from sessions_app.refusals import Refusal
from sessions_app.transcript.append import NewMessage

RECORD_MAX = 32 * MIB  # maximum bytes of a line, or characters of a conversation in an array
VALUES_MAX = 1_000_000  # maximum values of a record, including lists and objects
CHUNK = MIB
CONVERSATIONS = re.compile(r"(^|.*/)conversations(-\d+)?\.json")
TOO_MANY = f"It has more than {VALUES_MAX:,} values."
REASON_MAX_CHARS = 300
WHITE_SPACE = re.compile(r"[ \t\r\n]*")

_public_id = PublicIdField()


class CannotImport(Refusal):
    """A record, or the whole file, can't be imported. The message says why."""


class Unreadable(Refusal):
    """The file can't be read in its format. The message says why."""


@dataclass(frozen=True)
class Owner:
    """The owner of conversations, for files that don't specify one. A blank `agent_id` means the default agent."""

    user_id: str = ""
    agent_id: str = ""


@dataclass(frozen=True)
class LocatedValue:
    """A JSON value and its position in the file."""

    where: str
    value: Any


class Source:
    """A file on disk, opened again for each pass.

    Raises:
        Unreadable: It isn't a file on disk, it can't be opened, or it is a truncated zip file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise Unreadable(f"{path}: only a file on disk can be imported, because its start is read twice")
        try:
            self._file: IO[bytes] = path.open("rb")
            self.size = path.stat().st_size
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from error
        with self._file:
            self.is_zip = self._file.read(2) == b"PK"
        if self.is_zip and not zipfile.is_zipfile(path):
            raise Unreadable(f"{path}: the zip file is incomplete")

    @property
    def position(self) -> int:
        return self.size if self._file.closed else self._file.tell()

    @cached_property
    def first_names(self) -> frozenset[str]:
        """Field names of the first value, or of an array's first element. Empty if that isn't an object."""
        with self.path.open("rb") as file:
            is_array = self.is_zip or file.read(CHUNK).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
        for found in self.elements() if is_array else self.lines():
            return frozenset(found.value if isinstance(found, LocatedValue) and isinstance(found.value, dict) else ())
        return frozenset()

    def lines(self) -> Iterator[LocatedValue | RejectedRecord]:
        if self.is_zip:
            yield RejectedRecord("the file", "It is a zip file; JSON lines are expected.")
            return
        self._file = self.path.open("rb")
        with self._file:
            number = 0
            while line := self._file.readline(RECORD_MAX + 1):
                number += 1
                if len(line) > RECORD_MAX:
                    self._to_next_line(line)
                    yield RejectedRecord(f"line {number}", f"It is longer than {RECORD_MAX // MIB} MiB.")
                elif line.strip():
                    yield _parsed(f"line {number}", line)

    def values(self) -> Iterator[LocatedValue | RejectedRecord]:
        """Yield the elements of an array, the values of lines, or the single value that spans the whole file."""
        with self.path.open("rb") as file:
            start = file.read(CHUNK).lstrip(b"\xef\xbb\xbf \t\r\n")
        if self.is_zip or start.startswith(b"["):
            return self.elements("item")
        return self._single_value() if start.split(b"\n", 1)[0].strip() == b"{" else self.lines()

    def _single_value(self) -> Iterator[LocatedValue | RejectedRecord]:
        self._file = self.path.open("rb")
        with self._file:
            text = self._file.read(RECORD_MAX + 1)
        if len(text) > RECORD_MAX:
            yield RejectedRecord("the file", f"It is one value that is longer than {RECORD_MAX // MIB} MiB.")
        else:
            yield _parsed("the file", text)

    def _to_next_line(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._file.readline(CHUNK)

    def elements(self, what: str = "conversation") -> Iterator[LocatedValue | RejectedRecord]:
        """Yield the elements of a JSON array. In a zip, read each `conversations.json` or `conversations-000.json`."""
        self._file = self.path.open("rb")
        with self._file:
            if not self.is_zip:
                yield from _elements(self._file, what)
                return
            try:
                archive = open_zip(self._file)
            except (ZipRefused, zipfile.BadZipFile) as error:
                raise Unreadable(f"{self.path}: {_reason(error)}") from None
            with archive:
                yield from _members(archive)


def _members(archive: zipfile.ZipFile) -> Iterator[LocatedValue | RejectedRecord]:
    members = sorted(info.filename for info in archive.infolist() if CONVERSATIONS.fullmatch(info.filename))
    if not members:
        yield RejectedRecord("the zip file", "It contains no conversations.json.")
    for member in members:
        try:
            opened = open_member(archive, archive.getinfo(member))
        except (ZipRefused, zipfile.BadZipFile) as error:
            yield RejectedRecord(member, _reason(error))
            continue
        with opened as stream:
            yield from _elements(stream, "conversation" if len(members) == 1 else f"{member}, conversation")


def _reason(error: ZipRefused | zipfile.BadZipFile) -> str:
    return str(error) if isinstance(error, ZipRefused) else "The file is damaged."


def _parsed(where: str, line: bytes) -> LocatedValue | RejectedRecord:
    if has_more_values(line, VALUES_MAX):
        return RejectedRecord(where, TOO_MANY)
    try:
        return LocatedValue(where, json.loads(line))
    except RecursionError:
        return RejectedRecord(where, "It is nested too deeply.")
    except ValueError:
        return RejectedRecord(where, "It is not valid JSON in UTF-8.")


def _elements(stream: IO[bytes], what: str) -> Iterator[LocatedValue | RejectedRecord]:
    """Yield the elements of the array in this stream, up to the first that can't be read."""
    number = 0
    try:
        for number, value in enumerate(_ArrayReader(stream).elements(), 1):
            yield LocatedValue(f"{what} {number}", value)
        return
    except Unreadable as error:
        reason = str(error)
    except RecursionError:
        reason = "It is nested too deeply."
    except ValueError:
        reason = "It is not valid JSON in UTF-8."
    # NotImplementedError: zipfile doesn't know the compression method.
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError):
        reason = "The file is damaged at this point."
    yield RejectedRecord(f"{what} {number + 1}", f"{reason} Nothing after it was read.")


class _ArrayReader:
    """Parses a JSON array, with only part of the stream's text in memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        self._text = ""
        self._at = 0
        self._has_few_values = False  # whether the text in memory is known to be within `VALUES_MAX`
        self._decoder = json.JSONDecoder()

    def elements(self) -> Iterator[Any]:
        """Yield the elements. If one can't be read, raise Unreadable, ValueError or RecursionError."""
        if self._next() != "[":
            raise Unreadable("A JSON array is expected.")
        mark = "["
        while mark != "]":
            self._at += 1
            if mark == "[" and self._next() == "]":
                break
            yield self._value()
            mark = self._next()
            if mark not in (",", "]"):
                raise Unreadable("It is not valid JSON, or the file is truncated.")
        self._at += 1
        if self._next():
            raise Unreadable("There is text after the end of the array.")

    def _next(self) -> str:
        """Return the next character that isn't white space, or a blank string at the end."""
        while True:
            white = WHITE_SPACE.match(self._text, self._at)
            self._at = white.end() if white else self._at
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._next()
        while True:
            limit_end = self._end_of_values()
            try:
                value, end = self._decoder.raw_decode(self._text[:limit_end], self._at)
            except json.JSONDecodeError:
                if limit_end is not None:
                    raise Unreadable(TOO_MANY) from None
                if len(self._text) - self._at > RECORD_MAX:
                    raise Unreadable(f"It is not valid JSON, or longer than {RECORD_MAX // MIB} MiB.") from None
            else:
                if end < len(self._text):  # at the end of the text, a number may be incomplete
                    self._at = end
                    return value
            if not self._read_more():
                raise Unreadable("It is not valid JSON, or the file is truncated.")

    def _end_of_values(self) -> int | None:
        if self._has_few_values:
            return None
        end = end_of_values(self._text, VALUES_MAX, self._at)
        self._has_few_values = end is None
        return end

    def _read_more(self) -> bool:
        """Double the text in memory, so a long value isn't parsed many times. Return False at the end."""
        rest = self._text[self._at :]
        more = self._stream.read(max(CHUNK, min(len(rest), RECORD_MAX + CHUNK - len(rest))))
        self._text, self._at, self._has_few_values = rest + more, 0, False
        return bool(more)


def public_id(value: str) -> str:
    """Validate an id as the API does, and return it. Raise CannotImport if it is not valid."""
    try:
        return str(_public_id.run_validation(value))
    except ValidationError as error:
        raise CannotImport(reason_of(error)) from None


def reason_of(error: Exception) -> str:
    """Return the text of an error without quoting the file."""
    if isinstance(error, ShapeError):
        details = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors(include_input=False)]
        reason = "; ".join(details)
    elif isinstance(error, ValidationError):
        reason = json.dumps(error.detail, ensure_ascii=False)
    elif isinstance(error, RecursionError):
        reason = "It is nested too deeply."
    else:
        reason = str(error)
    return reason[:REASON_MAX_CHARS]


# --- formats ---


class Format(Protocol):
    """A module or object that reads a format. `DESCRIPTION` describes how it recognizes the format."""

    @property
    def DESCRIPTION(self) -> str: ...  # noqa: N802 (a module's constant)
    def recognizes(self, source: Source) -> bool: ...
    def read(self, source: Source, owner: Owner) -> Iterator[Record | Statement | RejectedRecord]: ...


class ImportRecord(MessageInput):
    """A line of the file: a message and the session that it belongs to."""

    user_id = PublicIdField()
    session_id = PublicIdField()
    agent_id = PublicIdField(default="")
    source = TextField(max_length=64, default="import")  # type: ignore[assignment]  # not the attribute of a field


class JsonLines:
    """Our own format. Each line has the API's fields of a message, its user and its session."""

    DESCRIPTION = "JSON lines with user_id, session_id and role (jsonl)"

    def recognizes(self, source: Source) -> bool:
        return source.first_names >= {"user_id", "session_id", "role"}

    def read(self, source: Source, owner: Owner) -> Iterator[Record | RejectedRecord]:
        """Yield the messages. A message without an `external_id` gets one from its position in its session."""
        if owner != Owner():
            raise CannotImport("Each line of this format names its user and agent: leave out --user and --agent.")
        return self._records(source)

    def _records(self, source: Source) -> Iterator[Record | RejectedRecord]:
        record = ImportRecord()
        positions: Counter[tuple[str, str]] = Counter()
        for found in source.lines():
            if isinstance(found, RejectedRecord):
                yield found
                continue
            try:
                fields: dict[str, Any] = record.run_validation(found.value)
            except ValidationError as error:
                yield RejectedRecord(found.where, reason_of(error))
                continue
            ref = SessionRef(**{name: fields.pop(name) for name in ("user_id", "session_id", "agent_id", "source")})
            session = ref.user_id, ref.session_id
            positions[session] += 1
            fields["external_id"] = fields["external_id"] or f"import:{positions[session]}"
            yield Record(found.where, ref, NewMessage(**fields))


_formats: dict[str, Format] = {"jsonl": JsonLines()}  # in the order in which they are tried


def register_format(name: str, reader: Format) -> None:
    _formats[name] = reader


def formats() -> dict[str, Format]:
    """Return the formats by name. The first call imports each app's `import_formats`, which few commands need."""
    autodiscover_modules("import_formats")
    return _formats


def recognize(source: Source) -> Format:
    """Return the format that recognizes the start of a file. Raise Unreadable if none does."""
    known = formats().values()
    for one in known:
        if one.recognizes(source):
            return one
    looked_for = "; ".join(one.DESCRIPTION for one in known)
    raise Unreadable(f"{source.path} has no known format. Known formats: {looked_for}.")
