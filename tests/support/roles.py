"""Use a connection as one of the database's roles."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def logged_in_as(role: str) -> Iterator[None]:
    """Use the test's connection like a process whose login has only this role."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION AUTHORIZATION {role}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET SESSION AUTHORIZATION")
