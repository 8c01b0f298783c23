"""Index and count the words of texts.

`index_words` indexes texts whose words are missing or outdated: an older version indexed them, a large append deferred
them, or a restore or manual SQL statement wrote them. Until then, searches find a text by its former words. Each batch
is a short transaction that skips locked rows, so a run can be stopped, and runs can overlap.

`index_archived` indexes turns that an earlier release archived without index rows. Each archive has a separate
transaction, so a killed job continues with the next archive.

`count_words` counts how often each word occurs in the memory of a person or a shard. Recall uses the counts to weight
the words of a query, and to correct mistyped words. A sweep queues it when a session has grown by a quarter, and code
that adds facts queues it too. It counts only if memory has changed by a tenth since the last count, so it reads each
text about ten times in total, regardless of the size of memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import groupby
from operator import itemgetter
from time import monotonic
from typing import Any

import structlog
from django.apps import apps
from django.db import connection, transaction
from django.db.models import F, Func, IntegerField

from moments_app.jobs.process import (
    ClaimLost,
    Lane,
    PostponeJob,
    Process,
    ProcessInput,
    Progress,
    QueuedJobs,
    Skipped,
    Timing,
)
from moments_app.models import Job, MemoryStream, StoredItem, Vocabulary
from sessions_app import lexemes
from sessions_app.clock import database_now
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import Archive, Message, Session
from sessions_app.models.message import MessageQuerySet
from sessions_app.models.searched import Searched, SearchedQuerySet
from sessions_app.retention.restore import CannotRestore, restore_turns

NAME = "index_words"
BATCH = 500  # maximum rows or archived turns per batch
BATCH_BYTES = 1_000_000  # maximum size of the texts in a batch; a single row may be larger
SECONDS = 40.0  # maximum seconds per run

_WRITE_SQL = """
UPDATE {table} SET search_vector = COALESCE(made.words::tsvector, search_vector), search_version = %s
FROM unnest(%s::bigint[], %s::text[]) made (id, words) WHERE {table}.id = made.id
"""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class IndexingResult:
    rows: int  # with `dry_run`, the number of waiting rows
    is_done: bool

    def __str__(self) -> str:
        return f"rows: {self.rows}, {'none waits' if self.is_done else 'more wait'}"


def index_words(*, dry_run: bool = False, seconds: float | None = SECONDS) -> IndexingResult:
    """Index texts whose words this version has not indexed yet.

    Args:
        seconds: the time limit, or None for no limit.
    """
    if dry_run:
        waiting = sum(SearchedQuerySet(table).unindexed().count() for table in tables())
        return IndexingResult(waiting, not waiting)
    until = monotonic() + (float("inf") if seconds is None else seconds)
    rows = 0
    for table in tables():
        for batch in _batches(table):
            rows += batch
            if monotonic() > until:
                logger.info("words indexed", rows=rows, is_done=False)
                return IndexingResult(rows, is_done=False)
    if rows:
        logger.info("words indexed", rows=rows, is_done=True)
    return IndexingResult(rows, is_done=True)


def tables() -> Iterator[type[Searched]]:
    return (model for model in apps.get_models() if issubclass(model, Searched) and not model._meta.proxy)


def _batches(table: type[Searched]) -> Iterator[int]:
    """Index all outdated rows, person by person, and yield the size of each batch. Uses the index of outdated rows."""
    sizes = [Func(F(name), function="octet_length", output_field=IntegerField()) for name in table.SEARCHED]
    rows: Any = SearchedQuerySet(table).unindexed().values_list("user_id", "pk", *sizes)
    passed = 0
    while found := _of_batch(list(rows[passed : passed + BATCH])):
        indexed = index_rows(table, found)
        passed += len(found) - indexed  # skip the locked rows
        yield indexed


def _of_batch(found: Sequence[tuple[Any, ...]]) -> list[tuple[int | None, int]]:
    """Return the first rows, up to `BATCH_BYTES` of text but at least one row."""
    batch: list[tuple[int | None, int]] = []
    size = 0
    for user_id, pk, *sizes in found:
        size += sum(sizes)
        if batch and size > BATCH_BYTES:
            break
        batch.append((user_id, pk))
    return batch


@transaction.atomic
def index_rows(table: type[Searched], found: Sequence[tuple[int | None, int]]) -> int:
    """Index rows whose words are outdated. Skip locked rows. Return the number of indexed rows.

    Args:
        found: the person and the primary key of each row, grouped by person.
    """
    owners = [name for name in ("user", "stream") if name in {field.name for field in table._meta.fields}]
    waiting: SearchedQuerySet[Any] = SearchedQuerySet(table).unindexed().only("pk", *owners, *table.SEARCHED)
    rows: list[Any] = []
    for user_id, theirs in groupby(found, itemgetter(0)):
        # In distributed tables, a query can only lock rows of one person.
        own = waiting.filter(user_id=user_id, pk__in=[pk for _user_id, pk in theirs])
        rows += own.select_for_update(skip_locked=True, no_key=True)
    if rows:
        sql = _WRITE_SQL.format(table=table._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(sql, [lexemes.VERSION, [row.pk for row in rows], [_words(row) for row in rows]])
        if table is not StoredItem:  # words of items are not counted
            _ask_for_counts(rows)
    return len(rows)


def _words(row: Any) -> str | None:
    """Return the search vector of the row. If it has no text, return None, so that the row keeps its words."""
    return row.search_vector if any(getattr(row, name) for name in row.SEARCHED) else None


def _ask_for_counts(rows: Sequence[Any]) -> None:
    """Queue counts for the owners of these rows. The jobs start after this transaction."""
    for user_id in dict.fromkeys(row.user_id for row in rows if row.user_id):
        Job.objects.request_fresh_run(CountWords.name, user_id=user_id, requested_by=NAME)
    for stream in MemoryStream.objects.filter(pk__in={row.stream_id for row in rows if not row.user_id}):
        Job.objects.request(CountWords.name, stream=stream, requested_by=NAME, force=True)


# --- turns that an earlier release archived without index rows ---

MAX_PEOPLE = 10_000  # maximum people per sweep of `index_archived`
BUSY_PAUSE = timedelta(minutes=1)  # pause while another process changes the archives of a session

# Uses two aggregates, because distributed tables don't allow a subquery for each session.
_WITHOUT_ROWS_SQL = """
SELECT user_id, session_id FROM (
    SELECT user_id, session_id, sum(turn_count) AS turns FROM sessions_app_archive
    WHERE %(user)s::bigint IS NULL OR user_id = %(user)s GROUP BY user_id, session_id
) archived LEFT JOIN (
    SELECT user_id, session_id, count(*) AS turns FROM sessions_app_message
    WHERE kind = 'archived' AND (%(user)s::bigint IS NULL OR user_id = %(user)s) GROUP BY user_id, session_id
) found USING (user_id, session_id)
WHERE archived.turns > COALESCE(found.turns, 0) ORDER BY user_id, session_id
"""


@dataclass(frozen=True)
class ArchivedInput(ProcessInput):
    left: int


class IndexArchived(Process[ArchivedInput, None]):
    name = "index_archived"
    title = "Index archived messages"
    output = "archived messages in searches"
    lane = Lane.BULK
    is_upkeep = True
    sweep_timing = Timing(daily_at=time(2, 30))

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Write the rows, one archive at a time.

        Raises:
            PostponeJob: another process is changing the archives of a session.
            ClaimLost: another worker took over the job, or the job was canceled.
            ArchiveError: a file is missing or damaged.
        """
        sessions = [session for _user, session in without_rows(job.user_id)]
        archives = Archive.objects.filter(session__in=sessions, user=job.user_id).order_by("pk")
        if not archives:
            return Skipped("all archived turns are already indexed")
        for number, archive in enumerate(archives):
            progress(number, len(archives))
            _add_rows(job, archive)
        return None

    def claim(self, job: Job) -> ArchivedInput:
        return ArchivedInput(None, sum(1 for _ in without_rows(job.user_id)))

    def think(self, input: ArchivedInput, engine: None, progress: Progress) -> None:
        """Do nothing: this process has no engine."""

    def commit(self, job: Job, input: ArchivedInput, answer: None) -> None:
        if not job.is_claimed():
            raise ClaimLost
        job.complete({"sessions_left": input.left})

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Queue a job for each person with archived turns that aren't indexed yet, unless an earlier one failed."""
        failed = set(Job.objects.filter(process=self.name, status=Job.Status.FAILED).values_list("user_id", flat=True))
        people = [pk for pk in dict.fromkeys(user for user, _session in without_rows(None)) if pk not in failed]
        for user_id in () if dry_run else people[:MAX_PEOPLE]:
            Job.objects.request(self.name, user_id=user_id, requested_by=self.name)
        return QueuedJobs(len(people[:MAX_PEOPLE]))


