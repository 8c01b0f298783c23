"""Archive files: turns of a session and month as gzipped JSON lines, in the storage named `archive`.

PostgreSQL writes each turn down with all its columns, so that it can be put back exactly as it was. Names are made of
primary keys and numbers alone. A file is never changed: a month that grows is written anew under another name. It is
compressed in parts, one behind the other, so that a turn is read without unpacking all before it; to any program that
knows gzip it is one file.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from tempfile import TemporaryFile
from typing import IO, Any

from django.core.files import File
from django.core.files.storage import storages
from django.db import DatabaseError
from django.db.models import BinaryField, F, Func, QuerySet, TextField, Value

from sessions_app.models import Archive, Message, Session
from sessions_app.models.searched import said_fields

COLUMNS = [field.attname for field in said_fields(Message)]
OLDEST_COLUMNS = set(COLUMNS) - {"arrived_at"}  # of a turn that was archived before there were more
LEVEL = 6  # of compression: beyond it files hardly get smaller
BLOCK_BYTES = 32_000  # of lines, about, that are compressed together: less would take more room, more longer to read
CHUNK_BYTES = 16_000  # read of a file at a time when one part of it is wanted
AT_ONCE = 50  # lines fetched at once; one may have some megabytes

# A turn as a line, and its SHA-256, both made by PostgreSQL: numbers and times are written as they are stored.
LINE = Func(
    *map(F, COLUMNS),
    template="(SELECT row_to_json(turn)::text FROM (SELECT %(expressions)s) turn)",
    output_field=TextField(),
)
LINE_SHA256 = Func(
    Func(LINE, Value("UTF8"), function="convert_to", output_field=BinaryField()),
    function="sha256",
    output_field=BinaryField(),
)


class ArchiveError(Exception):
    """A file can't be written or isn't what was written; the message names it."""


@dataclass
class Turns:
    """How many turns went by, and one number for all of them in their order: equal for equal turns alone."""

    count: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    def add(self, line_sha256: bytes) -> None:
        """Takes in the next turn."""
        self.count += 1
        self._hash.update(line_sha256)

    def counted(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Passes the lines on."""
        for line in lines:
            self.add(hashlib.sha256(line).digest())
            yield line

    def equal(self, other: "Turns") -> bool:
        """Whether the very same turns went by."""
        return self.count == other.count and self._hash.digest() == other._hash.digest()


@dataclass(frozen=True)
class Packed:
    """A file that is not in the storage yet; it vanishes when it is closed, or its process dies.

    Args:
        blocks: the first turn of each part, and where it begins.
    """

    file: IO[bytes]
    turns: Turns
    byte_count: int
    sha256: str
    blocks: list[tuple[int, int]]


def lines_of(turns: QuerySet[Message]) -> Iterator[bytes]:
    """Each turn as a line without its end, in conversation order; a few in memory at a time."""
    lines = turns.order_by("sequence").annotate(line=LINE).values_list("line", flat=True)
    for line in lines.iterator(chunk_size=AT_ONCE):
        yield line.encode()


@contextmanager
def packed(lines: Iterable[bytes]) -> Iterator[Packed]:
    """The lines, compressed: equal lines give equal bytes.

    Raises:
        ArchiveError: there is no room for it.
    """
    turns, blocks = Turns(), []
    with TemporaryFile() as file:
        with _naming("a temporary file"):
            for block in _blocks(turns.counted(lines)):
                blocks.append((json.loads(block[0])["sequence"], file.tell()))
                with gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as compressed:
                    compressed.writelines(line + b"\n" for line in block)
        yield Packed(file, turns, file.tell(), _sha256(File(file)), blocks)


