"""Rows that several tests of a module start with. They are created once, because that may take longer than a test."""

from collections.abc import Callable

from django.apps import apps
from django.db import connection, transaction

_FILLED_SQL = "SELECT tablename FROM pg_tables WHERE schemaname = 'fresh'"
_COLUMNS_SQL = """
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""


class KeptRows:
    """Copies of rows in a separate schema. Tables that `migrate` fills are not copied."""

    def __init__(self) -> None:
        self._put_back: dict[str, list[str]] = {}  # SQL by the name of the rows that it restores

    def have(self, name: str, make: Callable[[], object]) -> None:
        """Fill an empty database with the rows that `make` creates. After the first call, use their copies."""
        with transaction.atomic(), connection.cursor() as cursor:  # foreign keys are checked at the end
            for statement in self._put_back.get(name, ()):
                cursor.execute(statement)
        if name not in self._put_back:
            make()
            self._keep(name)

    def _keep(self, name: str) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            if not self._put_back:  # drop the copies of another module
                cursor.execute("DROP SCHEMA IF EXISTS kept CASCADE")
                cursor.execute("CREATE SCHEMA kept")
            cursor.execute(_FILLED_SQL)
            filled = {table for (table,) in cursor.fetchall()}
            models = [one for one in apps.get_models(include_auto_created=True) if one._meta.can_migrate(connection)]
            tables = {model._meta.db_table for model in models} - filled
            cursor.execute(" UNION ".join(f"SELECT '{table}' WHERE EXISTS (TABLE {table})" for table in tables))
            self._put_back[name] = []
            for (table,) in sorted(cursor.fetchall()):
                cursor.execute(_COLUMNS_SQL, [table])
                [columns] = cursor.fetchone()
                copy = f'kept."{name} {table}"'
                cursor.execute(f"CREATE TABLE {copy} AS SELECT {columns} FROM {table}")
                self._put_back[name].append(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {copy}")
