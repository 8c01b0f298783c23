"""`migrate` that was interrupted amid an index goes on when it is run again."""

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import ProgrammingError, connection
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.models import Index

from sessions_app.unfinished_indexes import drop_unfinished

pytestmark = pytest.mark.django_db(transaction=True)

# Those that landed when this was not asked for.
SEVERAL_STEPS = {
    *(f"moments_app.{number}" for number in ("0025", "0027", "0037", "0038", "0039", "0043", "0049", "0053", "0059")),
    *(f"sessions_app.{number}" for number in ("0018", "0019", "0030")),
}
AGAIN = {
    "AddIndexConcurrently",
    "RemoveIndexConcurrently",
    "RunPython",
    "RunSQL",
    "SeparateDatabaseAndState",
    "ValidateConstraint",
}


class Building(Migration):
    """A migration that builds an index while the table is written to."""

    atomic = False
    operations = [AddIndexConcurrently("application", Index(fields=["created_at"], name="built_anew"))]


def apply(state: ProjectState) -> None:
    with connection.schema_editor(atomic=False) as editor:
        Building("0999_building", "sessions_app").apply(state.clone(), editor)


def test_row_33_an_index_that_was_not_finished_is_built_anew() -> None:
    building = Building("0999_building", "sessions_app")
    state = MigrationExecutor(connection).loader.project_state()
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX built_anew ON sessions_app_application (created_at)")
        drop_unfinished([(building, False)], using="default")
        with pytest.raises(ProgrammingError, match="already exists"):
            apply(state)  # for it is whole, and none of ours
        cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'built_anew'::regclass")
        drop_unfinished([(building, True)], using="default")
        with pytest.raises(ProgrammingError, match="already exists"):
            apply(state)
        drop_unfinished([(building, False)], using="default")
        apply(state)
        cursor.execute("DROP INDEX built_anew")


def test_row_33_a_migration_that_is_not_undone_when_it_fails_can_be_run_again() -> None:
    """Whatever it had done by then: fields and constraints are added by one that is undone."""
    loader = MigrationLoader(None)
    own = [one for (app, _), one in loader.disk_migrations.items() if app in ("moments_app", "sessions_app")]
    wrong = {
        f"{one.app_label}.{one.name}: {type(step).__name__}"
        for one in own
        if not one.atomic and f"{one.app_label}.{one.name[:4]}" not in SEVERAL_STEPS
        for step in one.operations
        if type(step).__name__ not in AGAIN
    }
    assert wrong == set()
