"""The rows of the database: all of them, and how many a transaction has read."""

from collections.abc import Sequence

from django.db import connection
from django.db.models import Model


def everything(but: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return every row of our tables and of the queue's, as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = sorted(name for (name,) in cursor if name not in but)
        found = {}
        for table in tables:
            cursor.execute(f"SELECT row_to_json(t)::text FROM {table} t")
            found[table] = sorted(text for (text,) in cursor)
    return found


def rows_read(model: type[Model]) -> int:
    """Return how many rows of a model the transaction has read so far, by index or sequentially."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = %s",
            [model._meta.db_table],
        )
        [count] = cursor.fetchone() or [0]
    return int(count)
