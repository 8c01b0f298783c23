"""The interface through which retractions reach the tables of extras. The core doesn't know these tables by name."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from django.db.models import Model

from moments_app.models import Retraction
from sessions_app.models import Session


class Withdrawal(ABC):
    """An extra's rows, for retractions to withdraw.

    Attributes:
        name: the key of the rows' count in previews and results.
        title: the rows' heading on a preview's page.
    """

    name: str
    title: str

    @abstractmethod
    def derived(self, session: Session, turns: Sequence[int], *, is_whole: bool) -> Sequence[Model]:
        """Return the rows that depend on some turns.

        Args:
            turns: The primary keys of the turns.
            is_whole: Whether these are all turns of the session.
        """

    def parts(self, rows: Sequence[Model]) -> Sequence[Model]:
        """Return rows of another table that must be removed together with these rows, and before them."""
        return ()

    def questions(self, retraction: Retraction) -> Iterable[tuple[str, Session | None]]:
        """Return questions to ask after the retraction, to check that the text isn't repeated.

        Each question comes with the session in which to ask it; None: any session.
        """
        return ()

    @abstractmethod
    def put_back(self, retraction: Retraction, session: Session) -> None:
        """Restore the rows that an undone retraction withdrew."""


_REGISTERED: list[Withdrawal] = []


def register_withdrawal(withdrawal: Withdrawal) -> None:
    """Register a table of an extra for retractions."""
    _REGISTERED.append(withdrawal)


def withdrawals() -> Sequence[Withdrawal]:
    """Return the registered tables."""
    return _REGISTERED
