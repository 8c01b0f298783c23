"""Databases beside the one of the run, on the same server."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def connected_to(database: str) -> Iterator[None]:
    """Let the one connection that everything knows lead there until the block ends."""
    own = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = database
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = own


@contextmanager
def empty_database() -> Iterator[None]:
    """Work on a database with nothing in it, which is gone afterwards."""
    name = f"test_other_{os.getpid()}"
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        with connected_to(name):
            yield
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")
