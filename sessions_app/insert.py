"""Inserts that the ORM can't express: some report which rows they added, and one keeps the given times."""

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model
from django.db.models.constants import OnConflict
from django.db.models.sql import InsertQuery

Row = TypeVar("Row", bound=Model)


def insert_unless_there(instance: Model) -> bool:
    """Insert a new row, unless a unique constraint shows that it exists.

    If another transaction is adding the same row, wait for it.

    Returns:
        Whether this call added the row. If so, the instance has its primary key.
    """
    if not (added := _insert_missing([instance], [])):
        return False
    [(instance.pk,)], instance._state.adding = added, False
    return True


def insert_those_missing(instances: Sequence[Row], *, named_by: str) -> list[Row]:
    """Insert new rows of one table with one statement. Skip rows that violate a unique constraint.

    Args:
        instances: The rows. Of two equal rows, the first is added.
        named_by: A field whose value is different in each new row.

    Returns:
        The rows that this call added, in the same order. They have their primary keys.
    """
    if not instances:
        return []
    added = {name: pk for pk, name in _insert_missing(instances, [named_by])}
    missing = [instance for instance in instances if getattr(instance, named_by) in added]
    for instance in missing:
        instance.pk, instance._state.adding = added[getattr(instance, named_by)], False
    return missing


def _insert_missing(instances: Sequence[Model], returned: Sequence[str]) -> list[tuple[Any, ...]]:
    """Insert the missing rows. Return their primary keys and these fields."""
    options = type(instances[0])._meta
    query = InsertQuery(type(instances[0]), on_conflict=OnConflict.IGNORE)
    query.insert_values(
        [field for field in options.concrete_fields if not (field.primary_key or field.generated)], list(instances)
    )
    compiler = query.get_compiler(connection=connection)
    compiler.returning_fields = [options.pk, *(options.get_field(name) for name in returned)]
    [(sql, parameters)] = compiler.as_sql()
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def insert_as_they_are(instances: Sequence[Model]) -> None:
    """Insert rows of one table with their own times, including those that Django would set itself.

    The instances get their primary keys. No signal is sent.
    """
    if not instances:
        return
    options = type(instances[0])._meta
    query = InsertQuery(type(instances[0]))
    fields = [field for field in options.concrete_fields if not (field.primary_key or field.generated)]
    query.insert_values(fields, list(instances), raw=True)
    rows = query.get_compiler(connection=connection).execute_sql([options.pk])
    for instance, (pk,) in zip(instances, rows, strict=True):
        instance.pk, instance._state.adding = pk, False
