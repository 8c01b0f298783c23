"""Data of other versions."""

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


@contextmanager
def partly_applied(app: str, name: str) -> Iterator[None]:
    """Pretend that one of the migrations that a squashed one replaces was not applied, until the block ends."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = %s AND name = %s RETURNING applied", [app, name])
        [applied] = cursor.fetchone()
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)", [app, name, applied]
            )
