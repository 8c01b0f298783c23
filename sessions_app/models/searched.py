"""What the tables have in common whose texts are searched by words."""

from collections.abc import Sequence
from typing import Any, Self, TypeVar, cast

from django.db import models
from django.db.models.expressions import RawSQL

from sessions_app import lexemes


class WordsAttribute:
    """What a row's texts are indexed under: made of them whenever it is asked for, and never read."""

    def __init__(self, field: "WordsField") -> None:
        self._field = field

    def __get__(self, row: models.Model | None, model: type[models.Model]) -> Any:
        if row is None:
            return self
        return lexemes.vector("\n".join(getattr(row, name) for name in cast(type[Searched], model).SEARCHED))

    def __set__(self, row: models.Model, value: object) -> None:
        row.__dict__[self._field.attname] = None  # that it is there keeps it from being taken for deferred


class WordsField(models.Field):  # type: ignore[type-arg]
    """A `tsvector` that is written with the texts it is made of. Searches alone use it, so no query gets it told."""

    descriptor_class = WordsAttribute

    def db_type(self, connection: Any) -> str:
        return "tsvector"

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, tuple[str | int, ...]]:
        return "NULL::tsvector", ()


Row = TypeVar("Row", bound=models.Model)


class SearchedQuerySet(models.QuerySet[Row]):
    def matching(self, text: str) -> Self:
        """Those whose texts have all words of `text`, in any form; see `lexemes.all_of`."""
        has_words = "search_vector @@ %s::tsquery"  # without its table: a subquery gives that a name
        query = [lexemes.all_of(text)]
        return self.filter(RawSQL(has_words, query, output_field=models.BooleanField()))  # noqa: S611 (a parameter)

    def unindexed(self) -> Self:
        """Those whose words are not as this version makes them, a person's together."""
        return self.filter(search_version__lt=lexemes.VERSION).order_by("user_id", "pk")


class Searched(models.Model):
    """A table with texts that are found by their words.

    A row that was written past the application, or by an older version of it, has a lesser `search_version`, which
    triggers see to (see `word_search.py`): `index_words` indexes it.
    """

    SEARCHED: Sequence[str] = ("content",)  # names of the fields with texts

    search_vector = WordsField(null=True, editable=False)
    search_version = models.SmallIntegerField(default=lexemes.VERSION, db_default=0, editable=False)

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saves the words with the texts."""
        named = kwargs.get("update_fields")
        if named is None:
            self.__dict__.setdefault("search_vector", None)
        elif {*self.SEARCHED} & {*named}:
            self.search_version = lexemes.VERSION
            kwargs["update_fields"] = {*named, "search_vector", "search_version"}
        super().save(*args, **kwargs)


def said_fields(model: type[models.Model]) -> "list[models.Field[Any, Any]]":
    """The columns of a table without those that are made of others."""
    made = {field.name for field in Searched._meta.local_fields} if issubclass(model, Searched) else set()
    return [field for field in model._meta.concrete_fields if not field.generated and field.name not in made]
