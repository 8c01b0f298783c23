"""The registry of personal data. Each table with rows of a person is declared once, by its app.

Exports, imports and erasures iterate over these declarations. A test fails if a table with personal data is not
declared.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from django.db.models import Model, QuerySet

from sessions_app.models import UserProfile
from sessions_app.people.export_format import File

if TYPE_CHECKING:
    from sessions_app.people.import_user import Importing


class Provenance:
    """The person of a table's rows, their sources, and how they are exported, erased and restored.

    Args:
        model: the table.
        files: of an export that have its rows.
        person: the lookup from a row to its person.
        made_of: the columns that say what a row was made of; none: somebody said it, or it is a log.
        made_by: names of the processes that make such rows, and make them again.
        not_exported: why there is no file.
        is_withdrawn: a retraction takes rows out of the table that rest on retracted turns.
        is_rewritten: a retraction rewrites rows that name what it takes out, or have it within.
        left_alone: why a retraction does neither.
        imported: asks for what is made again of what an import has brought.
        erase: removes or blanks what doesn't go with the rows that refer to the profile, before those go. Returns the
            number of rows of the table that stay, blanked.
        beside: counts what `erase` removes, by what it is; previews and records of erasures take it from here.
    """

    def __init__(
        self,
        model: type[Model],
        *files: File,
        person: str = "user",
        made_of: tuple[str, ...] = (),
        made_by: tuple[str, ...] = (),
        not_exported: str = "",
        is_withdrawn: bool = False,
        is_rewritten: bool = False,
        left_alone: str = "",
        imported: "Callable[[Importing], None] | None" = None,
        erase: Callable[[UserProfile], int | None] | None = None,
        beside: Callable[[UserProfile], Mapping[str, int]] | None = None,
    ) -> None:
        self.model, self.files, self.person = model, files, person
        self.made_of, self.made_by, self.not_exported = made_of, made_by, not_exported
        self.is_withdrawn, self.is_rewritten, self.left_alone = is_withdrawn, is_rewritten, left_alone
        self.imported, self.erase, self.beside = imported, erase, beside
        for file in files:
            file.belongs_to(model)

    def rows(self, user: UserProfile) -> QuerySet[Any]:
        """Return a person's rows."""
        return self.model._base_manager.filter(**{self.person: user.pk})


_DECLARED: dict[type[Model], Provenance] = {}


def declare(*provenances: Provenance) -> None:
    """Add tables to the registry. Each app calls this when it is ready."""
    _DECLARED.update({provenance.model: provenance for provenance in provenances})


def declared() -> list[Provenance]:
    """Return all declarations in order. Derived tables come after their sources."""
    return list(_DECLARED.values())
