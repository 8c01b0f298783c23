"""Raw SQL for reads that every request makes.

For these, the ORM takes longer to build a query, or to inspect the columns of a raw one, than PostgreSQL to execute it.
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
    """Return SQL for a time as a whole number. `time_of` parses it ten times as fast as psycopg parses a time."""
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


def time_of(microseconds: int) -> datetime:
    """Convert microseconds since 1970 to a time."""
    return EPOCH + timedelta(microseconds=microseconds)


def array_of(numbers: Iterable[float]) -> str:
    """Return a PostgreSQL array literal of numbers. The statement must declare its type.

    psycopg inspects each item of a list, which takes most of the time of a statement with hundreds of numbers.
    """
    return _array(map(str, numbers))


def array_of_texts(texts: Iterable[str]) -> str:
    """Return a PostgreSQL array literal of texts. The statement must declare its type."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return _array(f'"{text}"' for text in escaped)


def _array(items: Iterable[str]) -> str:
    return f"{{{','.join(items)}}}"


@cache
def columns(model: type[Model], table: str) -> str:
    """Return SQL for the columns of a model's table, in the order that `first` expects.

    Args:
        model: The table's model. It must not be `Searched`.
        table: The table's alias in the statement.
    """
    return ", ".join(f'{table}."{field.column}"' for field in model._meta.concrete_fields)


@cache
def _fields(model: type[Model]) -> tuple[list[str], list[tuple[int, Any]]]:
    """Return the names of a model's fields, and the positions and converters of those that need conversion."""
    fields = model._meta.concrete_fields
    converted = [(place, field.from_db_value) for place, field in enumerate(fields) if hasattr(field, "from_db_value")]
    return [field.attname for field in fields], converted


def read(model: type[M], sql: str, parameters: Mapping[str, Any] | Sequence[Any]) -> list[tuple[M, Sequence[Any]]]:
    """Return the rows of a query, each with the values of its other columns.

    Args:
        model: The model of the rows.
        sql: Selects `columns` first. If it has several statements, the last one returns the rows.
        parameters: The parameters of the statement.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        while cursor.nextset():  # skip to the result of the last statement
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
    """Return the first row of a query, with the values of its other columns. None if there is no row.

    Args:
        model: The model of the row.
        sql, parameters: As in `read`.
    """
    return next(iter(read(model, sql, parameters)), None)
