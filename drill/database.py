"""A database to hurt beside that of the installation, where one may be made; else the embedded one serves."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql


@contextmanager
def beside(url: str) -> Iterator[str]:
    """Make an empty database on the server of another, and drop it afterwards.

    Args:
        url: of that other one; blank if there is none.

    Yields:
        The address of the new one; blank where none may be made, for the embedded one.
    """
    name = f"memory_drill_{secrets.token_hex(4)}"
    if not url or not _made(url, name):
        yield ""
        return
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _made(url: str, name: str) -> bool:
    """Make a database with the extension; return False if this is not allowed."""
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
