"""`find_sessions`: the sessions in which something was said, for an operator who knows words and not where.

The index of words has each word with the person who said it (see `word_search.py`), so the newest sessions are taken
and each of their people is looked up in it. What is read is bounded, whatever the number of turns; the price is that of
many sessions only the newest are searched.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection
from django.db.models import QuerySet

from sessions_app.models import Session

NEWEST = 1_000  # sessions searched, by their last activity
MOST_TURNS = 2_000  # looked at of one person
MOST_READ = 20_000  # of all
MOST_SESSIONS = 100  # found
SHORT = 120  # characters of a turn that is told whole
EXCERPT_CHARS = 4_000  # of a turn from which an excerpt is made

# Person by person in the order of their newest session, until enough is read: one look into
# `sessions_app_message_words` a person, which finds the turns with all the words and no other.
_SAID_SQL = f"""
WITH asked AS MATERIALIZED (
    SELECT tsvector_to_array(to_tsvector('english', %(text)s)) AS words
), person AS MATERIALIZED (
    SELECT place, ARRAY(SELECT 'u' || id || ' ' || word FROM unnest(words) word) AS keys
    FROM asked, unnest(%(users)s::bigint[]) WITH ORDINALITY person (id, place) WHERE words <> '{{}}'
), turn AS MATERIALIZED (
    SELECT turn.* FROM (SELECT keys FROM person ORDER BY place) person CROSS JOIN LATERAL (
        SELECT session_id, sequence, id FROM sessions_app_message
        WHERE memory_words('u' || user_id, search_vector) @> person.keys AND kind = 'turn' AND role <> 'system'
        LIMIT {MOST_TURNS}
    ) turn LIMIT {MOST_READ}
), said AS MATERIALIZED (
    SELECT newest.id AS session_id, max(ARRAY[sequence, turn.id]) AS latest
    FROM turn JOIN unnest(%(sessions)s::bigint[]) WITH ORDINALITY newest (id, place) ON newest.id = turn.session_id
    GROUP BY newest.id, newest.place ORDER BY newest.place LIMIT {MOST_SESSIONS}
)
SELECT said.session_id, message.sequence, CASE WHEN length(message.content) <= {SHORT} THEN message.content
    ELSE ts_headline('english', left(message.content, {EXCERPT_CHARS}), plainto_tsquery('english', %(text)s),
        'MaxFragments=1, MaxWords=22, MinWords=12, StartSel="", StopSel=""') END
FROM said JOIN sessions_app_message message ON message.id = said.latest[2]
"""  # noqa: S608 (numbers of our own)


@dataclass(frozen=True)
class Said:
    """Where in a session it was said: the newest such turn.

    Args:
        sequence: of the turn.
        excerpt: of its text.
    """

    sequence: int
    excerpt: str


def find_sessions(sessions: QuerySet[Session], text: str) -> Mapping[int, Said | None]:
    """Which of some sessions have a turn with all these words, or a title with this text.

    Args:
        sessions: to be searched: the newest of them are.
        text: words, in any form; stop words say nothing.

    Returns:
        By primary key where it was said; None for a session found by its title alone.
    """
    rows = list(sessions.order_by("-last_activity_at", "-id").values_list("pk", "user_id", "title")[:NEWEST])
    titled = [pk for pk, _, title in rows if text.casefold() in title.casefold()]
    users = list(dict.fromkeys(user for _, user, _ in rows))
    parameters: dict[str, str | list[int]] = {"text": text, "users": users, "sessions": [pk for pk, _, _ in rows]}
    with connection.cursor() as cursor:
        cursor.execute(_SAID_SQL, parameters)
        said = {pk: Said(sequence, excerpt) for pk, sequence, excerpt in cursor}
    return dict.fromkeys(titled) | said
