"""The format of an export: a zip with a file of JSON lines for each kind of row.

`export_user` and `import_user` use the same declaration of a file and its fields. A field has the type of its column,
so an import rejects a line that the table could not store, and reports the line number.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from pydantic import AwareDatetime, BaseModel, ConfigDict, NonNegativeInt, create_model

from sessions_app.models import UserProfile

if TYPE_CHECKING:
    from sessions_app.people.import_user import ImportState

FORMAT, VERSION = "memory-platform-export", 1
BATCH_SIZE = 500  # rows read or written at a time

Line = dict[str, Any]  # the fields of a line by name
Model = type[models.Model]


class Shape(BaseModel):
    """The schema of a line or of the manifest. Forbids unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Manifest(Shape):
    """The content of `manifest.json`, which identifies the file."""

    format: Literal["memory-platform-export"]
    version: Literal[1]
    exported_at: AwareDatetime


class ExportState:
    def __init__(self, user: UserProfile) -> None:
        self.user = user
        self.numbers: dict[Model, dict[int, int]] = defaultdict(dict)
        self._last: Counter[Any] = Counter()

    def number(self, model: Model, group: Any, pk: int) -> int:
        """Number a row within its group, starting at 1. The number replaces the row's primary key in the export."""
        self._last[model, group] += 1
        self.numbers[model][pk] = self._last[model, group]
        return self.numbers[model][pk]


@dataclass
class RestoredRow:
    """A row that is being restored."""

    line: Line
    columns: dict[str, Any]  # the values of the row; initially the fields of the line
    row: Any = None  # the created row
    weight: int = 0  # approximate size in memory, in bytes


# --- fields with special values ---


class Column:
    """A field whose value differs between the file and the table, or that has special rules for imports.

    `lookup` is the ORM lookup of its value in the table, by default the name.
    """

    model: Model
    type: Any = None  # type in the file; None for the type of the column
    is_column = True  # whether an import stores the value in a column of this name

    def __init__(self, name: str, lookup: str = "") -> None:
        self.name, self.lookup = name, lookup or name

    def set_model(self, model: Model) -> None:
        self.model = model

    def write(self, lines: list[Line], exporting: ExportState) -> None:
        """Convert values from the table's form to the file's form, in place."""

    def read(self, rows: list[RestoredRow], importing: "ImportState") -> list[RestoredRow]:
        """Convert values from the file's form to the table's form, in place. Return the rows to restore."""
        return rows


class NotRestored(Column):
    type, is_column = str | None, False


class Name(Column):
    """An id that is unique among the person's rows. An import skips rows whose id the person already has."""

    def read(self, rows: list[RestoredRow], importing: "ImportState") -> list[RestoredRow]:
        taken = importing.existing_ids(self.model, self.name, [row.line[self.name] for row in rows])
        return [row for row in rows if row.line[self.name] not in taken]


class PublicId(Column):
    """An id that is unique among all rows. An import skips rows whose id the person already has."""

    def read(self, rows: list[RestoredRow], importing: "ImportState") -> list[RestoredRow]:
        user, taken = importing.user, self._owners([row.line[self.name] for row in rows])
        for row in rows:
            # If a row of another person has the id, derive a new one.
            if taken.get(row.line[self.name], user.pk) != user.pk:
                row.columns[self.name] = uuid.uuid5(row.line[self.name], user.user_id)
        there = taken | self._owners([row.columns[self.name] for row in rows])
        return [row for row in rows if row.columns[self.name] not in there]

    def _owners(self, ids: list[uuid.UUID]) -> dict[uuid.UUID, int]:
        named = self.model._base_manager.filter(**{f"{self.name}__in": ids})
        return dict(named.values_list(self.name, "user_id"))


class Reference(Column):
    """A foreign key `column` to the table `to`.

    In the file, the field `by` identifies the row instead of its primary key. `is_optional`: whether to restore a row
    even if the row that it refers to was not restored.
    """

    is_column = False

    def __init__(self, name: str, column: str, to: Model, by: str, *, is_optional: bool = False) -> None:
        super().__init__(name, f"{column}__{by}")
        self._column, self._to, self._by, self._is_optional = column, to, by, is_optional

    def set_model(self, model: Model) -> None:
        super().set_model(model)
        named = type_of(self._to._meta.get_field(self._by))
        self.type = named | None if model._meta.get_field(self._column).null else named

    def read(self, rows: list[RestoredRow], importing: "ImportState") -> list[RestoredRow]:
        column = f"{self._column}_id"
        for row in rows:
            row.columns[column] = importing.added[self._to].get((row.line[self.name],))
        return [row for row in rows if self._is_optional or row.columns[column] or row.line[self.name] is None]


