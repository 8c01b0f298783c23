"""Archive files: turns of one person and month as gzipped JSON lines, in the storage named `archive`.

PostgreSQL formats each turn with all its columns, so the turn can be restored exactly. The turns of a session are a
span of a file, and an `Archive` describes the span. The file may contain spans of other sessions of the person. File
names consist of primary keys, months and times. The content is compressed in blocks, so a turn can be read without
unpacking everything before it. Any program that supports gzip reads the blocks as one file.

A file is never changed. If more turns of a session and month are archived, the span is copied to a new file. Once a
span is copied, or its session is deleted or restored, no row refers to the old span anymore. If no row refers to any
span of the file, `remove_unused_spans` removes the file after the commit. Otherwise, a job copies the other spans to a
new file and reads it back, updates their rows in one transaction, and then removes the old file (`rewrite_archives`).
After a crash, the job is retried, and an unused file may remain. The person's next run of retention removes it.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import IO, Any
from uuid import uuid4

from django.core.files import File
from django.core.files.storage import storages
from django.db import DatabaseError, connection, transaction
from django.db.models import BinaryField, F, Func, QuerySet, TextField, Value
from django.utils import timezone

from sessions_app.models import Archive, Message, Session, UserProfile
from sessions_app.models.searched import source_fields
from sessions_app.signals import call_wanted

COLUMNS = [field.attname for field in source_fields(Message)]
OLDEST_COLUMNS = set(COLUMNS) - {"arrived_at", "name"}  # the columns of the first release with archives
LEVEL = 6  # compression level; higher levels hardly make files smaller
# Approximate size of a block before compression; small blocks take more space, large ones more time.
BLOCK_BYTES = 32_000
CHUNK_BYTES = 16_000  # bytes to read at a time from a block
SPAN_CHUNK_BYTES = 64_000  # bytes to read at a time from a span
SPAN_BYTES = 4_000_000  # bytes of a span to keep in memory while it is checked; the rest goes to a temporary file
LINES_PER_PAGE = 50  # lines fetched at once; a line may have several megabytes

# A turn as a line of JSON, and its SHA-256. PostgreSQL computes both, so numbers and times are formatted exactly.
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

REWRITE_TASK = "sessions_app.tasks.rewrite_archives"
_REMOVE_SQL = "DELETE FROM sessions_app_archive WHERE id = ANY(%s) AND user_id = %s RETURNING name"


class ArchiveError(Exception):
    """A file can't be written, or is damaged. The message names it."""


@dataclass
class TurnsHash:
    """A running count and hash of turns in order. Two instances are equal only if their turns are equal."""

    count: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    def add(self, line_sha256: bytes) -> None:
        self.count += 1
        self._hash.update(line_sha256)

    def counted(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            self.add(hashlib.sha256(line).digest())
            yield line

    def equal(self, other: "TurnsHash") -> bool:
        return self.count == other.count and self._hash.digest() == other._hash.digest()


@dataclass(frozen=True)
class Span:
    """The part of a file with the turns of one session and month."""

    turns: TurnsHash
    byte_offset: int  # position in the file
    byte_count: int
    sha256: str  # hash of the bytes
    blocks: list[tuple[int, int]]  # for each block, the sequence number of its first turn, and its offset in the span


@dataclass(frozen=True)
class PackedFile:
    """A temporary file that is not in the storage yet. It is deleted when it is closed or its process dies."""

    file: IO[bytes]
    spans: list[Span] = field(default_factory=list)

    def add(self, lines: Iterable[bytes]) -> Span:
        """Compress lines into a new span. Equal lines give equal bytes. Raise ArchiveError if the disk is full."""
        turns, blocks, sha256, start = TurnsHash(), [], hashlib.sha256(), self.file.tell()
        with _as_archive_errors("a temporary file"):
            for block in blocks_of(turns.counted(lines), BLOCK_BYTES):
                blocks.append((json.loads(block[0])["sequence"], self.file.tell() - start))
                part = gzip.compress(b"".join(line + b"\n" for line in block), LEVEL, mtime=0)
                sha256.update(part)
                self.file.write(part)
            self.file.flush()
        return self._added(Span(turns, start, self.file.tell() - start, sha256.hexdigest(), blocks))

    def copy(self, archive: Archive) -> Span:
        """Verify the span of an archive, and copy it unchanged. Raise ArchiveError if that fails."""
        turns, start = TurnsHash(), self.file.tell()
        with _as_archive_errors(archive.name), _span_of(archive) as span:
            for _line in turns.counted(_lines(span)):
                pass
            span.seek(0)
            copyfileobj(span, self.file)
            self.file.flush()
        blocks = list(zip(archive.block_sequences, archive.block_offsets, strict=True))
        return self._added(Span(turns, start, archive.byte_count, archive.sha256, blocks))

    def _added(self, span: Span) -> Span:
        self.spans.append(span)
        return span


def lines_of(turns: QuerySet[Message]) -> Iterator[bytes]:
    """Yield each turn as a line without newline, in conversation order, with a few in memory at a time."""
    lines = turns.order_by("sequence").annotate(line=LINE).values_list("sequence", "line")
    after = -1
    while True:  # in pages, because a cursor would keep a transaction open while the file is written
        page = list(lines.filter(sequence__gt=after)[:LINES_PER_PAGE])
        for _, line in page:
            yield line.encode()
        if len(page) < LINES_PER_PAGE:
            return
        after = page[-1][0]


@contextmanager
def new_file() -> Iterator[PackedFile]:
    """Open a new temporary file. If the disk is full, raise ArchiveError, now or when the file is closed."""
    with _as_archive_errors("a temporary file"), TemporaryFile() as file:
        yield PackedFile(file)


def blocks_of(lines: Iterable[bytes], size: int, max_lines: int | None = None) -> Iterator[list[bytes]]:
    """Yield blocks of at least `size` bytes or `max_lines` lines. The last one may be smaller."""
    block: list[bytes] = []
    left = size
    for line in lines:
        block.append(line)
        left -= len(line)
        if left <= 0 or len(block) == max_lines:
            yield block
            block, left = [], size
    if block:
        yield block


def claim(user_pk: int) -> bool:
    """Claim a person's files: until the transaction ends, no other process writes them or removes unused ones.

    Blocks an erasure of the person. Returns False if another process has claimed the files, or the person no longer
    exists.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended('archive files', %s))", [user_pk])
        [claimed] = cursor.fetchone() or [False]
    return claimed and bool(UserProfile.objects.protect([user_pk]))


def wait_and_claim(user_pk: int) -> bool:
    """Like `claim`, but wait for other processes. Return False if the person no longer exists."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('archive files', %s))", [user_pk])
    return bool(UserProfile.objects.protect([user_pk]))


