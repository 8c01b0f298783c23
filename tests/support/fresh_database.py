"""The database as `migrate` leaves it, given back after each test that commits.

Django would empty every table and let the receivers of `migrate` fill in permissions, prompts and schedules again. A
test writes few rows to few tables: to delete these, and to put back what it changed of the rows that were there, takes
a twentieth of the time.

What the planner knows of a table decides what it does, so that is given back too: nobody but a test gathers statistics,
and after it there are none.
"""

from collections.abc import Iterable

import psycopg
from django.apps import apps
from django.db import connection, connections

from tests.support.kept_connection import KeptConnection

SMALL = 81_920  # bytes: an empty table that was never vacuumed is planned for as if it had ten pages

_LARGE_SQL = "SELECT oid::regclass::text FROM pg_class WHERE oid = ANY(%s::regclass[]) AND pg_relation_size(oid) > %s"
_ANALYZED_SQL = "SELECT oid::regclass::text FROM pg_class WHERE oid = ANY(%s::regclass[]) AND reltuples >= 0"
_FORGET_SQL = "DELETE FROM pg_statistic WHERE starelid = ANY(%s::regclass[])"
_INDEXES_SQL = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = ANY(%s::regclass[])"


class FreshDatabase:
    """Notes, when it is made, which rows and indexes there are; the rows in a schema of their own.

    It has a connection of its own, which stays open: a new one would first have to learn what tables and indexes there
    are, and that takes longer than the rest.

    Args:
        kept: keeps the connection that a test leaves; None where it is closed.
    """

    NAME = "fresh"  # of the connection, and of the schema

    def __init__(self, kept: KeptConnection | None = None) -> None:
        self._kept = kept
        models = [model for model in apps.get_models(include_auto_created=True) if model._meta.can_migrate(connection)]
        self._tables = sorted({model._meta.db_table for model in models})
        self._connection = _connected(self.NAME)
        self._indexes = self._listed(_INDEXES_SQL, self._tables)
        self._to_forget: list[str] = []
        self._connection.execute("DROP SCHEMA IF EXISTS fresh CASCADE")
        self._connection.execute("CREATE SCHEMA fresh")
        self._connection.execute(_function(map(self._keep, self._tables)))

    def forget_statistics(self) -> None:
        """Keep everybody but a test from gathering statistics, and have `restore` forget them."""
        for table in self._tables:
            self._connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        filled = {table for table in self._tables if self._listed(f"SELECT 1 FROM {table} LIMIT 1")}
        self._connection.execute(f"ANALYZE {', '.join(filled)}")
        self._to_forget = sorted({*self._tables} - filled)
        self.restore()

    def close(self) -> None:
        """Let go of the connections."""
        if self._kept:
            self._kept.close()
        self._connection.close()

    def restore(self) -> None:
        """Give every table the rows and the indexes again that it had."""
        if self._kept:
            self._kept.keep()
        connections.close_all()  # a transaction that a test left open would be waited for
        with self._connection.transaction():
            # A server that a test ran may still write behind what it served: it waits, and finds nobody.
            self._connection.execute("LOCK TABLE sessions_app_userprofile")
            large = self._listed(_LARGE_SQL, self._tables, SMALL)  # its dead rows would slow every later test down
            analyzed = self._listed(_ANALYZED_SQL, self._to_forget)
            if emptied := large | analyzed:
                self._connection.execute(f"TRUNCATE {', '.join(emptied)} CASCADE")
                self._connection.execute(_FORGET_SQL, [list(analyzed)])
            self._connection.execute("SELECT fresh.restore()")
            if added := self._listed(_INDEXES_SQL, self._tables) - self._indexes:
                self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                for index in added:  # of a distributed table only one goes by a statement
                    self._connection.execute(f"DROP INDEX {index}")

    def _keep(self, table: str) -> str:
        """Keep the rows of a table, if it has any; return the SQL that brings it back to them."""
        if not self._listed(f"SELECT 1 FROM {table} LIMIT 1"):
            return f"DELETE FROM {table};"
        self._connection.execute(f"CREATE TABLE fresh.{table} AS TABLE {table}")
        return f"""
            DELETE FROM {table} WHERE id IN (SELECT id FROM (TABLE {table} EXCEPT TABLE fresh.{table}) changed);
            INSERT INTO {table} (TABLE fresh.{table} EXCEPT TABLE {table});
        """

    def _listed(self, sql: str, *parameters: list[str] | int) -> set[str]:
        return {value for (value,) in self._connection.execute(sql, parameters)}


def _connected(name: str) -> psycopg.Connection:
    """Return a connection to the database of the tests that Django doesn't know, and so doesn't close."""
    wrapper = connection.copy()
    wrapper.connect()
    made: psycopg.Connection = wrapper.connection
    made.execute(f"SET application_name = {name}")
    return made


def _function(statements: Iterable[str]) -> str:
    """Return the SQL of a function, whose statements are planned once."""
    return f"CREATE FUNCTION fresh.restore() RETURNS void LANGUAGE plpgsql AS $$BEGIN {''.join(statements)} END$$"
