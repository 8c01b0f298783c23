"""All rows of the database, to check that nothing else changed."""

from collections.abc import Sequence

from django.db import connection


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