# --- files ---


@dataclass(eq=False)
class File:
    """A file of an export. `fields` are the names of its fields in order, separated by spaces."""

    name: str  # without its extension
    _: KW_ONLY
    about: str  # description for the README
    fields: str
    columns: tuple[Column, ...] = ()  # fields with special values; others have the column's value
    types: Mapping[str, Any] = field(default_factory=dict)  # types that are narrower than those of the columns
    missing: Mapping[str, Any] = field(default_factory=dict)  # values for fields that older exports don't have
    former: str = ""  # fields that only older exports have, separated by spaces; an import ignores them
    order: tuple[str, ...] = ("id",)
    key: tuple[str, ...] = ()  # fields that identify a row in other files
    # A function that returns the person's rows. Only set if the file contains just some rows of the table.
    rows: "Callable[[UserProfile], models.QuerySet[Any]] | None" = None
    # A function that yields the lines. Only set if they don't come from the table alone.
    lines: "Callable[[File, ExportState], Iterator[Line]] | None" = None
    is_restored: bool = True  # whether an import restores the rows
    is_newer: bool = False  # older exports may lack the file
    is_former: bool = False  # only older exports have the file
    skip_existing: bool = False  # whether to skip rows that violate a unique constraint
    after: "Callable[[list[RestoredRow], ImportState], None] | None" = None  # called after each batch of restored rows
    at_end: "Callable[[ImportState], None] | None" = None  # called after all rows are restored
    model: Model = field(init=False)

    def set_model(self, model: Model) -> None:
        self.model = model
        for column in self.columns:
            column.set_model(model)

    @property
    def path(self) -> str:
        return f"{self.name}.jsonl"

    @cached_property
    def shape(self) -> type[Shape]:
        types = {column.name: column.type for column in self.columns if column.type} | dict(self.types)
        fields: dict[str, Any] = {}
        for name in self.fields.split():
            kind = types[name] if name in types else type_of(self.model._meta.get_field(name))
            fields[name] = (kind, self.missing.get(name, ...))
        fields |= dict.fromkeys(self.former.split(), (Any, None))
        return create_model(self.name, __base__=Shape, **fields)

    def lines_of(self, rows: "models.QuerySet[Any]", exporting: ExportState) -> Iterator[Line]:
        """Yield rows as lines, in order, with a few in memory at a time."""
        lookups = {column.name: column.lookup for column in self.columns}
        names = self.fields.split()
        values = rows.values_list(*(lookups.get(name, name) for name in names)).iterator(BATCH_SIZE)
        for lines in batched(dict(zip(names, row, strict=True)) for row in values):
            for column in self.columns:
                column.write(lines, exporting)
            yield from lines

    def restored(self, line: Shape) -> RestoredRow:
        fields = line.model_dump()
        not_columns = {column.name for column in self.columns if not column.is_column} | {*self.former.split()}
        return RestoredRow(fields, {name: value for name, value in fields.items() if name not in not_columns})


_TYPES: dict[Any, Any] = {
    models.BooleanField: bool,
    models.DateTimeField: AwareDatetime,
    models.FloatField: float,
    models.UUIDField: uuid.UUID,
    models.PositiveIntegerField: NonNegativeInt,
    models.PositiveSmallIntegerField: NonNegativeInt,
    models.PositiveBigIntegerField: NonNegativeInt,
    models.BigIntegerField: int,
}


def type_of(column: Any) -> Any:
    if isinstance(column, ArrayField):
        found: Any = list[type_of(column.base_field)]  # type: ignore[misc]
    elif isinstance(column, models.JSONField):
        found = {dict: dict[str, Any], list: list[Any]}.get(column.default, Any)
    elif column.choices:
        found = Literal[tuple(value for value, _ in column.choices)]
    else:
        found = _TYPES.get(type(column), str)
    return found | None if column.null and found is not Any else found


T = TypeVar("T")


def batched(rows: Iterable[T]) -> Iterator[list[T]]:
    waiting = iter(rows)
    while batch := list(islice(waiting, BATCH_SIZE)):
        yield batch


def plain(value: Any) -> str:
    """Convert a value that JSON has no type for."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
