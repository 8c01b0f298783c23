"""A killed `migrate` continues when it is run again."""

from collections.abc import Callable

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import ProgrammingError, connection
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import CreateModel
from django.db.models import CASCADE, AutoField, ForeignKey, Index

from sessions_app.database.resumable_migrations import make_resumable
from tests.support import landed

pytestmark = pytest.mark.django_db(transaction=True)

AGAIN = {
    "AddIndexConcurrently",
    "RemoveIndexConcurrently",
    "RunPython",
    "RunSQL",
    "SeparateDatabaseAndState",
    "ValidateConstraint",
}


class Building(Migration):
    """A migration that builds an index concurrently."""

    atomic = False
    operations = [AddIndexConcurrently("application", Index(fields=["created_at"], name="built_once"))]


class Creating(Migration):
    """A migration that creates tables with a foreign key, which is deferred SQL."""

    operations = [
        CreateModel("created", [("id", AutoField(primary_key=True))]),
        CreateModel(
            "referring",
            [("id", AutoField(primary_key=True)), ("to", ForeignKey("sessions_app.created", CASCADE))],
        ),
    ]


def apply(migration: Migration, record: Callable[[Migration], None] = lambda _: None) -> None:
    """Apply a migration as `migrate` does."""
    executor = MigrationExecutor(connection)
    executor.record_migration = record  # type: ignore[method-assign, assignment]
    make_resumable([(migration, False)])
    executor.apply_migration(executor.loader.project_state(), migration)


def test_row_33_an_unfinished_index_is_rebuilt() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX built_once ON sessions_app_application (created_at)")
        cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'built_once'::regclass")
        apply(Building("0999_building", "sessions_app"))
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'built_once'::regclass")
        assert cursor.fetchone() == (True,)
        cursor.execute("DROP INDEX built_once")


@pytest.mark.slow
def test_row_46_a_migration_that_built_its_index_but_is_not_recorded_can_be_applied_again() -> None:
    apply(Building("0999_building", "sessions_app"))
    apply(Building("0999_building", "sessions_app"))
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX built_once")


def test_row_33_an_index_of_another_table_with_that_name_is_not_mistaken_for_it() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX built_once ON sessions_app_userprofile (created_at)")
        with pytest.raises(ProgrammingError, match="already exists"):
            apply(Building("0999_building", "sessions_app"))
        cursor.execute("DROP INDEX built_once")


def test_row_46_a_migration_is_recorded_in_its_own_transaction() -> None:
    def fail(migration: Migration) -> None:
        assert connection.in_atomic_block
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(Creating("0999_creating", "sessions_app"), record=fail)
    assert {"sessions_app_created", "sessions_app_referring"}.isdisjoint(connection.introspection.table_names())


def test_row_33_a_migration_without_a_transaction_can_be_run_again() -> None:
    """No such migration adds fields or constraints, which can't be added again."""
    loader = MigrationLoader(None)
    own = [one for (app, _), one in loader.disk_migrations.items() if app in ("moments_app", "sessions_app")]
    wrong = {
        f"{one.app_label}.{one.name}: {type(step).__name__}"
        for one in own
        if not one.atomic
        for step in one.operations
        if type(step).__name__ not in AGAIN
    }
    assert wrong == set()


def test_row_46_a_migration_without_a_transaction_replaces_only_one() -> None:
    """Django records each replaced migration by itself, so a kill in between would leave half of them."""
    replaced = {
        f"{one.app_label}.{one.name}": len(one.replaces)
        for one in MigrationLoader(None).disk_migrations.values()
        if not one.atomic and one.app_label in landed.OWN
    }
    assert {name for name, number in replaced.items() if number > 1} == set()
