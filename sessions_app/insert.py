"""Inserts that the ORM can't express: one that reports whether it added the row, and one that keeps given times."""

from collections.abc import Sequence

from django.db import connection
from django.db.models import Model
from django.db.models.constants import OnConflict
from django.db.models.sql import InsertQuery


def insert_unless_there(instance: Model) -> bool:
    """Insert a new row unless a unique constraint says that it exists.

    If another transaction is adding the same row, wait for it.

    Returns:
        True if this call added the row. The instance then has its primary key.
    """
    options = type(instance)._meta
    query = InsertQuery(type(instance), on_conflict=OnConflict.IGNORE)
    query.insert_values(
        [field for field in options.concrete_fields if not (field.primary_key or field.generated)], [instance]
    )
    compiler = query.get_compiler(connection=connection)
    compiler.returning_fields = [options.pk]
    [(sql, parameters)] = compiler.as_sql()
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        row = cursor.fetchone()
    if row is None:
        return False
    instance.pk, instance._state.adding = row[0], False
    return True


def insert_as_they_are(instances: Sequence[Model]) -> None:
    """Insert rows of one table with the times they have, including those that Django would set itself.

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
