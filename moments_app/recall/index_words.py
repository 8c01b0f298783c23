"""`index_words`: index texts in the background whose words are missing or outdated.

These are texts that an older version indexed, texts that a large append left for later, and rows that the application
didn't write, for example rows of a restore or a manual statement. Until a text is indexed again, searches find it by
its former words. Each batch is a short transaction that skips locked rows, so a run can be stopped, and two runs can
overlap. Changed words are then recounted.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import structlog
from django.apps import apps
from django.db import connection, transaction
from django.db.models import F, Func, IntegerField

from moments_app.models import Job, MemoryStream, StoredItem
from moments_app.recall.count_words import CountWords
from sessions_app import lexemes
from sessions_app.models.searched import Searched, SearchedQuerySet

NAME = "index_words"
BATCH = 500
BATCH_BYTES = 1_000_000  # maximum text of a batch, unless it has only one row
SECONDS = 40.0  # per run

_WRITE_SQL = """
UPDATE {table} SET search_vector = COALESCE(made.words::tsvector, search_vector), search_version = %s
FROM unnest(%s::bigint[], %s::text[]) made (id, words) WHERE {table}.id = made.id
"""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Indexed:
    """The result of a run.

    Args:
        rows: the number of indexed rows; with `dry_run`, the number of waiting rows.
        is_done: whether no row is left.
    """

    rows: int
    is_done: bool

    def __str__(self) -> str:
        return f"rows: {self.rows}, {'none waits' if self.is_done else 'more wait'}"


def index_words(*, dry_run: bool = False, seconds: float | None = SECONDS) -> Indexed:
    """Index texts whose words this version has not indexed yet.

    Args:
        seconds: the time after which the run stops, at the end of a batch; None: run until no row is left.
    """
    if dry_run:
        waiting = sum(SearchedQuerySet(table).unindexed().count() for table in tables())
        return Indexed(waiting, not waiting)
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    rows = 0
    for table in tables():
        for batch in _batches(table):
            rows += batch
            if time.monotonic() > until:
                logger.info("words indexed", rows=rows, is_done=False)
                return Indexed(rows, is_done=False)
    if rows:
        logger.info("words indexed", rows=rows, is_done=True)
    return Indexed(rows, is_done=True)


def tables() -> Iterator[type[Searched]]:
    """Yield the models that are searched by words."""
    return (model for model in apps.get_models() if issubclass(model, Searched))


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
    """Return the person and the primary key of the first rows, up to `BATCH_BYTES` of text, but at least one row."""
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
    """Index rows whose words are outdated. Skip locked rows.

    Args:
        found: the person and the primary key of each row, grouped by person.

    Returns:
        The number of indexed rows.
    """
    owners = [name for name in ("user", "stream") if name in {field.name for field in table._meta.fields}]
    waiting: SearchedQuerySet[Any] = SearchedQuerySet(table).unindexed().only("pk", *owners, *table.SEARCHED)
    rows: list[Any] = []
    for user_id, theirs in groupby(
        found, itemgetter(0)
    ):  # distributed tables can only lock the rows of one person at a time
        own = waiting.filter(user_id=user_id, pk__in=[pk for _user_id, pk in theirs])
        rows += own.select_for_update(skip_locked=True, no_key=True)
    if rows:
        sql = _WRITE_SQL.format(table=table._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(sql, [lexemes.VERSION, [row.pk for row in rows], [_words(row) for row in rows]])
        if table is not StoredItem:  # items are not counted
            _ask_for_counts(rows)
    return len(rows)


def _words(row: Any) -> str | None:
    """Return the row's search vector if the row has text. Without text, return None, so the row keeps its words."""
    return row.search_vector if any(getattr(row, name) for name in row.SEARCHED) else None


def _ask_for_counts(rows: Sequence[Any]) -> None:
    """Queue counts for the owners of these rows. The counts start after this transaction."""
    for user_id in dict.fromkeys(row.user_id for row in rows if row.user_id):
        Job.objects.request_again(CountWords.name, user_id=user_id, requested_by=NAME)
    for stream in MemoryStream.objects.filter(pk__in={row.stream_id for row in rows if not row.user_id}):
        Job.objects.request(CountWords.name, stream=stream, requested_by=NAME, force=True)
