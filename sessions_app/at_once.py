"""A migration operation that applies many operations between two states.

Django renders all related models again after each operation. With our tables, that takes longer than the database's
own work. `migrate` joins the operations of libraries' migrations, and of our older ones, into such operations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import AddField, AddIndex, AlterField
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class AtOnce(Operation):
    """Apply operations in order. Each one sees the models as they are before, or after, all of them.

    Args:
        operations: none may change what another one adds, and none may be a `RunPython` that reads models.
    """

    reversible = False

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change the state. Django renders its models on first use."""
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
        for operation in self.operations:
            operation.database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        """Return the text that `migrate --plan` prints."""
        return "; ".join(operation.describe() for operation in self.operations)


MANY = 3  # operations: to render the models once takes about as long as one or two of them


def joined(operations: Sequence[Operation]) -> Iterator[Operation]:
    """Yield the operations of a migration. Those in a row that can be applied at once become one operation.

    They add or alter different fields, or add indexes.
    """
    group: dict[Any, Operation] = {}
    for operation in operations:
        target = _target(operation)
        if target is None or target in group:
            yield from _as_one(group)
            group = {}
        if target is None:
            yield operation
        else:
            group[target] = operation
    yield from _as_one(group)


def _target(operation: Operation) -> tuple[str, ...] | None:
    """Return what an operation adds or alters; None if others can't be applied together with it."""
    if type(operation) in (AddField, AlterField):
        return operation.model_name_lower, operation.name_lower  # type: ignore[attr-defined]
    return ("index", operation.index.name) if type(operation) is AddIndex else None


def _as_one(group: Mapping[Any, Operation]) -> Iterable[Operation]:
    return [AtOnce([*group.values()])] if len(group) >= MANY else group.values()