def without_rows(user_pk: int | None) -> Iterator[tuple[int, int]]:
    """Yield (user, session) primary keys of the sessions that have archived turns without rows.

    Args:
        user_pk: None for all people.
    """
    with connection.cursor() as cursor:
        cursor.execute(_WITHOUT_ROWS_SQL, {"user": user_pk})
        yield from cursor.fetchall()


@transaction.atomic
def _add_rows(job: Job, archive: Archive) -> None:
    """Restore the turns of an archive, index their words, and remove their texts again."""
    if Session.objects.claim_archive(archive.session_id) is None:
        raise PostponeJob(database_now() + BUSY_PAUSE, "The archives of a session are being changed.")
    current = Archive.objects.select_for_update(no_key=True).filter(pk=archive.pk).first()
    if current is None or _archived_in(current).count() >= current.turn_count:
        return
    try:
        with transaction.atomic():
            restore_turns(current)
            _index(current)
    except CannotRestore as error:  # a later message has the same external_id as one of these turns
        logger.warning("archived turns can't be found", archive=current.name, reason=str(error))
        return
    if not current.block_sequences:  # the archive's file is a single block
        current.block_sequences, current.block_offsets = [current.first_sequence], [0]
        current.save(update_fields=["block_sequences", "block_offsets"])
    if not job.is_claimed():
        raise ClaimLost


