"""`find_sessions`: find sessions that contain some words. For operators.

The index stores each word together with the person (`migrations/_word_search.py`), so a search must specify people. It
looks up the words for the people of the newest sessions. This limits the amount of data to read, but other sessions are
not searched. The search also finds archived turns.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import QuerySet
from django.utils.text import Truncator

from sessions_app import lexemes
from sessions_app.limited_operators import unlimited
from sessions_app.models import Session

MAX_SEARCHED = 1_000  # number of most recently active sessions to search
PEOPLE_PER_LOOKUP = 50  # people per lookup; not fewer, because each lookup also reads the index's pending list
FIRST_PER_LOOKUP = 10  # people per lookup at first; for a common word, the turns of a few people suffice
FIRST_PEOPLE = 100  # after this number of people, a lookup searches PEOPLE_PER_LOOKUP people
MAX_TURNS = 5_000  # maximum turns to read per lookup
MAX_TURNS_READ = 40_000  # maximum turns to read in all
MAX_SESSIONS = 100  # maximum sessions to find
MAX_WORDS = 8  # maximum words of a query; the longest are used
SHORT_CHARS = 120  # a turn with at most this many characters is shown completely
EXCERPT_CHARS = 4_000  # characters of a turn to choose an excerpt from
ARCHIVED = "(archived; the transcript shows its text)"  # shown instead of an excerpt, because lists open no files

# Reads a few people at a time, ordered by their newest sessions, until enough turns are read.
_SAID_SQL = """
WITH people AS MATERIALIZED (
    SELECT place, array_agg(id) AS ids FROM (
        SELECT CASE WHEN place < %(first)s THEN place / %(few)s ELSE place / %(people)s + %(first)s END AS place, id
        FROM unnest(%(users)s::bigint[]) WITH ORDINALITY person (id, place)
    ) person GROUP BY place
), turn AS MATERIALIZED (
    SELECT turn.* FROM (SELECT * FROM people ORDER BY place) people
    CROSS JOIN turns_with_words(people.ids, %(words)s::jsonb, %(most_turns)s) turn LIMIT %(most_read)s
), said AS MATERIALIZED (
    SELECT newest.id AS session_id, min(ARRAY[(role <> 'user')::integer, sequence, turn.id]) AS first,
        count(DISTINCT turn.id) AS number
    FROM turn JOIN unnest(%(sessions)s::bigint[]) WITH ORDINALITY newest (id, place) ON newest.id = turn.session_id
    GROUP BY newest.id, newest.place ORDER BY newest.place LIMIT %(most_sessions)s
)
SELECT said.session_id, message.sequence, said.number - 1, message.role, message.created_at,
    CASE WHEN message.kind <> 'archived' THEN left(message.content, %(excerpt)s) END
FROM said JOIN sessions_app_message message ON message.id = said.first[3]
"""
_VALUES = {
    "people": PEOPLE_PER_LOOKUP,
    "few": FIRST_PER_LOOKUP,
    "first": FIRST_PEOPLE,
    "most_turns": MAX_TURNS,
    "most_read": MAX_TURNS_READ,
    "most_sessions": MAX_SESSIONS,
    "excerpt": EXCERPT_CHARS,
}


@dataclass(frozen=True)
class Mention:
    """The first turn of a session that contains the words. Turns of the person take precedence over others."""

    sequence: int
    others: int  # number of other turns of the session that contain the words
    role: str
    time: datetime
    content: str  # start of the text; blank if the turn is archived
    excerpt: str  # an excerpt of the text, or `ARCHIVED`

    @property
    def name(self) -> str:
        return f"turn {self.sequence}" + (f" and {self.others:,} more" if self.others else "")


def find_sessions(sessions: QuerySet[Session], text: str) -> Mapping[int, Mention | None]:
    """Find the newest sessions with a turn that contains all words of a text, or with a title that contains the text.

    Words match in any inflected form, and stop words are ignored. Return mentions, keyed by the session's primary key.
    The value is None if only the session's title matches.
    """
    rows = list(sessions.order_by("-last_activity_at", "-id").values_list("pk", "user_id", "title")[:MAX_SEARCHED])
    titled = [pk for pk, _, title in rows if text.casefold() in title.casefold()]
    users = list(dict.fromkeys(user for _, user, _ in rows))
    # Run without limits, because with row-level security, the query could not use the index. The operator can see all
    # of `rows`.
    with unlimited():
        return dict.fromkeys(titled) | _mentions(text, [pk for pk, _, _ in rows], users)


def _mentions(text: str, sessions: Sequence[int], users: Sequence[int]) -> dict[int, Mention]:
    words = sorted(lexemes.whole_words(text), key=lambda word: (-len(word.word), word.word))[:MAX_WORDS]
    if not words:
        return {}
    stems = json.dumps([word.stems for word in words])
    with connection.cursor() as cursor:
        cursor.execute(_SAID_SQL, _VALUES | {"words": stems, "users": list(users), "sessions": list(sessions)})
        return {
            pk: Mention(sequence, others, role, time, content or "", _excerpt(content, words))
            for pk, sequence, others, role, time, content in cursor
        }


def _excerpt(content: str | None, words: Sequence[lexemes.QueryWord]) -> str:
    """Return a short text unchanged, or the part of a long one around the first match."""
    if content is None:
        return ARCHIVED
    if len(content) <= SHORT_CHARS:
        return content
    place = next((start for start, _ in lexemes.occurrences(content, words)), 0)
    start = content.rfind(" ", 0, max(place - SHORT_CHARS // 3, 0)) + 1
    before = "… " if start else ""
    return before + Truncator(content[start:]).chars(SHORT_CHARS - len(before))
