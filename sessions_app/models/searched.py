"""Base class of tables with full-text search."""

from collections.abc import Sequence
from typing import Any, Self, cast

from django.db import models
from django.db.models.expressions import RawSQL

from sessions_app import lexemes
from sessions_app.models.user_profile import OfPersonQuerySet, Row


class WordsAttribute:
    """Computes the words of a row's texts when the row is saved. They are never loaded from the database."""

    def __init__(self, field: "WordsField") -> None:
        self._field = field

    def __get__(self, row: models.Model | None, model: type[models.Model]) -> Any:
        if row is None:
            return self
        if (words := row.__dict__.get(self._field.attname)) is not None:
            return words
        return lexemes.vector("\n".join(getattr(row, name) for name in cast(type[Searched], model).SEARCHED))

    def __set__(self, row: models.Model, value: object) -> None:
        row.__dict__[self._field.attname] = None  # without this entry, Django would treat the field as deferred


class WordsField(models.Field):  # type: ignore[type-arg]
    """A `tsvector` that is saved together with the texts. Queries filter by it, but never load it."""

    descriptor_class = WordsAttribute

    def db_type(self, connection: Any) -> str:
        return "tsvector"

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, tuple[str | int, ...]]:
        return "NULL::tsvector", ()


class SearchedQuerySet(OfPersonQuerySet[Row]):
    def matching(self, text: str) -> Self:
        """Return the rows that contain all words of `text` in any form; see `lexemes.all_words_query`."""
        has_words = "search_vector @@ %s::tsquery"  # without a table name, because subqueries use an alias
        query = [lexemes.all_words_query(text)]
        return self.filter(RawSQL(has_words, query, output_field=models.BooleanField()))  # noqa: S611 (a parameter)

    def unindexed(self) -> Self:
        """Return the rows whose words were computed by an older version, ordered by person."""
        return self.filter(search_version__lt=lexemes.VERSION).order_by("user_id", "pk")


class Searched(models.Model):
    """Base class of tables with texts for full-text search.

    If a row is written by SQL or by an older version of the application, a trigger reduces its `search_version`
    (`migrations/_word_search.py`), and `index_words` then indexes the row.
    """

    SEARCHED: Sequence[str] = ("content",)  # names of the fields with texts
    DERIVED: Sequence[str] = ()  # names of other derived fields

    search_vector = WordsField(null=True, editable=False)
    search_version = models.SmallIntegerField(default=lexemes.VERSION, db_default=0, editable=False)

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        named = kwargs.get("update_fields")
        if named is None:
            self.search_vector = None  # the texts may have changed since it was computed
        elif {*self.SEARCHED} & {*named}:
            self.search_vector = None
            self.search_version = lexemes.VERSION
            kwargs["update_fields"] = {*named, "search_vector", "search_version"}
        super().save(*args, **kwargs)


def source_fields(model: type[models.Model]) -> "list[models.Field[Any, Any]]":
    """Return the fields of a model that are not derived from other fields."""
    derived: set[str] = set()
    if issubclass(model, Searched):
        derived = {*model.DERIVED, *(field.name for field in Searched._meta.local_fields)}
    return [field for field in model._meta.concrete_fields if not field.generated and field.name not in derived]