def _blocks(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lines that are compressed together."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def name_of(session: Session, month: date, last_sequence: int) -> str:
    """The name of a month's file that ends with this turn."""
    return f"{folder_of(session)}/{month:%Y-%m}-{last_sequence}.jsonl.gz"


def folder_of(session: Session) -> str:
    """Where a session's files are: in that of its person."""
    return f"{session.user_id}/{session.pk}"


def store(content: Packed, name: str) -> str:
    """Writes a file into the storage, and reads it back. Its name is safe from a crash after `sync_folder`.

    Args:
        content: of the file.
        name: wanted.

    Returns:
        The name it has.

    Raises:
        ArchiveError: the storage fails, or what is read back is not what was written; then nothing is left of it.
    """
    content.file.seek(0)
    with _naming(name):
        stored = storages["archive"].save(name, File(content.file))
        try:
            _sync(stored)
            _read_back(stored, content)
        except BaseException:
            discard([stored])
            raise
    return stored


def _read_back(name: str, content: Packed) -> None:
    turns = Turns()
    for _line in turns.counted(_lines(name, content.sha256)):
        pass
    if not turns.equal(content.turns):
        raise ArchiveError(f"{name}: what is read back is not what was written.")


def _sync(name: str) -> None:
    """Has a file or folder written to disk, where the storage is one."""
    with suppress(NotImplementedError):  # from `path`: a storage elsewhere has none
        descriptor = os.open(storages["archive"].path(name), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_folder(session: Session) -> None:
    """Has a session's folder written to disk, and so the names in it, where the storage is one.

    Raises:
        ArchiveError: the storage fails.
    """
    for folder in (folder_of(session), str(session.user_id), ""):
        with _naming(folder):
            _sync(folder)


def read(archive: Archive) -> Iterator[bytes]:
    """The lines of an archive, after its file was found whole.

    Raises:
        ArchiveError: the file is missing or is not the one that was written.
    """
    turns = Turns()
    with _naming(archive.name):
        yield from turns.counted(_lines(archive.name, archive.sha256))
    if turns.count != archive.turn_count:
        raise ArchiveError(f"{archive.name} has {turns.count} turns in place of {archive.turn_count}.")


def _lines(name: str, sha256: str) -> Iterator[bytes]:
    with storages["archive"].open(name) as file:
        if _sha256(file) != sha256:
            raise ArchiveError(f"{name} is not the file that was written: its SHA-256 differs.")
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as plain:
            for line in plain:
                yield line.removesuffix(b"\n")


def read_some(name: str, offset: int, sequences: Collection[int]) -> list[dict[str, Any]]:
    """Some turns of one part of a file, with all their columns as JSON has them; those of them that are there.

    It reads that part alone and trusts the checksum of it: a look at a turn, not what anything is deleted by.

    Args:
        name: of the file.
        offset: where the part begins.
        sequences: of the turns wanted.

    Raises:
        ArchiveError: the file is missing, or the part isn't what was written.
    """
    with _naming(name):
        lines = _block_at(name, offset).split(b"\n")
        wanted = [line for line in lines if any(b'"sequence":%d,' % sequence in line for sequence in sequences)]
        turns: list[dict[str, Any]] = [json.loads(line) for line in wanted]
        return [turn for turn in turns if turn["sequence"] in sequences]


def _block_at(name: str, offset: int) -> bytes:
    plain, block = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
    with storages["archive"].open(name) as file:
        file.seek(offset)
        while not plain.eof:
            if not (chunk := file.read(CHUNK_BYTES)):
                raise ArchiveError(f"{name} is cut off.")
            block += plain.decompress(chunk)
    return block


def _sha256(file: "File[bytes]") -> str:
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    return digest.hexdigest()


def check(archive: Archive) -> None:
    """Reads an archive to its end.

    Raises:
        ArchiveError: the file is missing, is not what was written, or has a line that is no turn of its session.
    """
    last = -1
    for number, line in enumerate(read(archive), 1):
        try:
            turn = json.loads(line)
            owner = turn["session_id"], turn["user_id"], turn["kind"]
            fits = OLDEST_COLUMNS <= turn.keys() <= set(COLUMNS) and turn["sequence"] > last
        except (ValueError, TypeError, KeyError, AttributeError):
            fits = False
        if not fits or owner != (archive.session_id, archive.user_id, Message.Kind.TURN):
            raise ArchiveError(f"{archive.name}: line {number} is not the next turn of its session.")
        last = turn["sequence"]


def discard(names: Iterable[str]) -> None:
    """Removes files; one that isn't there is no error.

    Raises:
        ArchiveError: the storage fails.
    """
    for name in names:
        with _naming(name):
            storages["archive"].delete(name)


def sweep(session: Session) -> None:
    """Removes files of a session that no archive names: what a crash has left. Its archives have to be claimed."""
    named = set(session.archives.values_list("name", flat=True))
    discard(name for name in _files(folder_of(session)) if name not in named)


def remove(folder: str) -> None:
    """Removes a folder with all that is in it: a session's, as `folder_of` names it, or a person's, their primary key.

    Raises:
        ArchiveError: the storage fails.
    """
    with _naming(folder):
        try:
            folders, files = storages["archive"].listdir(folder)
        except FileNotFoundError:
            return
    for inner in folders:
        remove(f"{folder}/{inner}")
    discard([*(f"{folder}/{name}" for name in files), folder])


def _files(folder: str) -> list[str]:
    """Names of all files in a folder and those within."""
    with _naming(folder):
        try:
            folders, files = storages["archive"].listdir(folder)
        except FileNotFoundError:
            return []
    return [f"{folder}/{name}" for name in files] + [name for inner in folders for name in _files(f"{folder}/{inner}")]


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Names the file when a storage fails; each kind of storage has errors of its own."""
    try:
        yield
    except (ArchiveError, DatabaseError):
        raise
    except FileNotFoundError as error:
        raise ArchiveError(f"{name} is missing.") from error
    except Exception as error:
        raise ArchiveError(f"{name}: {error}") from error
