"""The playground: test people, and the source turns of the lines in their contexts."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import Q

from moments_app.context.receipts import KeptContext
from moments_app.models import MemoryAtom
from moments_app.operator.addresses import SESSIONS, Pages
from moments_app.operator.views.context import ShownLayer, ShownLine, shown_layers
from sessions_app.admin.links import turn_url
from sessions_app.models import Message, Session, UserProfile
from sessions_app.refusals import Conflict

ATOMS, MOMENTS = "rem://atoms/", "rem://moments/key/"
ORIGINS = 6  # maximum source turns shown per line


class Somebody(Conflict):
    """The name belongs to a real person, so operators can't chat as them."""


@dataclass(frozen=True)
class Origin:
    """A source turn of a line.

    Args:
        name: Its name on the page.
        here: Its sequence in the current session. None if it is in another session.
    """

    name: str
    url: str
    here: int | None


@dataclass(frozen=True)
class LitLine(ShownLine):
    """A line of a context, with its source turns."""

    origins: Sequence[Origin] = ()

    @property
    def here(self) -> str:
        """The sequences of the turns to highlight."""
        return " ".join(str(origin.here) for origin in self.origins if origin.here is not None)


def named_test_person(name: str, application: int) -> UserProfile:
    """Return the test person with this name. Create a missing one.

    Raises:
        Somebody: The application has a real person with this name.
    """
    person = UserProfile.objects.named(name, application)
    if person is None:
        person, _ = UserProfile.objects.get_or_create(
            application_id=application, user_id=name, defaults={"is_test": True}
        )
    if not person.is_test:
        raise Somebody(f"{name} is a real person of the application, so you can't chat as them. Choose another name.")
    return person


def lit_layers(kept: KeptContext, session: Session) -> list[ShownLayer]:
    """Return the layers of a context that was served in a session, with the source turns of their lines."""
    refs = set(kept.refs())
    pages, turns = Pages(session.user, refs), _turns_of(session.user, refs)
    shown = shown_layers(kept.layers, pages, kept.tokens or 1)
    return [
        replace(layer, lines=[_lit(line, session, turns) for line in layer.lines])
        for layer in shown
        if layer.lines and layer.key != "query"
    ]


def _lit(shown: ShownLine, session: Session, turns: dict[str, list[Message]]) -> LitLine:
    origins = [_origin(turn, session) for turn in turns.get(shown.line.ref, ())[:ORIGINS]]
    return LitLine(shown.line, shown.source, origins=origins)


def _origin(turn: Message, session: Session) -> Origin:
    is_here = turn.session_id == session.pk
    name = f"turn {turn.sequence}" if is_here else f"turn {turn.sequence} of {turn.session.session_id}"
    return Origin(name, turn_url(turn.session_id, turn.sequence), turn.sequence if is_here else None)


def _turns_of(user: UserProfile, refs: Collection[str]) -> dict[str, list[Message]]:
    """Return the source turns of each address, with two queries."""
    atoms = MemoryAtom.objects.filter(user=user, atom_id__in=_ids(refs, ATOMS))
    sources = {f"{ATOMS}{atom}": pks for atom, pks in atoms.values_list("atom_id", "source_message_ids")}
    keys = {ref.removeprefix(MOMENTS) for ref in refs if ref.startswith(MOMENTS)}
    said = {ref for ref in refs if ref.startswith(SESSIONS) and "/messages/" in ref}
    of_session = {ref.removeprefix(SESSIONS).rsplit("/messages/", 1)[0] for ref in said}
    among = Q(pk__in={pk for pks in sources.values() for pk in pks}) | Q(moment__key__in=keys)
    if said:
        numbers = {int(ref.rsplit("/", 1)[1]) for ref in said}
        among |= Q(session__session_id__in=of_session, sequence__in=numbers)
    turns = Message.objects.turns().filter(among, user=user).select_related("session", "moment").order_by("sequence")
    found: dict[str, list[Message]] = defaultdict(list)
    by_pk = {}
    for turn in turns:
        by_pk[turn.pk] = turn
        found[f"{SESSIONS}{turn.session.session_id}/messages/{turn.sequence}"].append(turn)
        if turn.moment:
            found[f"{MOMENTS}{turn.moment.key}"].append(turn)
    return found | {ref: [by_pk[pk] for pk in pks if pk in by_pk] for ref, pks in sources.items()}


def _ids(refs: Iterable[str], prefix: str) -> list[UUID]:
    return [UUID(ref.removeprefix(prefix)) for ref in refs if ref.startswith(prefix)]
