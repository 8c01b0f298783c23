"""Working as one of the database's roles."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def logged_in_as(role: str) -> Iterator[None]:
    """Have this test's connection be that of a process with a login in a role, and in no other."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION AUTHORIZATION {role}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET SESSION AUTHORIZATION")
