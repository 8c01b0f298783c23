"""`index_words`: texts whose words are not as this version makes them are indexed again, behind the work.

Those that an older version wrote, and what came past the application: rows that a restore, an import or a statement by
hand put into a table. Each is found by what it was indexed under before until its turn comes. A batch is a short
transaction that passes over rows in use, so a run can be stopped, and two may run at a time. Whose words changed is
counted anew.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.apps import apps
from django.db import connection, transaction

from moments_app.models import Job, MemoryStream
from moments_app.recall import count_words
from sessions_app import lexemes
from sessions_app.models.searched import Searched, SearchedQuerySet

NAME = "index_words"
BATCH = 500
SECONDS = 40.0  # a run

_WRITE_SQL = """
UPDATE {table} SET search_vector = COALESCE(made.words::tsvector, search_vector), search_version = %s
FROM unnest(%s::bigint[], %s::text[]) made (id, words) WHERE {table}.id = made.id
"""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Indexed:
    """What a run did.

    Args:
        rows: whose words were made anew; with `dry_run` those that wait.
        is_done: none is left.
    """

    rows: int
    is_done: bool


def index_words(*, dry_run: bool = False, seconds: float | None = SECONDS) -> Indexed:
    """Indexes what is not indexed as it should be.

    Args:
        dry_run: only count.
        seconds: after which a run ends, with a batch; None: when all is done.
    """
    if dry_run:
        waiting = sum(SearchedQuerySet(table).unindexed().count() for table in tables())
        return Indexed(waiting, not waiting)
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    rows = 0
    for table in tables():
        while batch := _index_batch(table):
            rows += batch
            if time.monotonic() > until:
                logger.info("words indexed", rows=rows, is_done=False)
                return Indexed(rows, is_done=False)
    if rows:
        logger.info("words indexed", rows=rows, is_done=True)
    return Indexed(rows, is_done=True)


def tables() -> Iterator[type[Searched]]:
    """Those that are searched by words."""
    return (model for model in apps.get_models() if issubclass(model, Searched))


@transaction.atomic
def _index_batch(table: type[Searched]) -> int:
    """By the index of such rows, which has a person's together."""
    owners = [name for name in ("user", "stream") if name in {field.name for field in table._meta.fields}]
    rows: list[Any] = list(
        SearchedQuerySet(table)
        .unindexed()
        .only("pk", *owners, *table.SEARCHED)
        .select_for_update(skip_locked=True, no_key=True)[:BATCH]
    )
    if rows:
        sql = _WRITE_SQL.format(table=table._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(sql, [lexemes.VERSION, [row.pk for row in rows], [_words(row) for row in rows]])
        _ask_for_counts(rows)
    return len(rows)


def _words(row: Any) -> str | None:
    """None where there is no text: it may have been taken away, and the row is still found by the words it had."""
    return row.search_vector if any(getattr(row, name) for name in row.SEARCHED) else None


def _ask_for_counts(rows: Sequence[Any]) -> None:
    """Of all whose texts these are, in a run that begins after this transaction."""
    for user_id in dict.fromkeys(row.user_id for row in rows if row.user_id):
        Job.objects.request_anew(count_words.NAME, user_id=user_id, requested_by=NAME)
    for stream in MemoryStream.objects.filter(pk__in={row.stream_id for row in rows if not row.user_id}):
        Job.objects.request(count_words.NAME, stream=stream, requested_by=NAME, force=True)
