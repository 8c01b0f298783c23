"""The database as `migrate` leaves it, given back after each test that commits.

Django would empty every table and let the receivers of `migrate` fill in permissions, prompts and schedules anew. A
test writes few rows to few tables: to delete these, and to put back what it changed of the rows that were there, takes
a twentieth of the time.
"""

from django.apps import apps
from django.db import connection, transaction

SMALL = 81_920  # bytes: an empty table that was never vacuumed is planned for as if it had ten pages

_LARGE_SQL = "SELECT oid::regclass::text FROM pg_class WHERE oid = ANY(%s::regclass[]) AND pg_relation_size(oid) > %s"
_INDEXES_SQL = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = ANY(%s::regclass[])"


class FreshDatabase:
    """Notes, when it is made, which rows and indexes there are; the rows in a schema of their own."""

    def __init__(self) -> None:
        models = [model for model in apps.get_models(include_auto_created=True) if model._meta.can_migrate(connection)]
        self._tables = sorted({model._meta.db_table for model in models})
        self._indexes = _listed(_INDEXES_SQL, self._tables)
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA IF EXISTS fresh CASCADE; CREATE SCHEMA fresh")
        self._restore_sql = "".join(map(_keep, self._tables))

    @transaction.atomic
    def restore(self) -> None:
        """Every table has again the rows and the indexes that it had."""
        with connection.cursor() as cursor:
            # A server that a test ran may still write behind what it served: it waits, and finds nobody.
            cursor.execute("LOCK TABLE sessions_app_userprofile")
            if large := _listed(_LARGE_SQL, self._tables, SMALL):  # its dead rows would slow every later test down
                cursor.execute(f"TRUNCATE {', '.join(large)} CASCADE")
            cursor.execute(self._restore_sql)
            if added := _listed(_INDEXES_SQL, self._tables) - self._indexes:
                cursor.execute(f"SET CONSTRAINTS ALL IMMEDIATE; DROP INDEX {', '.join(added)}")


def _keep(table: str) -> str:
    """Keeps the rows of a table, if it has any; returns the SQL that brings it back to them."""
    if not _listed(f"SELECT 1 FROM {table} LIMIT 1"):
        return f"DELETE FROM {table};"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE fresh.{table} AS TABLE {table}")
    return f"""
        DELETE FROM {table} WHERE id IN (SELECT id FROM (TABLE {table} EXCEPT TABLE fresh.{table}) changed);
        INSERT INTO {table} (TABLE fresh.{table} EXCEPT TABLE {table});
    """


def _listed(sql: str, *parameters: list[str] | int) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return {value for (value,) in cursor.fetchall()}