def _index(archive: Archive) -> None:
    turns = _of(archive).turns()
    while batch := list(turns.order_by("sequence").values_list("pk", flat=True)[:BATCH]):
        index_rows(Message, [(archive.user_id, pk) for pk in batch])
        turns.filter(pk__in=batch).archive()


def _archived_in(archive: Archive) -> MessageQuerySet:
    return _of(archive).archived()


def _of(archive: Archive) -> MessageQuerySet:
    """Return the messages of the archive's session and month within its range of sequence numbers."""
    month = datetime.combine(archive.month, time(), tzinfo=UTC)
    following = (month + timedelta(days=31)).replace(day=1)
    sequences = (archive.first_sequence, archive.last_sequence)
    own = Message.objects.filter(session=archive.session_id, user=archive.user_id, sequence__range=sequences)
    return own.filter(created_at__gte=month, created_at__lt=following)


# --- counts ---

GROWTH = 0.1  # minimum change since the last count, as a share of the texts
MAX_COUNTED_PEOPLE = 500  # maximum people per run

# The same texts that recall can find. The conditions match those of the search functions in the migrations.
_TEXTS_SQL = """
WITH texts AS MATERIALIZED (
    SELECT 'fact' AS kind, search_vector AS words FROM moments_app_memoryatom
    WHERE user_id IS NOT DISTINCT FROM %(user)s AND (%(user)s IS NOT NULL OR stream_id = %(stream)s)
      AND state NOT IN ('evicted', 'line')
    UNION ALL SELECT 'moment', search_vector FROM moments_app_moment WHERE user_id = %(user)s
    UNION ALL SELECT 'turn', search_vector FROM sessions_app_message
    WHERE user_id = %(user)s AND kind <> 'partition' AND role <> 'system' AND retracted_at IS NULL
)"""
_SIZE_SQL = f"{_TEXTS_SQL} SELECT count(*) FROM texts"  # noqa: S608
_COUNT_SQL = f"""{_TEXTS_SQL}, counted AS MATERIALIZED (
    SELECT stem, count(*) FILTER (WHERE kind = 'fact') AS facts, count(*) FILTER (WHERE kind = 'moment') AS moments,
        count(*) FILTER (WHERE kind = 'turn') AS turns
    FROM texts, unnest(tsvector_to_array(words)) stem GROUP BY stem
), gone AS (
    DELETE FROM moments_app_word word WHERE vocabulary_id = %(vocabulary)s
    AND NOT EXISTS (SELECT 1 FROM counted WHERE counted.stem = word.stem)
), sized AS (
    UPDATE moments_app_vocabulary SET counted_at = now(),
        (fact_count, fact_words, moment_count, moment_words, turn_count, turn_words) = (
            SELECT count(*) FILTER (WHERE kind = 'fact'), COALESCE(sum(length(words)) FILTER (WHERE kind = 'fact'), 0),
                count(*) FILTER (WHERE kind = 'moment'), COALESCE(sum(length(words)) FILTER (WHERE kind = 'moment'), 0),
                count(*) FILTER (WHERE kind = 'turn'), COALESCE(sum(length(words)) FILTER (WHERE kind = 'turn'), 0)
            FROM texts
        )
    WHERE id = %(vocabulary)s
)
INSERT INTO moments_app_word AS word (vocabulary_id, user_id, stem, facts, moments, turns)
SELECT %(vocabulary)s, %(user)s, stem, facts, moments, turns FROM counted
ON CONFLICT (vocabulary_id, stem) DO UPDATE
SET facts = excluded.facts, moments = excluded.moments, turns = excluded.turns
WHERE (word.facts, word.moments, word.turns) IS DISTINCT FROM (excluded.facts, excluded.moments, excluded.turns)
"""  # noqa: S608


