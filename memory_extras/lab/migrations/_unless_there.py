"""Operations for tables that `moments_app` had before the extra: they are made only where they are missing."""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import CreateModel, RunSQL
from django.db.migrations.state import ProjectState


class CreateModelUnlessThere(CreateModel):
    """Create a table unless the database has it."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Create the table if it is missing."""
        table = to_state.apps.get_model(app_label, self.name)._meta.db_table
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            is_there = table in connection.introspection.table_names(cursor)
        if not is_there:
            super().database_forwards(app_label, schema_editor, from_state, to_state)


def unless_policy(table: str, policy: str, operation: RunSQL) -> RunSQL:
    """Return an operation that runs the SQL of another unless the table has a policy of this name.

    The tables are dropped when it is reversed, so it reverses nothing.
    """
    there = f"SELECT FROM pg_policy WHERE polrelid = '{table}'::regclass AND polname = '{policy}'"
    return RunSQL(f"DO $do$ BEGIN IF NOT EXISTS ({there}) THEN {operation.sql} END IF; END $do$", RunSQL.noop)
