"""The shape of an export: a zip of JSON lines, a file for each kind of row, that any program can read.

A file is declared once: its fields, and which of them are not simply columns of its table. `export_user` writes it and
`import_user` reads it by that declaration. A field has the type of its column, so that a line which the table could not
take is refused with its number.
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
    from sessions_app.people.import_user import Importing

FORMAT, VERSION = "memory-platform-export", 1
AT_ONCE = 500  # rows read or written at a time

Line = dict[str, Any]  # of a file, by its fields
Model = type[models.Model]


class Shape(BaseModel):
    """The form that a line, or the manifest, must have."""

    model_config = ConfigDict(extra="forbid")


class Manifest(Shape):
    """The content of `manifest.json`: what the file is."""

    format: Literal["memory-platform-export"]
    version: Literal[1]
    exported_at: AwareDatetime


class Exporting:
    """An export that is being written: whose it is, and the numbers that stand for primary keys."""

    def __init__(self, user: UserProfile) -> None:
        self.user = user
        self.numbers: dict[Model, dict[int, int]] = defaultdict(dict)
        self._last: Counter[Any] = Counter()

    def number(self, model: Model, group: Any, pk: int) -> int:
        """Give a row the next number of its group, counted from 1."""
        self._last[model, group] += 1
        self.numbers[model][pk] = self._last[model, group]
        return self.numbers[model][pk]


@dataclass
class Restored:
    """A row that is being restored.

    Args:
        line: as the file has it.
        columns: what the row is made of; at first the fields of the line.
        row: once it is made.
        weight: about how many bytes of memory it takes.
    """

    line: Line
    columns: dict[str, Any]
    row: Any = None
    weight: int = 0


# --- fields that are not simply columns ---


class Column:
    """A field that the file has in another form than the table, or that is not as it is there again.

    Args:
        name: of the field.
        lookup: of what stands in the table; blank: the same name.
    """

    model: Model  # the table; its declaration sets it
    type: Any = None  # of the field; None: as the column
    is_column = True  # an import writes it as it is, unless `read` changes that

    def __init__(self, name: str, lookup: str = "") -> None:
        self.name, self.lookup = name, lookup or name

    def belongs_to(self, model: Model) -> None:
        """Make it a field of this table's file."""
        self.model = model

    def write(self, lines: list[Line], exporting: Exporting) -> None:
        """Change what was read from the table into what the file has."""

    def read(self, rows: list[Restored], importing: "Importing") -> list[Restored]:
        """Change what the rows take from the file; returns them without those that are to be left out."""
        return rows


class NotRestored(Column):
    """A field that is not restored."""

    type, is_column = str | None, False


class Name(Column):
    """The name of the row itself among those of its person; rows that they have already are left out."""

    def read(self, rows: list[Restored], importing: "Importing") -> list[Restored]:
        taken = importing.taken(self.model, self.name, [row.line[self.name] for row in rows])
        return [row for row in rows if row.line[self.name] not in taken]


class PublicId(Column):
    """The number that names a row to everybody; where it is somebody else's here, the row gets one made of it.

    Rows that the person has already are left out.
    """

    def read(self, rows: list[Restored], importing: "Importing") -> list[Restored]:
        user, taken = importing.user, self._owners([row.line[self.name] for row in rows])
        for row in rows:
            if taken.get(row.line[self.name], user.pk) != user.pk:
                row.columns[self.name] = uuid.uuid5(row.line[self.name], user.user_id)
        there = taken | self._owners([row.columns[self.name] for row in rows])
        return [row for row in rows if row.columns[self.name] not in there]

    def _owners(self, ids: list[uuid.UUID]) -> dict[uuid.UUID, int]:
        named = self.model._base_manager.filter(**{f"{self.name}__in": ids})
        return dict(named.values_list(self.name, "user_id"))