@dataclass(frozen=True)
class CountInput(ProcessInput):
    user: int | None
    stream: int | None


class CountWords(Process[CountInput, None]):
    name = "count_words"
    title = "Count words"
    output = "new words in searches"
    lane = Lane.INDEX
    is_upkeep = True
    sweep_timing = Timing(minutes=1)

    def claim(self, job: Job) -> CountInput | Skipped:
        input = CountInput(None, job.user_id, job.stream_id if job.user_id is None else None)
        known = Vocabulary.objects.filter(user_id=input.user, stream_id=input.stream).first()
        before = known.fact_count + known.moment_count + known.turn_count if known else 0
        with connection.cursor() as cursor:
            cursor.execute(_SIZE_SQL, {"user": input.user, "stream": input.stream})
            [after] = cursor.fetchone() or [0]
        if not job.force and abs(after - before) < max(GROWTH * before, 1):
            _count_from_now(job.user_id)
            return Skipped("too few texts were added or removed since the last count")
        return input

    def think(self, input: CountInput, engine: None, progress: Progress) -> None:
        """Do nothing: this process has no engine."""

    def commit(self, job: Job, input: CountInput, answer: None) -> None:
        words = count(input).words.count()
        if not job.is_claimed():
            raise ClaimLost
        job.complete({"words": words})

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Queue a word count for each person whose sessions have grown."""
        grown = Session.objects.grown().order_by("user_id").values_list("user_id", flat=True).distinct()
        people = list(grown[:MAX_COUNTED_PEOPLE])
        for user_id in () if dry_run else people:
            Job.objects.request(self.name, user_id=user_id, requested_by=self.name)
        return QueuedJobs(len(people))


def count(input: CountInput) -> Vocabulary:
    """Count and store the words, in the caller's transaction."""
    insert_if_missing(Vocabulary(user_id=input.user, stream_id=input.stream))
    vocabulary = Vocabulary.objects.select_for_update().get(user_id=input.user, stream_id=input.stream)
    _count_from_now(input.user)
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_SQL, {"user": input.user, "stream": input.stream, "vocabulary": vocabulary.pk})
    return vocabulary


def _count_from_now(user_id: int | None) -> None:
    """Record the current size of the person's sessions, so that only further growth queues the next count."""
    grown = Session.objects.filter(user_id=user_id, message_count__gt=F("counted_message_count"))
    grown.update(counted_message_count=F("message_count"))
