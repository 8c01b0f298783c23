"""The journey of a person up to some turns: what an engine gets to know, and whether that still holds afterwards.

The journey is kept with the moments: the one that a build ends with has it as the engine wrote it then. So it lasts
however a session ends and whatever is left at its boundary, and goes with the moment. An engine gets what came before
in time, whatever was built first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from moments_app.engines.calls.moments import RECENT_MOMENTS, Journey, KnownMoment
from moments_app.models import Moment
from sessions_app.models import Session

LOOK_BACK = 50  # moments among which the latest journey is looked for; a build makes fewer as a rule


@dataclass(frozen=True)
class KnownBefore:
    """The journey before some turns, and the primary keys of the moments that say it."""

    journey: Journey
    moment_ids: frozenset[int]

    def holds(self) -> bool:
        """Tell whether all of that is still remembered: none of it was withdrawn or made again meanwhile."""
        there = dict(Moment.objects.filter(pk__in=self.moment_ids).values_list("pk", "journey"))
        return there.keys() == self.moment_ids and self.journey.text in {"", *there.values()}


def known_before(session: Session, sequence: int, until: datetime) -> KnownBefore:
    """Return what a person's moments say of the time before some turns.

    Args:
        session: of the turns.
        sequence: of the first of them; moments from there on are made of them, or came after.
        until: when the last of them was said.
    """
    until_then = Moment.objects.for_user(session.user).filter(ends_at__lte=until)
    of_these = {"source_session": session, "first_sequence__gte": sequence}
    before = until_then.exclude(**of_these)
    latest = list(before.newest_first().defer("search_vector", "detail")[:LOOK_BACK])
    latest_journey = next((moment for moment in latest if moment.journey), None)
    shown = latest[:RECENT_MOMENTS]
    first = before.newest_first().reverse().values_list("starts_at", flat=True).first()
    journey = Journey(
        text=latest_journey.journey if latest_journey else "",
        moments=[KnownMoment(one.name, one.summary, one.starts_at, one.ends_at) for one in shown],
        count=until_then.count() - until_then.filter(**of_these).count(),  # of which an index alone tells the first
        since=first,
    )
    named = [*shown, *([latest_journey] if latest_journey else [])]
    return KnownBefore(journey, frozenset(moment.pk for moment in named))


def keep_journey(moments: Sequence[Moment], text: str) -> None:
    """Leave the journey with the latest of the moments that a build made."""
    latest = max(moments, key=lambda moment: (moment.ends_at, moment.first_sequence, moment.pk))
    latest.journey = text
    latest.save(update_fields=["journey"])
