"""The interface by which retractions reach the tables of extras, which the core doesn't know by name."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from django.db.models import Model

from moments_app.models import Retraction
from sessions_app.models import Session


class Withdrawal(ABC):
    """The rows of an extra that a retraction withdraws.

    Attributes:
        name: the key of its count in previews and results.
        title: the heading of its rows on the page of a preview.
    """

    name: str
    title: str

    @abstractmethod
    def derived(self, session: Session, turns: Sequence[int], *, is_whole: bool) -> Sequence[Model]:
        """Return the rows that depend on some turns.

        Args:
            session: The session of the turns.
            turns: The primary keys of the turns.
            is_whole: Whether these are all turns of the session.
        """

    def parts(self, rows: Sequence[Model]) -> Sequence[Model]:
        """Return rows of another table that must be removed together with these rows, and before them."""
        return ()

    def questions(self, retraction: Retraction) -> Iterable[tuple[str, Session | None]]:
        """Return questions to ask after the retraction, to check that the text isn't repeated.

        Each has the session in which to ask it; None: in any session.
        """
        return ()

    @abstractmethod
    def put_back(self, retraction: Retraction, session: Session) -> None:
        """Restore what a retraction withdrew, when it is undone."""


_REGISTERED: list[Withdrawal] = []


def register_withdrawal(withdrawal: Withdrawal) -> None:
    """Register a table of an extra for retractions."""
    _REGISTERED.append(withdrawal)


def withdrawals() -> Sequence[Withdrawal]:
    """Return what extras have registered."""
    return _REGISTERED
