"""Data of a newer version."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def newer_version() -> Iterator[None]:
    """Record a migration in the database that this version doesn't have, until the block ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('sessions_app', '9999_later', now())"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM django_migrations WHERE name = '9999_later'")
