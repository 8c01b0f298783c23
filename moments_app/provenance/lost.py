"""Find what a retraction withdraws that can't be rebuilt, because retention deleted its source turns."""

from collections.abc import Collection, Iterable, Sequence

from moments_app.models import MemoryAtom, Moment
from moments_app.provenance.derived import Derived
from sessions_app.models import Message, UserProfile


def told_of_lost(parts: Sequence[Derived]) -> str:
    """Return a sentence about withdrawn rows that can't be rebuilt; blank if there are none.

    Args:
        parts: the withdrawn rows of each session, without whole sessions, of which nothing is rebuilt.
    """
    if not parts:
        return ""
    user = parts[0].session.user
    atoms = _without_turns(user, {atom.pk: atom for found in parts for atom in found.atoms}.values())
    moments = _deleted(user, [moment for found in parts for moment in found.moments])
    told = [
        f"{name} ({count})" for name, count in (("facts and observations", atoms), ("moments", len(moments))) if count
    ]
    return f"Not rebuilt, because retention deleted the turns: {', '.join(told)}." if told else ""


def _without_turns(user: UserProfile, atoms: Collection[MemoryAtom]) -> int:
    """Return how many of some items have a deleted source turn."""
    sources = {pk for atom in atoms for pk in atom.source_message_ids}
    there = set(Message.objects.said().filter(user_id=user.pk, pk__in=sources).values_list("pk", flat=True))
    return sum(not there.issuperset(atom.source_message_ids) for atom in atoms)


def _deleted(user: UserProfile, moments: Iterable[Moment]) -> list[Moment]:
    """Return the moments that have deleted turns."""
    old = [row for row in moments if row.source_session and row.first_sequence < row.source_session.kept_from_sequence]
    archived = Message.objects.archived().filter(user_id=user.pk, moment__in=[row.pk for row in old])
    there = set(archived.values_list("moment_id", flat=True))
    return [row for row in old if row.pk not in there]
