"""Writes many rows with one statement: COPY for new rows, and an UPDATE of some columns."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from django.db import connection
from django.db.models import Field, JSONField, Model

AT_ONCE = 1_000  # rows that are built before they are sent
Fields = tuple["Field[Any, Any]", ...]


def copy_rows(instances: Sequence[Model]) -> None:
    """Insert new rows of one table. The instances get no primary keys, and no signal is sent.

    Uses COPY, which is several times as fast as INSERT. PostgreSQL rejects COPY if row-level security limits the role.
    Then the rows are inserted with `bulk_create`. The caller must have executed a statement in the transaction before,
    because COPY skips the SQL that sets up a transaction.
    """
    model = type(instances[0])
    if _is_limited(model):
        model._default_manager.bulk_create(instances)
        return
    fields = _written(model)
    names = ", ".join(f'"{field.column}"' for field in fields)
    with connection.cursor() as cursor, cursor.copy(f'COPY "{model._meta.db_table}" ({names}) FROM STDIN') as copy:
        for first in range(0, len(instances), AT_ONCE):
            for row in _rows(instances[first : first + AT_ONCE], fields):
                copy.write_row(row)


def _rows(instances: Sequence[Model], fields: Fields) -> list[list[Any]]:
    """Return the values of instances.

    Converts many rows before it sends them, because stemming needs the processor's caches. Sending each row alone would
    make an import a tenth slower.
    """
    values, converted = attrgetter(*(field.attname for field in fields)), _converted(fields)
    rows = [list(values(instance)) for instance in instances]
    for place, convert in converted:
        for row in rows:
            row[place] = convert(row[place])
    return rows


def _is_limited(model: type[Model]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_security_active(%s)", [model._meta.db_table])
        [is_limited] = cursor.fetchone() or [False]
    return bool(is_limited)


@cache
def _written(model: type[Model]) -> Fields:
    return tuple(field for field in model._meta.concrete_fields if not (field.primary_key or field.generated))


@cache
def _converted(fields: Fields) -> list[tuple[int, Callable[[Any], Any]]]:
    """Return the positions of JSON fields, with the function that converts their values."""
    return [(place, _as_json) for place, field in enumerate(fields) if isinstance(field, JSONField)]


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value) if value != {} else "{}"  # the most common value


def update_rows(instances: Sequence[Model], names: Sequence[str]) -> None:
    """Update some columns of rows of one table with a single statement.

    Args:
        instances: The changed rows. Their primary key is `id`.
        names: The names of the fields. None may be a JSON field.
    """
    model = type(instances[0])
    options = model._meta
    by_name = {field.name: field for field in options.concrete_fields}
    fields = [by_name[name] for name in ("id", *names)]
    arrays = ", ".join(f"%s::{field.db_type(connection)}[]" for field in fields)
    columns = [f'"{field.column}"' for field in fields]
    assigned = ", ".join(f"{column} = new.{column}" for column in columns[1:])
    sql = (
        f'UPDATE "{options.db_table}" was SET {assigned} FROM unnest({arrays}) AS new ({", ".join(columns)}) '  # noqa: S608
        f"WHERE was.{columns[0]} = new.{columns[0]}"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [[getattr(instance, field.attname) for instance in instances] for field in fields])
