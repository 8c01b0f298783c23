"""Make `migrate` resumable. If it is killed, the next run continues.

If a migration has deferred SQL, such as the foreign keys of a new table, Django records the migration only after its
transaction. If `migrate` is killed in between, the next run tries to create existing tables. This module runs deferred
SQL as the last operation of each migration, so Django records the migration within the transaction.

A migration with `atomic = False` has no transaction. If `migrate` is killed, its operations run again, so each of them
must be repeatable (docs/contributing.md).
"""

from collections.abc import Sequence
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class RunDeferredSQL(Operation):
    """Run the SQL that earlier operations deferred."""

    reduces_to_sql = False

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing, because the operations that deferred the SQL have already changed the state."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        for statement in schema_editor.deferred_sql:
            schema_editor.execute(statement, None)
        schema_editor.deferred_sql.clear()


class AddIndexOnce(AddIndexConcurrently):
    """Build an index concurrently, unless an interrupted `migrate` has already built it.

    PostgreSQL creates an index before filling it, so an interrupted build leaves an invalid index. Such an index is
    dropped and rebuilt.
    """

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        table = to_state.apps.get_model(app_label, self.model_name)._meta.db_table
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(
                "SELECT indisvalid FROM pg_index "
                "WHERE indexrelid = to_regclass(quote_ident(%s)) AND indrelid = to_regclass(quote_ident(%s))",
                [self.index.name, table],
            )
            found = cursor.fetchone()
        if found == (True,):
            return
        if found:
            schema_editor.execute(f"DROP INDEX CONCURRENTLY {schema_editor.quote_name(self.index.name)}")
        super().database_forwards(app_label, schema_editor, from_state, to_state)


def make_resumable(plan: Sequence[tuple[Migration, bool]], **_: Any) -> None:
    """Make the migrations of the plan resumable. Receives the signal `pre_migrate`."""
    for migration, is_backwards in plan:
        if not is_backwards:
            repeatable = [*map(_once, migration.operations), RunDeferredSQL()]
            migration.operations = repeatable  # type: ignore[misc]


def _once(operation: Operation) -> Operation:
    if isinstance(operation, AddIndexConcurrently):
        return AddIndexOnce(operation.model_name, operation.index)
    return operation
