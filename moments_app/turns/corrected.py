"""Mark turns whose words were corrected later, or whose statements are no longer true."""

import json
from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import NamedTuple

from django.utils import timezone

from moments_app.engines.statements import SPEAKER
from moments_app.engines.statements.dates import date_in_words
from moments_app.models.atom import BY_DATE, true_at
from sessions_app.database.sql import array_of, microseconds_of, prepared_cursor, time_of
from sessions_app.models import UserProfile

MAX_MARKS = 3  # maximum marks per turn; the newest are used
MAX_STEPS = 50  # maximum length of a chain of replacements
TEXT_CHARS = 200  # maximum characters of a statement in a mark


def correction_marks(marks: Iterable[tuple[str, str]]) -> str:
    """Return the text to append to a turn, with a mark for each pair of wrong words and their replacement.

    Pass the pairs oldest first. A blank replacement marks withdrawn words.
    """
    text = ""
    told: dict[str, str] = {}
    for wrong, right in marks:
        said = next((said for said, now in told.items() if now and now.casefold() == wrong.casefold()), wrong)
        told[said] = right  # if a replacement is corrected later, both become one correction
    for wrong, right in told.items():
        if not right:
            text += " (withdrawn since)"
        elif right.casefold() != wrong.casefold():
            text += f" (corrected since: {right}, not {wrong})"
    return text


class End(NamedTuple):
    """The end of a statement made in a turn: it is no longer true, or was never true."""

    microseconds: int  # time of the end, in microseconds since 1970
    is_replaced: bool  # whether another statement is true instead
    text: str  # value or content of the replacement, or of the ended statement if there is none
    atom_id: str  # id of the statement that `text` is from
    wrong: str  # the turn's value if a later turn says that it was never true, otherwise blank

    @property
    def ref(self) -> str:
        return f"rem://atoms/{self.atom_id}"


# Matches the person's statements that were known to be true at that time.
_IS_TRUE = f"""{{0}}.user_id = %(user)s AND {{0}}.state NOT IN ('evicted', 'line') AND NOT {{0}}.is_candidate
        AND {true_at("{0}.", "%(at)s")}"""
# Matches facts about the same attribute of the same subject, which has one value at a time.
_SAME_ATTRIBUTE = """{0}.attribute <> '' AND {0}.attribute = {1}.attribute AND {0}.subject = {1}.subject
        AND {0}.about_id IS NOT DISTINCT FROM {1}.about_id"""
# Returns the turns with the ends of their statements. An index finds the person's ended facts, and `later` follows the
# replacements that were known at that time. If a replacement only says that something is over, the newest value since
# then is used. The query returns no end for plans whose day has passed, for statements that are true again, and for
# turns that also contain the new statement. If all replacements correct a value that was never true, `wrong` is this
# value. Corrections by operators and clients are stored as `CorrectedTurn` instead. The query reads only tables on the
# coordinator, so it also runs on Citus.
_ENDS_SQL = f"""
WITH RECURSIVE fact AS (
    SELECT ended.* FROM moments_app_memoryatom ended
    WHERE ended.user_id = %(user)s AND ended.ended_at <= %(at)s AND ended.valid_until <= %(at)s
        AND ended.ended_by <> '{BY_DATE}' AND ended.state NOT IN ('evicted', 'line')
        AND NOT (ended.is_wrong AND ended.ended_by <> '')
        AND ended.source_message_ids && %(messages)s::bigint[]
        AND NOT EXISTS (
            SELECT FROM moments_app_memoryatom again WHERE again.content_hash = ended.content_hash
                AND again.state IN ('active', 'absorbed') AND {_IS_TRUE.format("again")}
        )
        AND NOT EXISTS (
            SELECT FROM moments_app_memoryatom again
            WHERE {_SAME_ATTRIBUTE.format("again", "ended")} AND again.value <> '' AND again.value = ended.value
                AND again.id <> ended.id AND {_IS_TRUE.format("again")}
        )
), later AS (
    SELECT fact.id AS fact_id, fact.replaced_by_id AS id, fact.is_wrong, 0 AS steps
    FROM fact WHERE replaced_by_id IS NOT NULL
    UNION ALL
    SELECT later.fact_id, over.replaced_by_id, later.is_wrong AND over.is_wrong, later.steps + 1
    FROM later JOIN moments_app_memoryatom over ON over.id = later.id
    WHERE over.user_id = %(user)s AND over.ended_at <= %(at)s AND over.valid_until <= %(at)s
        AND over.replaced_by_id IS NOT NULL AND later.steps < {MAX_STEPS}
), latest AS (
    SELECT DISTINCT ON (fact_id) fact_id, id, is_wrong FROM later ORDER BY fact_id, steps DESC
), chosen AS MATERIALIZED (  -- a join condition with a subquery could not use an index
    SELECT fact_id, latest.is_wrong, CASE WHEN last.attribute <> '' AND last.value = '' THEN (
        SELECT newer.id FROM moments_app_memoryatom newer
        WHERE {_SAME_ATTRIBUTE.format("newer", "last")} AND newer.value <> '' AND newer.formed_at >= last.formed_at
            AND {_IS_TRUE.format("newer")}
        ORDER BY newer.formed_at DESC, newer.id DESC LIMIT 1
    ) ELSE last.id END AS id
    FROM latest JOIN moments_app_memoryatom last ON last.id = latest.id AND last.user_id = %(user)s
)
SELECT message_id,
    json_agg(json_build_array(since, is_replaced, text, atom_id, wrong) ORDER BY since, text, atom_id)::text
FROM (
    SELECT DISTINCT unnest(fact.source_message_ids) AS message_id, current.id IS NOT NULL AS is_replaced,
        {microseconds_of("COALESCE(current.valid_from, current.formed_at, fact.valid_until)")} AS since,
        left(COALESCE(NULLIF(current.value, ''), current.content, fact.content), {TEXT_CHARS}) AS text,
        COALESCE(current.atom_id, fact.atom_id) AS atom_id,
        CASE WHEN chosen.is_wrong AND current.value <> '' THEN fact.value ELSE '' END AS wrong,
        current.source_message_ids AS said_in
    FROM fact LEFT JOIN chosen ON chosen.fact_id = fact.id
    LEFT JOIN moments_app_memoryatom current ON current.id = chosen.id AND {_IS_TRUE.format("current")}
) source WHERE message_id = ANY(%(messages)s::bigint[]) AND NOT COALESCE(said_in @> ARRAY[message_id], false)
GROUP BY message_id
"""  # noqa: S608 (constants)


def ends_of(user: UserProfile, messages: Iterable[int], as_of: datetime | None = None) -> dict[int, list[End]]:
    """Return the ended statements of turns, keyed by the turn's primary key, as known at `as_of` (default: now)."""
    at = as_of or timezone.now()
    with prepared_cursor() as cursor:
        cursor.execute(_ENDS_SQL, {"user": user.pk, "at": at, "messages": array_of(messages)})
        rows = cursor.fetchall()
    return {message: [End(*end) for end in json.loads(ends)[-MAX_MARKS:]] for message, ends in rows}


def end_marks(ends: Iterable[End], zone: tzinfo) -> str:
    """Return the text to append to a turn, with a mark for each end. Dates are in the time zone."""
    marks = ""
    for end in ends:
        if end.wrong:
            marks += correction_marks([(end.wrong, end.text)])
            continue
        day = date_in_words(time_of(end.microseconds).astimezone(zone).date())
        text = " ".join(SPEAKER.sub("", end.text).split())
        marks += f" ({'' if end.is_replaced else 'no longer true '}since {day}: {text})"
    return marks