class NameOf(Column):
    """The name of another row of the person, in place of its primary key.

    Args:
        name: of the field.
        column: that refers to the other row.
        to: table of the other row.
        by: what names it there.
        is_optional: where the other row was not restored, this one is restored without it; else it is left out.
    """

    is_column = False

    def __init__(self, name: str, column: str, to: Model, by: str, *, is_optional: bool = False) -> None:
        super().__init__(name, f"{column}__{by}")
        self._column, self._to, self._by, self._is_optional = column, to, by, is_optional

    def belongs_to(self, model: Model) -> None:
        super().belongs_to(model)
        named = type_of(self._to._meta.get_field(self._by))
        self.type = named | None if model._meta.get_field(self._column).null else named

    def read(self, rows: list[Restored], importing: "Importing") -> list[Restored]:
        column = f"{self._column}_id"
        for row in rows:
            row.columns[column] = importing.added[self._to].get((row.line[self.name],))
        return [row for row in rows if self._is_optional or row.columns[column] or row.line[self.name] is None]


# --- files ---


@dataclass(eq=False)
class File:
    """A file of an export.

    Args:
        name: of the file, without its ending.
        about: what it holds, for the README.
        fields: of a line, in their order, as one text.
        columns: the fields that are not simply columns.
        types: of fields that are narrower than their column.
        missing: what stands for fields that older exports don't have.
        former: fields that only older exports have, as one text. They are ignored.
        order: of the rows.
        key: the fields that name a row in other files.
        rows: returns a person's rows, where those aren't all that the table has of them.
        lines: yields the lines, where they don't come from the table alone.
        is_restored: an import takes it.
        is_newer: older exports don't have it.
        may_be_there: a row that a constraint doesn't let in is left out.
        after: does what follows from a batch of rows that were restored.
        at_end: does what follows from all of them.
    """

    name: str
    _: KW_ONLY
    about: str
    fields: str
    columns: tuple[Column, ...] = ()
    types: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, Any] = field(default_factory=dict)
    former: str = ""
    order: tuple[str, ...] = ("id",)
    key: tuple[str, ...] = ()
    rows: "Callable[[UserProfile], models.QuerySet[Any]] | None" = None
    lines: "Callable[[File, Exporting], Iterator[Line]] | None" = None
    is_restored: bool = True
    is_newer: bool = False
    may_be_there: bool = False
    after: "Callable[[list[Restored], Importing], None] | None" = None
    at_end: "Callable[[Importing], None] | None" = None
    model: Model = field(init=False)  # the table whose rows it has; its declaration sets it

    def belongs_to(self, model: Model) -> None:
        """Make it a file of this table."""
        self.model = model
        for column in self.columns:
            column.belongs_to(model)

    @property
    def path(self) -> str:
        """Its name in the zip."""
        return f"{self.name}.jsonl"

    @cached_property
    def shape(self) -> type[Shape]:
        """The form that a line must have."""
        types = {column.name: column.type for column in self.columns if column.type} | dict(self.types)
        fields: dict[str, Any] = {}
        for name in self.fields.split():
            kind = types[name] if name in types else type_of(self.model._meta.get_field(name))
            fields[name] = (kind, self.missing.get(name, ...))
        fields |= dict.fromkeys(self.former.split(), (Any, None))
        return create_model(self.name, __base__=Shape, **fields)

    def lines_of(self, rows: "models.QuerySet[Any]", exporting: Exporting) -> Iterator[Line]:
        """Yield rows, in their order, as lines; a few are in memory at a time."""
        lookups = {column.name: column.lookup for column in self.columns}
        names = self.fields.split()
        values = rows.values_list(*(lookups.get(name, name) for name in names)).iterator(AT_ONCE)
        for lines in batched(dict(zip(names, row, strict=True)) for row in values):
            for column in self.columns:
                column.write(lines, exporting)
            yield from lines

    def restored(self, line: Shape) -> Restored:
        """Return what is to be made of a line."""
        fields = line.model_dump()
        not_columns = {column.name for column in self.columns if not column.is_column} | {*self.former.split()}
        return Restored(fields, {name: value for name, value in fields.items() if name not in not_columns})


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
    """Return the type of a field that is a column as it is."""
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
    """Yield some at a time."""
    waiting = iter(rows)
    while batch := list(islice(waiting, AT_ONCE)):
        yield batch


def plain(value: Any) -> str:
    """Return what JSON has where it has no type for a value."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
