"""The registry of personal data. Each app declares its tables with personal data once.

Exports, imports and erasures iterate over these declarations. A test fails if a table with personal data is not
declared.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from django.db.models import Model, QuerySet

from sessions_app.models import Session, UserProfile
from sessions_app.people.export_format import File

if TYPE_CHECKING:
    from sessions_app.people.import_user import ImportState


class Provenance:
    """Declares a table: the person and sources of its rows, and how to export, erase and restore them."""

    def __init__(
        self,
        model: type[Model],
        *files: File,
        person: str = "user",  # the ORM lookup from a row to its person
        # The columns that refer to the sources of a row: foreign keys, or an array of primary keys of turns. Empty for
        # user input and logs.
        derived_from: tuple[str, ...] = (),
        processes: tuple[str, ...] = (),  # the names of the processes that create and rebuild the rows
        not_exported: str = "",  # why exports don't contain the rows
        # The prefix of a row's address in contexts, and the field whose value follows. The address leads to the row's
        # page.
        address: tuple[str, str] | None = None,
        is_withdrawn: bool = False,  # whether a retraction removes rows derived from retracted turns
        is_rewritten: bool = False,  # whether it rewrites rows that refer to removed rows or contain their text
        not_retracted: str = "",  # why a retraction does neither
        # A function that returns questions, each with the session to ask it in, or None for any session. They are asked
        # after a retraction, to check that answers don't repeat the retracted text.
        questions: Callable[[Any], Iterable[tuple[str, Session | None]]] | None = None,
        imported: "Callable[[ImportState], None] | None" = None,  # queues jobs that rebuild derived data after imports
        # A function that removes or blanks personal data in rows that don't refer to the profile, before other rows are
        # deleted. It returns the number of blanked rows, if any.
        erase: Callable[[UserProfile], int | None] | None = None,
        count_others: Callable[[UserProfile], Mapping[str, int]] | None = None,  # counts the rows that `erase` removes
    ) -> None:
        self.model, self.files, self.person = model, files, person
        self.derived_from, self.processes, self.not_exported = derived_from, processes, not_exported
        self.address = address
        self.is_withdrawn, self.is_rewritten, self.not_retracted = is_withdrawn, is_rewritten, not_retracted
        self.questions, self.imported, self.erase, self.count_others = questions, imported, erase, count_others
        for file in files:
            file.set_model(model)

    def rows(self, user: UserProfile) -> QuerySet[Any]:
        return self.model._base_manager.filter(**{self.person: user.pk})


_DECLARED: dict[type[Model], Provenance] = {}


def declare(*provenances: Provenance) -> None:
    """Add tables to the registry. Each app calls this when it is ready."""
    _DECLARED.update({provenance.model: provenance for provenance in provenances})


def declared() -> list[Provenance]:
    """Return all declarations in order. Derived tables come after their sources."""
    return list(_DECLARED.values())
