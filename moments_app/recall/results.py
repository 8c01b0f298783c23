"""Read the results of a search from their tables."""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import cache
from typing import Any

from django.utils import timezone

from moments_app.engines.statements.dates import plan_text
from moments_app.models.atom import BY_DATE, true_at
from moments_app.recall.request import KINDS
from moments_app.turns.corrected import End, correction_marks, end_marks, ends_of
from moments_app.turns.platform_text import MEMORY_TOOLS, text_lines, text_without
from sessions_app.database.sql import array_of, array_of_texts, microseconds_of, on_one_line, prepared_cursor, time_of
from sessions_app.models import UserProfile
from sessions_app.models.message import ids_at_places, spoken
from sessions_app.retention.read_archived import UNREADABLE, read_archived

CONTENT_CHARS = 2_000  # maximum characters of a result's text; the full text is available at its address

# The text of an archived turn is read later, from its file. A turn with platform text is read in full, because the
# platform text is removed later. A turn with only platform text is not a result.
_CONTENT = """CASE WHEN message.kind = 'archived' THEN NULL
    WHEN own.places IS NULL THEN left(message.content, %(chars)s) ELSE message.content END"""
_TURN_SQL = f"""
SELECT 'turn', session.id, 'rem://sessions/' || session.session_id || '/messages/' || turn.sequence, turn.shown,
    session.session_id, turn.sequence, turn.time, turn.role, turn.places, turn.name,
    NULL::timestamptz, NULL::timestamptz, NULL::boolean, turn.marks, turn.id,
    EXISTS (SELECT 1 FROM moments_app_memoryatom WHERE user_id = %(user)s AND ended_at IS NOT NULL
        AND ended_by <> '{BY_DATE}')
FROM (
    SELECT message.id, message.session_id, message.sequence, {_CONTENT} AS shown,
        {microseconds_of("message.created_at")} AS time, message.role, own.places, message.name, (
            SELECT jsonb_agg(jsonb_build_array(mark.wrong, mark.right) ORDER BY mark.id)
            FROM moments_app_correctedturn mark
            WHERE mark.user_id = %(user)s AND mark.session_id = message.session_id AND mark.sequence = message.sequence
        ) AS marks
    FROM sessions_app_message message
    LEFT JOIN moments_app_owntext own ON own.session_id = message.session_id AND own.sequence = message.sequence
        AND own.user_id = %(user)s
    WHERE message.user_id = %(user)s AND message.id = ANY ({ids_at_places("turn", "archived")})
        AND message.role <> 'system' AND {_CONTENT} IS DISTINCT FROM '' AND message.retracted_at IS NULL
        AND (%(since)s::timestamptz IS NULL OR message.created_at >= %(since)s)
        AND (%(as_of)s::timestamptz IS NULL OR message.created_at <= %(as_of)s)
        AND NOT (message.role = 'tool' AND message.tool_name = ANY(%(tools)s::text[]))
        AND (own.id IS NULL OR own.places IS NOT NULL)
    OFFSET 0
) turn JOIN sessions_app_session session ON session.id = turn.session_id
"""  # noqa: S608 (constants)
# With `as_of`: facts that were known to be true at that time. Without: all facts that were ever true.
_AS_OF_SQL = f"""CASE WHEN %(as_of)s::timestamptz IS NULL THEN NOT atom.is_wrong
    ELSE {true_at("atom.", "%(as_of)s")} END"""
# Uses the primary keys and the indexes on the places of turns. Reads the person's own rows and the facts of shards.
_READ_SQL = {
    "fact": f"""
SELECT 'fact', atom.id, 'rem://atoms/' || atom.atom_id, left(atom.content, %(chars)s), session.session_id,
    NULL::bigint, {microseconds_of("atom.formed_at")}, '', NULL::integer[], '', atom.valid_from, atom.valid_until,
    atom.kind = 'plan' AND (atom.ended_at IS NULL OR atom.ended_by = '{BY_DATE}'), NULL::jsonb, NULL::bigint, false
FROM moments_app_memoryatom atom LEFT JOIN sessions_app_session session
    ON session.id = atom.source_session_id AND session.user_id = %(user)s
WHERE atom.id = ANY(%(facts)s::bigint[])
    AND (atom.user_id = %(user)s OR atom.user_id IS NULL) AND atom.state NOT IN ('evicted', 'line')
    AND {_AS_OF_SQL}
""",  # noqa: S608 (a constant)
    "moment": f"""
SELECT 'moment', moment.id, 'rem://moments/key/' || moment.key, left(moment.summary, %(chars)s),
    session.session_id, moment.first_sequence, {microseconds_of("moment.ends_at")}, '', NULL, '',
    NULL::timestamptz, NULL::timestamptz, NULL::boolean,
    NULL::jsonb, NULL::bigint, false
FROM moments_app_moment moment LEFT JOIN sessions_app_session session ON session.id = moment.source_session_id
WHERE moment.id = ANY(%(moments)s::bigint[]) AND moment.user_id = %(user)s
    AND (%(as_of)s::timestamptz IS NULL OR moment.ends_at <= %(as_of)s)
""",  # noqa: S608 (a constant)
    "turn": _TURN_SQL,
}


