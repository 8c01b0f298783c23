"""Writing many rows of a table by one statement: new ones by COPY, and columns of rows that are there."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from django.db import connection
from django.db.models import Field, JSONField, Model

AT_ONCE = 1_000  # rows that are made before they are sent
Fields = tuple["Field[Any, Any]", ...]


def copy_rows(instances: Sequence[Model]) -> None:
    """Insert new rows of one table; the instances get no primary keys, and no signal is sent.

    By COPY, which PostgreSQL reads several times as quickly as an INSERT. It takes none from a process that sees only
    some of the rows; for such a process they are inserted as usual. Something has to have been done in the transaction
    before, for only that opens it.
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

    Of many at a time, because what makes a text's words needs the processor's caches for itself: an import takes a
    tenth less than if each row were sent when it is made.
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
    """Return what converts values of fields for the database, with their places."""
    return [(place, _as_json) for place, field in enumerate(fields) if isinstance(field, JSONField)]


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value) if value != {} else "{}"  # which most have


def update_rows(instances: Sequence[Model], names: Sequence[str]) -> None:
    """Write some columns of rows of one table, by one statement whatever their number.

    Args:
        instances: the rows, as they are to be; their primary key is `id`.
        names: of the fields, none of them JSON.
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
