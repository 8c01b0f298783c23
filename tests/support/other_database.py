"""Additional databases for tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import override_settings

from tests.support.folders import data_folder


@contextmanager
def connected_to(database: str) -> Iterator[None]:
    """Use another database in the block."""
    own = connection.settings_dict["NAME"]
    _switch_to(database)
    try:
        yield
    finally:
        _switch_to(own)


def _switch_to(database: str) -> None:
    connection.close()
    connection.settings_dict["NAME"] = database
    ContentType.objects.clear_cache()  # the other database has other primary keys


@contextmanager
def another_database(name: str = "other", *, template: str = "template1") -> Iterator[str]:
    """Create a copy of a template, which is dropped afterward. Yield its name."""
    name = f"test_{name}_{os.getpid()}"
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield name
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def empty_database() -> Iterator[None]:
    """Use an empty database, which is dropped afterward."""
    with another_database() as name, connected_to(name):
        yield


@contextmanager
def new_server() -> Iterator[None]:
    """Use a database on a new server."""
    with (
        data_folder() as folder,
        override_settings(EMBEDDED_DATABASE_DIR=folder / "postgres"),
        connected_to("postgres"),
    ):
        yield
