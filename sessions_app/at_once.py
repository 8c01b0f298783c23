"""An operation of migrations that does many at once.

Django makes the models of a migration's state anew after each operation, of all tables that hang together: with ours
that takes longer than what the database does.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import RunPython, RunSQL
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class AtOnce(Operation):
    """Operations in their order, of which each sees the models as they are before all of them, or after.

    Args:
        operations: none of them may change what another has added, nor be Python that asks for models.
    """

    reversible = False

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change the state; its models are made when they are asked for."""
        state.__dict__.pop("apps", None)
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Change the database."""
        for operation in self.operations:
            operation.database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        """Return what `migrate --plan` says of it."""
        return "; ".join(operation.describe() for operation in self.operations)


def besides_models(app: str, *names: str) -> Iterator[Operation]:
    """Yield the SQL and the Python of migrations that a squashed one replaces, so that they stand in one place.

    Whoever deletes those takes them over.
    """
    for name in names:
        for operation in import_module(f"{app}.migrations.{name}").Migration.operations:
            if isinstance(operation, RunSQL | RunPython):
                yield operation
