"""A second database on the installation's server, if it may be created. Otherwise, the embedded one is used."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql


@contextmanager
def temporary_database(url: str) -> Iterator[str]:
    """Create an empty database on another database's server, and drop it afterward.

    Args:
        url: The URL of the other database. Blank if there is none.

    Yields:
        The URL of the new database. Blank if it may not be created, for the embedded one.
    """
    name = f"memory_drill_{secrets.token_hex(4)}"
    if not url or not _create_database(url, name):
        yield ""
        return
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _create_database(url: str, name: str) -> bool:
    """Create a database with the extension. Return False if this is not allowed."""
    database = sql.Identifier(name)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(database))
            try:
                with psycopg.connect(urlunsplit(urlsplit(url)._replace(path=f"/{name}"))) as made:
                    made.execute("CREATE EXTENSION IF NOT EXISTS vector")
            except psycopg.Error:
                connection.execute(sql.SQL("DROP DATABASE {}").format(database))
                return False
    except psycopg.Error:
        return False
    return True
