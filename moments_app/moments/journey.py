"""The journey is a text with a person's latest moments before some turns, as dated sentences in time order.

It is derived without a model, and stored with the last moment of each build, so it outlives the session. It contains
moments of earlier turns, even if they were built later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection

from moments_app.engines.calls.moments import RECENT_MOMENTS, Journey, KnownMoment
from moments_app.engines.extractive.language import sentences
from moments_app.models import Moment
from sessions_app.models import Session

JOURNEY_MAX = 700  # maximum characters
STEP_MAX = 80  # maximum characters of a moment's sentence
# Finds the moments before each place. Their number and the first moment come from two bounded reads of an index, and
# one that is as long as the chain. Former moments of the place's own turns are left out.
BEFORE_SQL = f"""
SELECT place.number, place.count, place.since, near.id, near.name, near.summary, near.starts_at, near.ends_at,
    near.first_sequence
FROM (
    SELECT wanted.*, (
        SELECT count(*) FROM moments_app_moment m WHERE m.user_id = %(user)s AND m.ends_at <= wanted.until
    ) - (
        SELECT count(*) FROM moments_app_moment m WHERE m.user_id = %(user)s AND m.ends_at <= wanted.until
        AND m.source_session_id = wanted.session_id AND m.first_sequence >= wanted.sequence
    ) AS count, (
        SELECT m.starts_at FROM moments_app_moment m WHERE m.user_id = %(user)s AND m.ends_at <= wanted.until
        AND (m.source_session_id IS DISTINCT FROM wanted.session_id OR m.first_sequence < wanted.sequence)
        ORDER BY m.ends_at, m.first_sequence, m.id LIMIT 1
    ) AS since
    FROM unnest(%(sessions)s::bigint[], %(sequences)s::bigint[], %(untils)s::timestamptz[])
        WITH ORDINALITY AS wanted (session_id, sequence, until, number)
) place
LEFT JOIN LATERAL (
    SELECT m.id, m.name, m.summary, m.starts_at, m.ends_at, m.first_sequence
    FROM moments_app_moment m WHERE m.user_id = %(user)s AND m.ends_at <= place.until
    AND (m.source_session_id IS DISTINCT FROM place.session_id OR m.first_sequence < place.sequence)
    ORDER BY m.ends_at DESC, m.first_sequence DESC, m.id DESC LIMIT {RECENT_MOMENTS}
) near ON true
ORDER BY place.number, near.ends_at DESC, near.first_sequence DESC, near.id DESC
"""  # noqa: S608 (constants)


Headlines = Mapping[int, tuple[str, str]]  # names and summaries of moments, keyed by primary key


@dataclass(frozen=True)
class KnownBefore:
    """The journey before some turns, and the headlines from which it was derived."""

    journey: Journey
    headlines: Headlines

    def holds(self) -> bool:
        return are_current(self.headlines)


@dataclass(frozen=True)
class Place:
    """The position of some turns in a person's history.

    Args:
        session: primary key of the turns' session.
        sequence: sequence of the first turn. Moments of this session from this turn on are excluded.
        until: the time of the last turn.
    """

    session: int
    sequence: int
    until: datetime


@dataclass(frozen=True)
class Told:
    """A moment before some turns.

    Args:
        pk: primary key; None for an unsaved moment.
        moment: the moment as an engine receives it.
        sequence: sequence of the moment's first turn.
    """

    pk: int | None
    moment: KnownMoment
    sequence: int

    @property
    def order(self) -> tuple[datetime, int, bool, int]:
        """The sort key in the chain. Unsaved moments come after saved ones."""
        return self.moment.ends_at, self.sequence, self.pk is None, self.pk or 0


@dataclass(frozen=True)
class Before:
    """The moments of a person before some turns.

    Args:
        latest: the latest moments, newest first.
        count: the number of all moments.
        since: the start of the first moment.
    """

    latest: Sequence[Told] = ()
    count: int = 0
    since: datetime | None = None

    def with_new(self, new: Sequence[Told], until: datetime) -> "Before":
        """Return a copy that also contains the unsaved moments that ended by `until`."""
        added = [one for one in new if one.moment.ends_at <= until]
        begun = [one.moment.starts_at for one in added] + ([self.since] if self.since else [])
        # Of several moments with the same end, the last is the newest.
        latest = sorted([*reversed(added), *self.latest], key=lambda one: one.order, reverse=True)
        return replace(self, latest=latest, count=self.count + len(added), since=min(begun, default=None))

    @property
    def known(self) -> KnownBefore:
        """The journey for an engine, and its headlines."""
        shown = self.latest[:RECENT_MOMENTS]
        journey = Journey([one.moment for one in shown], self.count, self.since)
        return KnownBefore(journey, {one.pk: (one.moment.name, one.moment.summary) for one in shown if one.pk})


def are_current(headlines: Headlines) -> bool:
    """Return whether none of these moments was withdrawn, rebuilt or corrected since the headlines were read."""
    now = Moment.objects.filter(pk__in=headlines).values_list("pk", "name", "summary")
    return {pk: (name, summary) for pk, name, summary in now} == headlines


def told(journey: Journey) -> str:
    """Return the journey as text: the period, the number of moments, and as many of the latest moments as fit."""
    first, last = (
        f"{time:%Y-%m-%d}" for time in (journey.since or journey.moments[-1].starts_at, journey.moments[0].ends_at)
    )
    when = first if first == last else f"{first} to {last}"
    text = ""
    for step in map(_step, journey.moments):  # newest first
        if len(step) + len(text) > JOURNEY_MAX:
            break
        text = f"{step} {text}".strip()
    return f"{when}, {journey.count} moment{'s' * (journey.count != 1)}: {text}"


def _step(moment: KnownMoment) -> str:
    """Return a moment as text: day, name, and the shortened first sentence of the summary."""
    said = next(iter(sentences(moment.summary)), " ".join(moment.summary.split()))
    if len(said) > STEP_MAX:
        said = f"{said[:STEP_MAX].rsplit(' ', 1)[0]} …"
    return f"{moment.ends_at:%Y-%m-%d} {moment.name[:60].replace('-', ' ')}: {said}"


def known_before(session: Session, sequence: int, until: datetime) -> KnownBefore:
    """Return the journey before some turns. The arguments are those of `Place`."""
    [before] = before_each(session.user_id, [Place(session.pk, sequence, until)])
    return before.known


def before_each(user: int, places: Sequence[Place]) -> list[Before]:
    """Return a person's moments before each place, using one statement.

    Args:
        user: primary key of the person.
        places: places in the person's sessions.
    """
    values: dict[str, Any] = {"user": user, "sessions": [place.session for place in places]}
    values |= {"sequences": [place.sequence for place in places], "untils": [place.until for place in places]}
    found: list[list[tuple[Any, ...]]] = [[] for _ in places]
    with connection.cursor() as cursor:
        cursor.execute(BEFORE_SQL, values)
        for number, *row in cursor:
            found[number - 1].append(tuple(row))
    return [_before(rows) for rows in found]


def _before(rows: Sequence[tuple[Any, ...]]) -> Before:
    count, since, *_ = rows[0]
    latest = [
        Told(pk, KnownMoment(name, summary, starts_at, ends_at), sequence)
        for _, _, pk, name, summary, starts_at, ends_at, sequence in rows
        if pk is not None
    ]
    return Before(latest, count, since)
