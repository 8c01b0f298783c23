"""The journey: a text with a person's latest moments before some turns, as dated sentences in time order.

It is derived without a model, and stored with the last moment of each build, so it outlives the session. It contains
moments of earlier turns, even if they were built later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection

from moments_app.engines.calls.moments import Journey, KnownMoment
from moments_app.engines.extractive.language import sentences
from moments_app.models import Moment
from sessions_app.models import Session

RECENT_MOMENTS = 8  # number of a person's latest moments from which the journey is derived
JOURNEY_MAX = 700  # maximum characters of a journey
STEP_MAX = 80  # maximum characters of a moment's sentence
# For each place, finds the latest moments before it, the number of all moments before it, and the start of the first.
# Excludes former moments of the place's own turns. Three index reads compute the number and the start. Only one of them
# reads the whole chain.
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
class KnownHistory:
    """The journey before some turns, and the headlines from which it was derived."""

    journey: Journey
    headlines: Headlines

    def is_current(self) -> bool:
        return are_current(self.headlines)


@dataclass(frozen=True)
class HistoryPosition:
    """The position of some turns in a person's history."""

    session: int  # primary key of the session
    sequence: int  # sequence number of the first turn; the session's moments from this turn on are excluded
    until: datetime  # the time of the last turn


@dataclass(frozen=True)
class PriorMoment:
    pk: int | None  # None for an unsaved moment
    moment: KnownMoment
    sequence: int  # sequence number of the moment's first turn

    @property
    def order(self) -> tuple[datetime, int, bool, int]:
        """The sort key in the chain. Unsaved moments come after saved ones."""
        return self.moment.ends_at, self.sequence, self.pk is None, self.pk or 0


@dataclass(frozen=True)
class PriorMoments:
    """A person's moments from before the given turns. Only the latest are read, newest first."""

    latest: Sequence[PriorMoment] = ()
    count: int = 0  # number of all these moments, not just the latest
    since: datetime | None = None  # the start of the first moment

    def with_new(self, new: Sequence[PriorMoment], until: datetime) -> "PriorMoments":
        """Return a copy with additional, unsaved moments: those in `new` that ended by `until`."""
        added = [one for one in new if one.moment.ends_at <= until]
        begun = [one.moment.starts_at for one in added] + ([self.since] if self.since else [])
        # Of several moments with the same end, the last is the newest.
        latest = sorted([*reversed(added), *self.latest], key=lambda one: one.order, reverse=True)
        return replace(self, latest=latest, count=self.count + len(added), since=min(begun, default=None))

    @property
    def known(self) -> KnownHistory:
        shown = self.latest[:RECENT_MOMENTS]
        journey = Journey([one.moment for one in shown], self.count, self.since)
        return KnownHistory(journey, {one.pk: (one.moment.name, one.moment.summary) for one in shown if one.pk})


def are_current(headlines: Headlines) -> bool:
    """Return whether these moments are unchanged: not withdrawn, rebuilt or corrected since the headlines were read."""
    now = Moment.objects.filter(pk__in=headlines).values_list("pk", "name", "summary")
    return {pk: (name, summary) for pk, name, summary in now} == headlines


def extended(journey: Journey, moments: Sequence[KnownMoment]) -> Journey:
    """Return the journey with additional moments."""
    latest = sorted([*moments, *journey.moments], key=lambda moment: moment.ends_at, reverse=True)
    since = min([moment.starts_at for moment in moments] + ([journey.since] if journey.since else []), default=None)
    return Journey(latest[:RECENT_MOMENTS], journey.count + len(moments), since)


def journey_text(journey: Journey) -> str:
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
    """Return a moment's day, name, and the shortened first sentence of its summary."""
    said = next(iter(sentences(moment.summary)), " ".join(moment.summary.split()))
    if len(said) > STEP_MAX:
        said = f"{said[:STEP_MAX].rsplit(' ', 1)[0]} …"
    return f"{moment.ends_at:%Y-%m-%d} {moment.name[:60].replace('-', ' ')}: {said}"


def known_history(session: Session, sequence: int, until: datetime) -> KnownHistory:
    """Return the journey before a position. The arguments are those of `HistoryPosition`."""
    [before] = prior_moments(session.user_id, [HistoryPosition(session.pk, sequence, until)])
    return before.known


def prior_moments(user: int, positions: Sequence[HistoryPosition]) -> list[PriorMoments]:
    """Return a person's moments before each position, using one statement."""
    values: dict[str, Any] = {"user": user, "sessions": [one.session for one in positions]}
    values |= {"sequences": [one.sequence for one in positions], "untils": [one.until for one in positions]}
    found: list[list[tuple[Any, ...]]] = [[] for _ in positions]
    with connection.cursor() as cursor:
        cursor.execute(BEFORE_SQL, values)
        for number, *row in cursor:
            found[number - 1].append(tuple(row))
    return [_before(rows) for rows in found]


def _before(rows: Sequence[tuple[Any, ...]]) -> PriorMoments:
    count, since, *_ = rows[0]
    latest = [
        PriorMoment(pk, KnownMoment(name, summary, starts_at, ends_at), sequence)
        for _, _, pk, name, summary, starts_at, ends_at, sequence in rows
        if pk is not None
    ]
    return PriorMoments(latest, count, since)
