"""Restores the database to its state after `migrate`, after each test that commits.

Django would empty every table, and recreate permissions, prompts and schedules by the receivers of `migrate`. A test
writes only a few rows. Deleting these, and restoring the rows that it changed, takes a twentieth of the time.

The planner's statistics decide on query plans, so they are restored too. Only tests gather statistics, and afterward
there are none.
"""

from collections.abc import Iterable

import psycopg
from django.apps import apps
from django.db import connection, connections

from tests.support.kept_connection import KeptConnection

SMALL = 81_920  # bytes; the planner assumes ten pages for an empty table that was never vacuumed

# PostgreSQL plans these functions only once. They list large tables, analyzed tables, and new indexes.
_LARGE_SQL = """
CREATE FUNCTION fresh.large() RETURNS SETOF text STABLE LANGUAGE plpgsql AS $$BEGIN
    RETURN QUERY SELECT oid::regclass::text FROM pg_class WHERE oid = ANY({}) AND pg_relation_size(oid) > {};
END$$
"""
_ANALYZED_SQL = """
CREATE FUNCTION fresh.analyzed(tables oid[]) RETURNS SETOF text STABLE LANGUAGE plpgsql AS $$BEGIN
    RETURN QUERY SELECT oid::regclass::text FROM pg_class WHERE oid = ANY(tables) AND reltuples >= 0;
END$$
"""
_ADDED_SQL = """
CREATE FUNCTION fresh.added() RETURNS SETOF text STABLE LANGUAGE plpgsql AS $$BEGIN
    RETURN QUERY SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = ANY({}) AND indexrelid <> ALL({});
END$$
"""
_FORGET_SQL = "DELETE FROM pg_statistic WHERE starelid = ANY(%s::regclass[])"
_INDEXES_SQL = "SELECT indexrelid::oid::text FROM pg_index WHERE indrelid = ANY({})"
# Every change of a table's rows changes their number or the highest `xmin`.
_STATE_SQL = "SELECT format('%s of %s', count(*), max(xmin::text::bigint)) FROM {}"


class FreshDatabase:
    """Records the rows and indexes when it is created. It copies the rows to a separate schema.

    It has its own connection, which stays open, because a new one would first load the catalogs, which takes longer
    than everything else.

    Args:
        kept: Keeps the connection of a test. None if it is closed.
    """

    NAME = "fresh"  # of the connection and the schema

    def __init__(self, kept: KeptConnection | None = None) -> None:
        self._kept = kept
        models = [model for model in apps.get_models(include_auto_created=True) if model._meta.can_migrate(connection)]
        self._tables = sorted({model._meta.db_table for model in models})
        self._to_forget = "'{}'"  # tables whose statistics `restore` resets
        self._connection = _connected(self.NAME)
        self._connection.execute("DROP SCHEMA IF EXISTS fresh CASCADE")
        self._connection.execute("CREATE SCHEMA fresh")
        self._connection.execute("CREATE TABLE fresh.state (name text PRIMARY KEY, is_now text)")
        self._connection.execute(_function(map(self._keep, self._tables)))
        oids = self._oids(self._tables)
        indexes = self._listed(_INDEXES_SQL.format(oids))
        self._connection.execute(_LARGE_SQL.format(oids, SMALL))
        self._connection.execute(_ANALYZED_SQL)
        self._connection.execute(_ADDED_SQL.format(oids, f"'{{{','.join(indexes)}}}'::oid[]"))

    def forget_statistics(self) -> None:
        """Turn off autovacuum, so only tests gather statistics, which `restore` resets."""
        for table in self._tables:
            self._connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        filled = {table for table in self._tables if self._listed(f"SELECT 1 FROM {table} LIMIT 1")}
        self._connection.execute(f"ANALYZE {', '.join(filled)}")
        self._to_forget = self._oids({*self._tables} - filled)
        self.restore()

    def close(self) -> None:
        """Close the connections."""
        if self._kept:
            self._kept.close()
        self._connection.close()

    def restore(self) -> None:
        """Restore the rows and indexes of every table."""
        if self._kept:
            self._kept.keep()
        connections.close_all()  # otherwise, this would wait for an open transaction of the test
        with self._connection.transaction():
            # A server of the test may still write buffered items. It waits here, and then finds no person.
            self._connection.execute("LOCK TABLE sessions_app_userprofile")
            large = self._listed("SELECT fresh.large()")  # their dead rows would slow down all later tests
            analyzed = self._listed(f"SELECT fresh.analyzed({self._to_forget})")
            if emptied := large | analyzed:
                self._connection.execute(f"TRUNCATE {', '.join(emptied)} CASCADE")
                self._connection.execute(_FORGET_SQL, [list(analyzed)])
            self._connection.execute("SELECT fresh.restore()")
            if added := self._listed("SELECT fresh.added()"):
                self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                for index in added:  # for distributed tables, a statement can drop only one
                    self._connection.execute(f"DROP INDEX {index}")

    def _keep(self, table: str) -> str:
        """Copy the rows of a table, if it has any. Return the SQL that restores them."""
        if not self._listed(f"SELECT 1 FROM {table} LIMIT 1"):
            return f"DELETE FROM {table};"
        self._connection.execute(f"CREATE TABLE fresh.{table} AS TABLE {table}")
        self._connection.execute("INSERT INTO fresh.state VALUES (%s, '')", [table])
        state = _STATE_SQL.format(table)
        return f"""
            IF ({state}) <> (SELECT is_now FROM fresh.state WHERE name = '{table}') THEN
                DELETE FROM {table} WHERE id IN (SELECT id FROM (TABLE {table} EXCEPT TABLE fresh.{table}) changed);
                INSERT INTO {table} (TABLE fresh.{table} EXCEPT TABLE {table});
                UPDATE fresh.state SET is_now = ({state}) WHERE name = '{table}';
            END IF;
        """

    def _oids(self, tables: Iterable[str]) -> str:
        """Return SQL for the tables' object ids, because looking up names takes longer."""
        names = self._connection.execute("SELECT %s::regclass[]::oid[]::text", [list(tables)])
        return f"'{names.fetchone()[0]}'::oid[]"  # type: ignore[index]

    def _listed(self, sql: str) -> set[str]:
        return {value for (value,) in self._connection.execute(sql)}


def _connected(name: str) -> psycopg.Connection:
    """Return a connection to the test database outside of Django, so that Django doesn't close it."""
    wrapper = connection.copy()
    wrapper.connect()
    made: psycopg.Connection = wrapper.connection
    made.execute(f"SET application_name = {name}")
    return made


def _function(statements: Iterable[str]) -> str:
    """Return the SQL of a function, whose statements are planned only once."""
    return f"CREATE FUNCTION fresh.restore() RETURNS void LANGUAGE plpgsql AS $$BEGIN {''.join(statements)} END$$"
