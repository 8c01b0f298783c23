"""Reading rows by statements of our own: for what each request reads.

The ORM takes longer to compose such a statement than PostgreSQL to execute it, and to look at the columns of a raw one.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model

M = TypeVar("M", bound=Model)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds_of(column: str) -> str:
    """Return SQL for a time as a whole number, which `time_of` reads in a tenth of what psycopg takes for a time."""
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


def time_of(microseconds: int) -> datetime:
    """Return the time so many microseconds after 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def array_of(numbers: Iterable[float]) -> str:
    """Return numbers as an array is written; the statement has to name its type, or a function that it calls.

    psycopg looks at each item of a list by itself, which takes longer than all else about a statement with hundreds.
    """
    return _array(map(str, numbers))


def array_of_texts(texts: Iterable[str]) -> str:
    """Return texts as an array is written, likewise."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return _array(f'"{text}"' for text in escaped)


def _array(items: Iterable[str]) -> str:
    return f"{{{','.join(items)}}}"


@cache
def columns(model: type[Model], table: str) -> str:
    """Return the columns of a model's table, as SQL, in the order in which `first` takes them.

    Args:
        model: of the table; none that is `Searched`.
        table: its name in the statement.
    """
    return ", ".join(f'{table}."{field.column}"' for field in model._meta.concrete_fields)


@cache
def _fields(model: type[Model]) -> tuple[list[str], list[tuple[int, Any]]]:
    """Return the names of a model's fields, and what converts values that the database gives in another form."""
    fields = model._meta.concrete_fields
    converted = [(place, field.from_db_value) for place, field in enumerate(fields) if hasattr(field, "from_db_value")]
    return [field.attname for field in fields], converted


def read(model: type[M], sql: str, parameters: Mapping[str, Any] | Sequence[Any]) -> list[tuple[M, Sequence[Any]]]:
    """Return the rows that a statement finds, each with what it selects besides.

    Args:
        model: of the rows.
        sql: selects `columns` first; of several statements in one message, the last one finds the rows.
        parameters: of the statement.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        while cursor.nextset():  # to what the last one finds
            pass
        found = cursor.fetchall()
    names, converted = _fields(model)
    rows = []
    for row in found:
        values = list(row[: len(names)])
        for place, convert in converted:
            values[place] = convert(values[place], None, connection)
        rows.append((model.from_db(connection.alias, names, values), row[len(names) :]))
    return rows


def first(model: type[M], sql: str, parameters: Mapping[str, Any] | Sequence[Any]) -> tuple[M, Sequence[Any]] | None:
    """Return the first row that a statement finds, and what it selects besides; None when it finds none.

    Args:
        model: of the row.
        sql, parameters: as `read` takes them.
    """
    return next(iter(read(model, sql, parameters)), None)
