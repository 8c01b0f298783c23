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

# PostgreSQL plans these functions once. They list large tables, analyzed tables, and new indexes.
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
        self._to_forget = "'{}'"  # tables whose statistics `restore` forgets
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
        """Keep everybody but a test from gathering statistics, and have `restore` forget them."""
        for table in self._tables:
            self._connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        filled = {table for table in self._tables if self._listed(f"SELECT 1 FROM {table} LIMIT 1")}
        self._connection.execute(f"ANALYZE {', '.join(filled)}")
        self._to_forget = self._oids({*self._tables} - filled)
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
            large = self._listed("SELECT fresh.large()")  # its dead rows would slow every later test down
            analyzed = self._listed(f"SELECT fresh.analyzed({self._to_forget})")
            if emptied := large | analyzed:
                self._connection.execute(f"TRUNCATE {', '.join(emptied)} CASCADE")
                self._connection.execute(_FORGET_SQL, [list(analyzed)])
            self._connection.execute("SELECT fresh.restore()")
            if added := self._listed("SELECT fresh.added()"):
                self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                for index in added:  # of a distributed table only one goes by a statement
                    self._connection.execute(f"DROP INDEX {index}")

    def _keep(self, table: str) -> str:
        """Keep the rows of a table, if it has any; return the SQL that brings it back to them."""
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
        """Return SQL for the tables' numbers: to look their names up takes longer."""
        names = self._connection.execute("SELECT %s::regclass[]::oid[]::text", [list(tables)])
        return f"'{names.fetchone()[0]}'::oid[]"  # type: ignore[index]

    def _listed(self, sql: str) -> set[str]:
        return {value for (value,) in self._connection.execute(sql)}


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