def name_of(user_pk: int, month: date) -> str:
    return f"{user_pk}/{month:%Y-%m}-{timezone.now():%Y%m%d%H%M%S%f}.jsonl.gz"


def folder_of(session: Session) -> str:  # earlier versions stored the session's files here
    return f"{session.user_id}/{session.pk}"


def store(content: PackedFile, name: str) -> str:
    """Write a file to the storage and read it back. Return the name chosen by the storage.

    Without `sync_folder`, the file name may be lost in a crash. If the storage fails or returns different content,
    remove the file and raise ArchiveError.
    """
    with _as_archive_errors(name):
        content.file.seek(0)
        stored = storages["archive"].save(name, File(content.file))
        try:
            _sync(stored)
            _read_back(stored, content)
        except BaseException:
            discard([stored])
            raise
    return stored


def _read_back(name: str, content: PackedFile) -> None:
    with storages["archive"].open(name) as file:
        for written in content.spans:
            turns = TurnsHash()
            with _verified(file, written, name) as span:
                for _line in turns.counted(_lines(span)):
                    pass
            if not turns.equal(written.turns):
                raise ArchiveError(f"{name}: the content read back is not what was written.")


def _sync(name: str) -> None:
    with suppress(NotImplementedError):  # raised by `path` of a storage that is not local and can't be synced
        descriptor = os.open(storages["archive"].path(name), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_folder(user_pk: int) -> None:
    """If the storage is local, sync a person's folder to disk. Raise ArchiveError if that fails."""
    for folder in (str(user_pk), ""):
        with _as_archive_errors(folder):
            _sync(folder)


def read(archive: Archive) -> Iterator[bytes]:
    """Verify the span of an archive, and yield its lines. Raise ArchiveError if it is missing or damaged."""
    turns = TurnsHash()
    with _as_archive_errors(archive.name), _span_of(archive) as span:
        yield from turns.counted(_lines(span))
    if turns.count != archive.turn_count:
        raise ArchiveError(f"{archive.name} has {turns.count} turns instead of {archive.turn_count}.")


@contextmanager
def _span_of(archive: Archive) -> Iterator[IO[bytes]]:
    with storages["archive"].open(archive.name) as file:
        file.seek(archive.byte_offset)
        with _verified(file, archive, archive.name) as span:
            yield span


@contextmanager
def _verified(file: "File[bytes]", written: Span | Archive, name: str) -> Iterator[IO[bytes]]:
    """Read and verify the span at a file's current position, and open it."""
    sha256, left = hashlib.sha256(), written.byte_count
    with SpooledTemporaryFile(SPAN_BYTES) as span:
        while left and (chunk := file.read(min(left, SPAN_CHUNK_BYTES))):
            sha256.update(chunk)
            span.write(chunk)
            left -= len(chunk)
        if sha256.hexdigest() != written.sha256:
            raise ArchiveError(f"{name} is not the file that was written: its SHA-256 differs.")
        span.seek(0)
        yield span


def _lines(span: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=span, mode="rb") as plain:
        for line in plain:
            yield line.removesuffix(b"\n")


def read_some(name: str, offset: int, sequences: Collection[int]) -> list[dict[str, Any]]:
    """Return turns from the block of a file that starts at this offset, with all their columns as JSON.

    Reads only this block, and only verifies its gzip checksum. This suffices to show turns, but not to delete
    anything. Raises ArchiveError if the file is missing, or the block is damaged.
    """
    with _as_archive_errors(name):
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
                raise ArchiveError(f"{name} is truncated.")
            block += plain.decompress(chunk)
    return block


def check(archive: Archive) -> None:
    """Read an archive to its end. Raise ArchiveError if it is damaged, or a line isn't a turn of its session."""
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
    """Remove files, ignoring missing ones. Raise ArchiveError if the storage fails."""
    for name in names:
        with _as_archive_errors(name):
            storages["archive"].delete(name)


def sweep(user_pk: int, sessions: Collection[Session]) -> None:
    """Remove files of a person that no archive refers to. A crash may have left them.

    The caller must have claimed the person's files and these sessions.
    """
    folders, files = _listed(str(user_pk))
    there = [f"{user_pk}/{name}" for name in files]
    for session in sessions:  # earlier versions stored files in one folder per session
        if str(session.pk) in folders:
            there += _files(folder_of(session))
    named = set(Archive.objects.filter(user_id=user_pk, name__in=there).values_list("name", flat=True))
    discard(name for name in there if name not in named)


def remove(folder: str) -> None:
    """Remove a folder of a person or a session, with its files and subfolders.

    Raises ArchiveError if the storage fails, or still lists a file.
    """
    folders, files = _listed(folder)
    for inner in folders:
        remove(f"{folder}/{inner}")
    discard([*(f"{folder}/{name}" for name in files), folder])
    if left := _files(folder):
        raise ArchiveError(f"{left[0]}: the file was deleted, but the storage still lists it.")


def _listed(folder: str) -> tuple[list[str], list[str]]:
    with _as_archive_errors(folder), suppress(FileNotFoundError):
        return storages["archive"].listdir(folder)
    return [], []


def _files(folder: str) -> list[str]:
    folders, files = _listed(folder)
    return [f"{folder}/{name}" for name in files] + [name for inner in folders for name in _files(f"{folder}/{inner}")]


# --- removing turns from files ---


class ArchivesChanged(Exception):
    """The archive of another session was removed while its file was rewritten."""


def remove_archives(user_pk: int, archives: QuerySet[Archive]) -> None:
    """Delete archives of a person in the caller's transaction. Their turns are removed from files after the commit."""
    with connection.cursor() as cursor:
        # Returns the current file names, because another transaction may just have rewritten a file.
        cursor.execute(_REMOVE_SQL, [list(archives.values_list("pk", flat=True)), user_pk])
        names = {name for (name,) in cursor}
    remove_unused_spans(user_pk, names)


def remove_unused_spans(user_pk: int, names: Collection[str]) -> None:
    """After this transaction commits, remove the unused spans of these files. A file without used spans is deleted."""
    rows = Archive.objects.filter(user_id=user_pk, name__in=names)
    shared = set(rows.values_list("name", flat=True)) if names else set()
    if shared:
        call_wanted.send(None, function=REWRITE_TASK, args=[user_pk, sorted(shared)], user_pk=user_pk)
    transaction.on_commit(partial(discard, set(names) - shared), robust=True)


def rewrite_archives(user_pk: int, names: Collection[str]) -> None:
    """Rewrite a person's files to remove spans that no row refers to. Raise ArchiveError if that fails."""
    for name in names:
        while not _try_rewrite(user_pk, name):
            pass


def _try_rewrite(user_pk: int, name: str) -> bool:
    try:
        with transaction.atomic(), ExitStack() as undo:
            if wait_and_claim(user_pk):
                _rewrite(user_pk, name, undo)
            undo.pop_all()
    except ArchivesChanged:
        return False
    return True


def _rewrite(user_pk: int, name: str, undo: ExitStack) -> None:
    archives = list(Archive.objects.filter(user_id=user_pk, name=name).order_by("byte_offset"))
    if archives:
        with new_file() as file:
            spans = [file.copy(archive) for archive in archives]
            new = store(file, name_of(user_pk, archives[0].month))
        undo.callback(discard, [new])
        sync_folder(user_pk)
        for archive, span in zip(archives, spans, strict=True):
            row = Archive.objects.filter(pk=archive.pk, user_id=user_pk, name=name)
            if not row.update(name=new, byte_offset=span.byte_offset):
                raise ArchivesChanged
    transaction.on_commit(partial(discard, [name]), robust=True)


# --- the storage ---


def storage_error() -> str:
    """Test the storage by writing, reading and removing a small file. Return the error, or a blank string."""
    try:
        with new_file() as content:
            content.add([json.dumps({"sequence": 0}).encode()])
            discard([store(content, f"check-{uuid4()}.jsonl.gz")])
    except ArchiveError as error:
        return f"The archive storage failed a test: {error}"
    return ""


@contextmanager
def _as_archive_errors(name: str) -> Iterator[None]:
    """Convert the errors of any storage to an `ArchiveError` with the name of the file."""
    try:
        yield
    except (ArchiveError, DatabaseError):
        raise
    except FileNotFoundError as error:
        raise ArchiveError(f"{name} is missing.") from error
    except Exception as error:
        raise ArchiveError(f"{name}: {error}") from error