# The place of a turn: the primary key of its session, and the turn's sequence number.
Place = tuple[int, int]
# The turns that a moment covers: primary key of the session, sequence numbers of the first and the last turn.
TurnSpan = tuple[int, int, int]
# The key of a hit: the kind, and the place of a turn. Other kinds have (primary key, 0) instead of a place.
Key = tuple[str, Place]


@dataclass(slots=True)
class Result:
    """One result of a search. Scores are added after it is read."""

    kind: str  # one of `KINDS`
    ref: str
    content: str  # at most `CONTENT_CHARS` characters, followed by `marks`
    unmarked_content: str
    session_id: str | None  # None if the session was deleted or belongs to another person
    sequence: int | None  # sequence number of a turn, or of a moment's first turn; None for a fact
    time: datetime
    role: str  # role of a turn; blank for other kinds
    pk: int  # primary key of the row, or for a turn, of its session
    valid_from: datetime | None  # when a fact became true
    valid_until: datetime | None  # when a fact ended, or when a plan is due
    has_ended: bool  # whether the fact has ended, or the day of the plan has passed
    planned: str = ""  # the day of a plan; blank for other facts, and for plans that ended for another reason
    marks: str = ""  # the last part of a turn's content: its corrections and ended facts
    also: tuple[str, ...] = ()  # addresses of the facts in `marks`
    score: float = 0.0
    # ranks from 1, keyed by search; empty for a turn found through its neighbors
    ranks: dict[str, int] = field(default_factory=dict)
    # scores keyed by search: BM25 for text search, the cosine for semantic search
    scores: dict[str, float] = field(default_factory=dict)
    share: float = 0.0  # share of the query's words that the text contains, weighted by rarity
    words: list[str] | None = None  # words of `unmarked_content`, if they were compared with those of other results

    def is_relevant(self, least: float) -> bool:
        """Return whether the result matches a word or the meaning of the query, or is next to a match.

        Args:
            least: the minimum cosine of a match in semantic search.
        """
        return "text" in self.ranks or self.scores.get("semantic", least) >= least


def read_hits(
    user: UserProfile, since: datetime | None, as_of: datetime | None, keys: Sequence[Key]
) -> dict[Key, Result]:
    """Return results for the keys whose rows exist, without scores and ranks.

    Runs one query. If the keys include turns and a fact about the person has ended, a second query reads the facts from
    these turns that are no longer true.
    """
    if not keys:
        return {}
    turns = [place for kind, place in keys if kind == "turn"]
    parameters = {
        "user": user.pk,
        "chars": CONTENT_CHARS,
        "since": since,
        "as_of": as_of,
        "tools": array_of_texts(MEMORY_TOOLS),
        "facts": array_of([place[0] for kind, place in keys if kind == "fact"]),
        "moments": array_of([place[0] for kind, place in keys if kind == "moment"]),
        "sessions": array_of([session for session, _sequence in turns]),
        "sequences": array_of([sequence for _session, sequence in turns]),
    }
    with prepared_cursor() as cursor:
        cursor.execute(_sql_for(frozenset([kind for kind, _place in keys])), parameters)
        rows = _with_texts(user, cursor.fetchall())
    zone, now = user.zone, timezone.now()
    may_have_ends = [row[-2] for row in rows if row[-1]]
    ends = ends_of(user, may_have_ends, as_of) if may_have_ends else {}
    return dict([_result(row, zone, now, ends) for row in rows])


@cache
def _sql_for(kinds: AbstractSet[str]) -> str:
    return on_one_line(" UNION ALL ".join(_READ_SQL[kind] for kind in KINDS if kind in kinds))


def _with_texts(user: UserProfile, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Add the texts of archived turns to the rows of `_READ_SQL`. Omit turns that have no text."""
    archived = [(row[1], row[5]) for row in rows if row[3] is None]
    if not archived:
        return list(rows)
    texts = read_archived(user, archived)
    complete = [
        (*row[:3], texts.get((row[1], row[5]), UNREADABLE) if row[3] is None else row[3], *row[4:]) for row in rows
    ]
    return [row for row in complete if row[3]]


def _result(row: Sequence[Any], zone: tzinfo, now: datetime, ends: Mapping[int, Sequence[End]]) -> tuple[Key, Result]:
    kind, pk, ref, content, session_id, sequence, time, role, platform_places, name = row[:10]
    valid_from, valid_until, is_plan, marks, message, _ = row[10:]
    if platform_places:  # results don't include platform text
        content = text_without(text_lines(content), platform_places)
    content = spoken(name, content)[:CONTENT_CHARS]
    has_ended = valid_until is not None and valid_until <= now
    found = Result(
        kind, ref, content, content, session_id, sequence, time_of(time), role, pk, valid_from, valid_until, has_ended
    )
    if marks or message in ends:
        over = ends.get(message, ())
        found.marks = correction_marks(json.loads(marks or "[]")) + end_marks(over, zone)
        found.content += found.marks
        found.also = tuple([one.ref for one in over])
    if is_plan and valid_until:
        found.planned = plan_text(found.content, found.time, zone)
    return (kind, (pk, sequence if kind == "turn" else 0)), found
