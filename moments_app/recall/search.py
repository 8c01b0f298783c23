"""`recall`: what of a person's memory answers a query: facts, moments and turns.

Each kind is searched by words and by meaning; what is found is put in order within its kind, and the kinds are merged
by their places. Filters hold within the searches, so that a small person among millions of rows gets as many results as
a large one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from moments_app.own_text import is_own
from moments_app.recall.fusion import Place, fused_turns, reciprocal_ranks
from moments_app.recall.words import QueryWords, query_words
from sessions_app.models import UserProfile

KINDS = ("fact", "moment", "turn")
MODES = ("hybrid", "semantic", "text")
CONTENT_CHARS = 2_000  # of a result that are told; its address leads to the whole
SPARE = 10  # more are read than wanted: places beyond a session's end, the platform's own text

_TABLES = {"fact": "moments_app_memoryatom", "moment": "moments_app_moment", "turn": "sessions_app_message"}
_VECTORS = {
    "fact": "moments_app_factembedding",
    "moment": "moments_app_momentembedding",
    "turn": "moments_app_turnembedding",
}
_BY_WORDS_SQL = """
SELECT 'text' AS search, %s AS kind, * FROM recall_{table}(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    WITH ORDINALITY AS result (found, score, place)
"""
_BY_MEANING_SQL = """
SELECT 'semantic' AS search, %s AS kind, * FROM nearest_{table}(%s, %s, %s, %s, %s, %s, %s)
    WITH ORDINALITY AS result (found, score, place)
"""
# What was found, by primary keys; of turns the place too, which decides on their neighbours.
_SEARCH_SQL = """
WITH found AS MATERIALIZED ({searches})
SELECT found.search, found.kind, found.found, found.score, message.session_id, message.sequence
FROM found LEFT JOIN sessions_app_message message ON found.kind = 'turn' AND message.id = found.found
ORDER BY found.search, found.kind, found.place
"""
# By primary keys and by the unique index of a turn's place; the person's own, and facts that are everybody's.
_READ_SQL = {
    "fact": """
SELECT 'fact', atom.id::text, 'rem://atoms/' || atom.atom_id, left(atom.content, %(chars)s), session.session_id,
    NULL::bigint, atom.formed_at, '', ''
FROM moments_app_memoryatom atom LEFT JOIN sessions_app_session session
    ON session.id = atom.source_session_id AND session.user_id = %(user)s
WHERE atom.id = ANY(%(facts)s) AND (atom.user_id = %(user)s OR atom.user_id IS NULL) AND atom.state = 'active'
""",
    "moment": """
SELECT 'moment', moment.id::text, 'rem://moments/key/' || moment.key, left(moment.summary, %(chars)s),
    session.session_id, moment.first_sequence, moment.ends_at, '', ''
FROM moments_app_moment moment LEFT JOIN sessions_app_session session ON session.id = moment.source_session_id
WHERE moment.id = ANY(%(moments)s) AND moment.user_id = %(user)s
""",
    "turn": """
SELECT 'turn', session.id || ' ' || message.sequence,
    'rem://sessions/' || session.session_id || '/messages/' || message.sequence, left(message.content, %(chars)s),
    session.session_id, message.sequence, message.created_at, message.role, message.tool_name
FROM unnest(%(sessions)s::bigint[], %(sequences)s::bigint[]) place (session_id, sequence)
JOIN sessions_app_message message ON message.session_id = place.session_id AND message.user_id = %(user)s
    AND message.sequence = place.sequence AND message.kind = 'turn'
JOIN sessions_app_session session ON session.id = message.session_id
WHERE message.role <> 'system' AND message.content <> '' AND message.retracted_at IS NULL
    AND (%(since)s IS NULL OR message.created_at >= %(since)s)
""",
}


@dataclass(frozen=True)
class Vector:
    """A query's vector, and the model that made it: primary key and width."""

    model: int
    dimensions: int
    numbers: list[float]


@dataclass(frozen=True)
class Question:
    """What is asked for.

    Args:
        text: the query.
        kinds: of memory, some of `KINDS`.
        since: only what was said at this time or later.
        mode: search by words (`text`), by meaning (`semantic`), or by both (`hybrid`).
        vector: of the text; without one the search is by words alone.
    """

    text: str
    kinds: Sequence[str] = KINDS
    since: datetime | None = None
    mode: str = "hybrid"
    vector: Vector | None = None

    @property
    def degraded(self) -> bool:
        """Meaning was asked for and can't be had."""
        return self.mode != "text" and self.vector is None

    @property
    def used_mode(self) -> str:
        """How it is searched."""
        return "text" if self.degraded else self.mode


@dataclass(frozen=True)
class Result:
    """One thing that was found.

    Args:
        kind: one of `KINDS`.
        ref: its `rem://` address.
        content: its text, or the beginning.
        session_id: the session it came from; None when that is gone or somebody else's.
        sequence: of a turn; of a moment the first it covers; None for a fact.
        time: when it was said.
        role: whose turn it is; blank for what is no turn.
        score: 1 / (`RECALL__RRF_K` + place within its kind); results are in its order.
        ranks: its place in each search that found it, from 1.
    """

    kind: str
    ref: str
    content: str
    session_id: str | None
    sequence: int | None
    time: datetime
    role: str = ""
    score: float = 0.0
    ranks: dict[str, int] = field(default_factory=dict)


class _Key(NamedTuple):
    """What is found, before it is read."""

    kind: str
    place: Place  # of a turn; else the primary key and 0


class _Found(NamedTuple):
    search: str
    key: _Key
    score: float


def recall(user: UserProfile, agent_id: str, question: Question, *, most: int | None = None) -> list[Result]:
    """The best of what a person may find, best first; a constant number of statements.

    Args:
        user: whose memory it is.
        agent_id: whose shards are seen; blank: only those of every agent.
        question: what is asked for.
        most: results; None is `RECALL__MATCH_COUNT`.
    """
    most = most or settings.RECALL.match_count
    words = query_words(user.pk, agent_id, question.text)
    found = _search(user, words, question, max(settings.RECALL.candidates, most + SPARE))
    orders = {kind: _order([one for one in found if one.key.kind == kind], kind) for kind in question.kinds}
    read = _read(user, question, [key for order in orders.values() for key in order[: most + SPARE]])
    ranks = _ranks(found)
    results = [
        replace(read[key], score=1 / (settings.RECALL.rrf_k + place), ranks=ranks.get(key, {}))
        for order in orders.values()
        for place, key in enumerate((key for key in order if key in read), start=1)
    ]
    results.sort(key=lambda result: (-result.score, -result.time.timestamp(), result.ref))
    return results[:most]


def _search(user: UserProfile, words: QueryWords, question: Question, most: int) -> list[_Found]:
    """What the searches find, each the best `most` of a kind, best first."""
    scopes = [f"u{user.pk}", *(f"s{shard}" for shard in words.shards)]
    searches: list[str] = []
    parameters: list[Any] = []
    for kind in question.kinds:
        if question.used_mode != "semantic":
            asked = words.lookup(kind)
            searches.append(_BY_WORDS_SQL.format(table=_TABLES[kind]))
            parameters += [kind, user.pk, scopes, asked.rare, asked.joint, asked.with_newest, asked.queries]
            parameters += [asked.weights, asked.average, question.since, most]
        if question.used_mode != "text" and (vector := question.vector):
            searches.append(_BY_MEANING_SQL.format(table=_VECTORS[kind]))
            parameters += [kind, user.pk, words.shards, vector.model, vector.dimensions, str(vector.numbers)]
            parameters += [question.since, most]
    with connection.cursor() as cursor:
        cursor.execute(_SEARCH_SQL.format(searches=" UNION ALL ".join(searches)), parameters)
        return [
            _Found(search, _Key(kind, (session, sequence) if kind == "turn" else (found, 0)), score)
            for search, kind, found, score, session, sequence in cursor
            if kind != "turn" or session is not None
        ]


def _ranks(found: Sequence[_Found]) -> dict[_Key, dict[str, int]]:
    """The place of each in each search, within its kind."""
    places: dict[tuple[str, str], int] = {}
    ranks: dict[_Key, dict[str, int]] = {}
    for search, key, _score in found:
        places[search, key.kind] = places.get((search, key.kind), 0) + 1
        ranks.setdefault(key, {})[search] = places[search, key.kind]
    return ranks


def _order(found: Sequence[_Found], kind: str) -> list[_Key]:
    """All that was found of a kind, best first."""
    by_search = {search: [one for one in found if one.search == search] for search in ("text", "semantic")}
    if kind == "turn":
        text, similarity = ({one.key.place: one.score for one in ones} for ones in by_search.values())
        scores = {_Key(kind, place): score for place, score in fused_turns(text, similarity).items()}
    else:
        rankings = [[one.key for one in ones] for ones in by_search.values()]
        scores = reciprocal_ranks(rankings, settings.RECALL.rrf_k)
    return sorted(scores, key=lambda key: (-scores[key], -key.place[0], -key.place[1]))  # of equal ones the newer


def _read(user: UserProfile, question: Question, keys: Sequence[_Key]) -> dict[_Key, Result]:
    """What is told of each that is there; planned anew each time, so only for the kinds that were found."""
    if not keys:
        return {}
    statements = [_READ_SQL[kind] for kind in dict.fromkeys(key.kind for key in keys)]
    turns = [key.place for key in keys if key.kind == "turn"]
    parameters = {
        "user": user.pk,
        "chars": CONTENT_CHARS,
        "since": question.since,
        "facts": [key.place[0] for key in keys if key.kind == "fact"],
        "moments": [key.place[0] for key in keys if key.kind == "moment"],
        "sessions": [session for session, _sequence in turns],
        "sequences": [sequence for _session, sequence in turns],
    }
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(statements), parameters)
        return dict(_told(row) for row in cursor if not is_own(row[-1], row[3]))


def _told(row: Sequence[Any]) -> tuple[_Key, Result]:
    kind, place, ref, content, session_id, sequence, time, role, _tool = row
    numbers = [int(part) for part in place.split()]
    key = _Key(kind, (numbers[0], numbers[1] if kind == "turn" else 0))
    return key, Result(kind, ref, content, session_id, sequence, time, role)
