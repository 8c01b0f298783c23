"""Raw SQL: reads that every request runs, and writes that the ORM can't express.

For these reads, PostgreSQL executes a query faster than the ORM builds it or inspects the columns of a raw query.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Field, JSONField, Model, QuerySet
from django.db.models.constants import OnConflict
from django.db.models.sql import InsertQuery

Row = TypeVar("Row", bound=Model)
Fields = tuple["Field[Any, Any]", ...]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BATCH_SIZE = 1_000  # number of rows to build before they are sent


# --- reads ---


def prepared_cursor() -> CursorWrapper:
    """Return a cursor for a statement that many requests run. The platform's backend prepares the statement."""
    cursor: CursorWrapper = getattr(connection, "prepared_cursor", connection.cursor)()
    return cursor


def microseconds_of(column: str) -> str:
    """Return SQL for a time in microseconds. `time_of` parses it ten times as fast as psycopg parses a time."""
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


def time_of(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def array_of(numbers: Iterable[float]) -> str:
    """Return a PostgreSQL array literal of numbers. The statement must declare its type."""
    # A list as the parameter would be slow, because psycopg inspects each of its items.
    return f"{{{','.join(map(str, numbers))}}}"


def array_of_texts(texts: Iterable[str]) -> str:
    """Return a PostgreSQL array literal of texts. The statement must declare its type."""
    quoted = ['"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts]
    return f"{{{','.join(quoted)}}}"


def on_one_line(sql: str) -> str:
    """Return a long statement on one line, because psycopg caches only statements of up to 4,096 characters."""
    return " ".join(sql.split())


@cache
def columns(model: type[Model], alias: str) -> str:
    """Return SQL for the columns of a model, which must not extend `Searched`, in the order that `read` expects."""
    return ", ".join(f'{alias}."{field.column}"' for field in model._meta.concrete_fields)


@cache
def _fields(model: type[Model]) -> tuple[list[str], list[tuple[int, Any]]]:
    """Return the names of a model's fields, and (position, converter) for each field that needs conversion."""
    fields = model._meta.concrete_fields
    converted = [(place, field.from_db_value) for place, field in enumerate(fields) if hasattr(field, "from_db_value")]
    return [field.attname for field in fields], converted


def read(
    model: type[Row], sql: str, parameters: Mapping[str, Any] | Sequence[Any], *, prepared: bool = False
) -> list[tuple[Row, Sequence[Any]]]:
    """Return the rows of a query as instances, each with the values of its additional columns.

    The query must select the `columns` of the model first. If `sql` has several statements, which can't be prepared,
    the last one is the query.
    """
    with prepared_cursor() if prepared else connection.cursor() as cursor:
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


def read_first(
    model: type[Row], sql: str, parameters: Mapping[str, Any] | Sequence[Any], *, prepared: bool = False
) -> tuple[Row, Sequence[Any]] | None:
    return next(iter(read(model, sql, parameters, prepared=prepared)), None)


# --- inserts ---


def insert_if_missing(instance: Model) -> bool:
    """Insert a row, and set its primary key. Return False instead if it would violate a unique constraint.

    If another transaction is adding the same row, wait for it.
    """
    if not (added := _insert_missing([instance], [])):
        return False
    [(instance.pk,)], instance._state.adding = added, False
    return True


def insert_missing(instances: Sequence[Row], *, unique_fields: Sequence[str]) -> list[Row]:
    """Insert rows of one table with one statement. Skip rows that violate a unique constraint.

    If two of them conflict with each other, the first one is added.

    Args:
        unique_fields: Fields whose values together are different in each row.

    Returns:
        The rows that this call added, in the same order, with their primary keys.
    """
    if not instances:
        return []
    keys = [tuple(getattr(instance, name) for name in unique_fields) for instance in instances]
    added = {tuple(key): pk for pk, *key in _insert_missing(instances, unique_fields)}
    missing = [(instance, added[key]) for instance, key in zip(instances, keys, strict=True) if key in added]
    for instance, pk in missing:
        instance.pk, instance._state.adding = pk, False
    return [instance for instance, _pk in missing]


def _insert_missing(instances: Sequence[Model], returned: Sequence[str]) -> list[tuple[Any, ...]]:
    model = type(instances[0])
    options = model._meta
    query = InsertQuery(model, on_conflict=OnConflict.IGNORE)
    query.insert_values(_written(model), list(instances))
    compiler = query.get_compiler(connection.alias)
    compiler.returning_fields = [options.pk, *(options.get_field(name) for name in returned)]
    [(sql, parameters)] = compiler.as_sql()
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def insert_raw(instances: Sequence[Model]) -> None:
    """Insert rows and set their primary keys. Keep the values of `auto_now` fields, and send no signals."""
    if not instances:
        return
    model = type(instances[0])
    query = InsertQuery(model)
    query.insert_values(_written(model), list(instances), raw=True)
    rows = query.get_compiler(connection.alias).execute_sql([model._meta.pk])
    for instance, (pk,) in zip(instances, rows, strict=True):
        instance.pk, instance._state.adding = pk, False


def insert_missing_raw(instances: Sequence[Model]) -> None:
    """Insert rows like `insert_raw`, but keep their primary keys. Skip rows that violate a unique constraint."""
    if not instances:
        return
    query = InsertQuery(type(instances[0]), on_conflict=OnConflict.IGNORE)
    fields = [field for field in type(instances[0])._meta.concrete_fields if not field.generated]
    query.insert_values(fields, list(instances), raw=True)
    query.get_compiler(connection.alias).execute_sql()


# --- many rows at once ---


def copy_rows(instances: Sequence[Model]) -> None:
    """Insert rows of one table. Sets no primary keys, and sends no signals.

    Uses COPY, which is several times as fast as INSERT. If row-level security limits the role, PostgreSQL rejects COPY,
    so `bulk_create` is used instead. The caller must have executed a statement in the transaction, because COPY skips
    the SQL that sets up a transaction (`transactions.py`).
    """
    model = type(instances[0])
    if _is_limited(model):
        model._default_manager.bulk_create(instances)
        return
    fields = _written(model)
    names = ", ".join(f'"{field.column}"' for field in fields)
    with connection.cursor() as cursor, cursor.copy(f'COPY "{model._meta.db_table}" ({names}) FROM STDIN') as copy:
        for first in range(0, len(instances), BATCH_SIZE):
            for row in _rows(instances[first : first + BATCH_SIZE], fields):
                copy.write_row(row)


def _rows(instances: Sequence[Model], fields: Fields) -> list[list[Any]]:
    """Return the column values of each instance, for COPY."""
    values, converted = attrgetter(*(field.attname for field in fields)), _converted(fields)
    # Convert many rows before sending any, because stemming is faster with warm CPU caches. This makes an import a
    # tenth faster.
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
    return [(place, _as_json) for place, field in enumerate(fields) if isinstance(field, JSONField)]


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value) if value != {} else "{}"  # the most common value


def update_rows(instances: Sequence[Model], names: Sequence[str]) -> None:
    """Update fields of several rows of one table with one query.

    None of the fields may be a JSON field. The primary key must be `id`.
    """
    model = type(instances[0])
    options = model._meta
    by_name = {field.name: field for field in options.concrete_fields}
    fields = [by_name[name] for name in ("id", *names)]
    arrays = ", ".join(f"%s::{field.db_type(connection)}[]" for field in fields)
    columns = [f'"{field.column}"' for field in fields]
    assigned = ", ".join(f"{column} = new.{column}" for column in columns[1:])
    sql = (
        f'UPDATE "{options.db_table}" was SET {assigned} '  # noqa: S608
        f"FROM unnest({arrays}) AS new ({', '.join(columns)}) WHERE was.{columns[0]} = new.{columns[0]}"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [[getattr(instance, field.attname) for instance in instances] for field in fields])


# --- locks ---


def lock_rows(rows: QuerySet[Any]) -> None:
    """Lock rows of a table until the transaction ends, in the order of their primary keys, to avoid deadlocks.

    Other transactions can still add references to the rows.
    """
    list(rows.order_by("pk").select_for_update(no_key=True).values_list("pk"))
