"""Marks for turns whose statements are no longer true, with what is true instead."""

import json
from collections.abc import Iterable
from datetime import datetime, tzinfo

from django.db import connection

from moments_app.engines.statements.dates import spoken_date
from moments_app.models.atom import BY_DATE
from sessions_app.database.sql import array_of, microseconds_of, time_of
from sessions_app.models import UserProfile

# Since when, in microseconds since 1970; whether another statement is true instead; its text, or that of the ended one.
End = tuple[int, bool, str]
TEXT_CHARS = 200  # of a statement in a mark

# Each row is a turn with its ends. The index of the person's ended facts finds them. A plan that ended by its date has
# none, because its turn says the date. A turn that also says what is true instead has none either.
_ENDS_SQL = f"""
SELECT message_id, jsonb_agg(DISTINCT jsonb_build_array(since, is_replaced, text))::text FROM (
    SELECT unnest(fact.source_message_ids) AS message_id, current.id IS NOT NULL AS is_replaced,
        {microseconds_of("COALESCE(current.valid_from, current.formed_at, fact.valid_until)")} AS since,
        current.source_message_ids AS said_in,
        left(COALESCE(NULLIF(current.value, ''), current.content, fact.content), {TEXT_CHARS}) AS text
    FROM moments_app_memoryatom fact LEFT JOIN moments_app_memoryatom current ON current.id = (
        SELECT later.id FROM moments_app_memoryatom later
        WHERE fact.replaced_by_id IS NOT NULL AND later.user_id = %(user)s
            AND later.attribute <> '' AND later.attribute = fact.attribute AND later.subject = fact.subject
            AND later.state NOT IN ('evicted', 'line') AND NOT later.is_wrong AND NOT later.is_candidate
            AND later.formed_at <= COALESCE(%(as_of)s::timestamptz, now())
            AND COALESCE(later.valid_until > COALESCE(%(as_of)s::timestamptz, now()), true)
        ORDER BY later.formed_at DESC, later.id DESC LIMIT 1
    )
    WHERE fact.user_id = %(user)s AND fact.ended_at <= COALESCE(%(as_of)s::timestamptz, now())
        AND fact.valid_until <= COALESCE(%(as_of)s::timestamptz, now()) AND fact.ended_by <> '{BY_DATE}'
        AND fact.state NOT IN ('evicted', 'line') AND NOT fact.is_wrong
        AND fact.source_message_ids && %(messages)s::bigint[]
) source WHERE NOT COALESCE(said_in @> ARRAY[message_id], false) GROUP BY message_id
"""  # noqa: S608 (constants)


def ends_of(user: UserProfile, messages: Iterable[int], as_of: datetime | None = None) -> dict[int, list[End]]:
    """Return the ends of turns by their primary key.

    Args:
        user: the person.
        messages: primary keys of the person's turns.
        as_of: only ends that were known at that time; None: now.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ENDS_SQL, {"user": user.pk, "as_of": as_of, "messages": array_of(messages)})
        return {message: json.loads(ends) for message, ends in cursor.fetchall()}


def end_marks(ends: Iterable[End], zone: tzinfo) -> str:
    """Return the marks that the text of a turn ends with, dated in a time zone."""
    marks = ""
    for since, is_replaced, text in ends:
        day = spoken_date(time_of(since).astimezone(zone).date())
        marks += f" (since {day}: {text})" if is_replaced else f" (no longer true since {day}: {text})"
    return marks
