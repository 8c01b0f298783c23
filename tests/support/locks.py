"""Locks that another connection holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from sessions_app.models import Session
from tests.support.processes import database_url


@contextmanager
def row_locked(session: Session) -> Iterator[psycopg.Connection[Any]]:
    """Hold the lock of a session's row. The connection may release it earlier."""
    with psycopg.connect(database_url()) as other:
        other.execute("SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE", [session.pk])
        yield other


@contextmanager
def table_locked(table: str) -> Iterator[None]:
    """Lock a table against reads."""
    with psycopg.connect(database_url()) as other:
        other.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(table)))
        yield
