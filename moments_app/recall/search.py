"""`recall`: what of a person's memory answers a query: facts, moments and turns.

Each kind is searched by words and by meaning; what is found is put in order within its kind, and the kinds are merged
by their places. Filters hold within the searches, so that a small person among millions of rows gets as many results as
a large one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from moments_app.own_text import is_own
from moments_app.recall.fusion import Place, fused_turns, reciprocal_ranks
from moments_app.recall.words import QueryWords, query_words
from sessions_app.models import UserProfile
from sessions_app.processes.read_archived import UNREADABLE, read_archived

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
# A turn by its place, of one kind: of an archived one the text is read from its file afterwards. One after another:
# where the planner expects hardly any of a kind, it would read all of them.
_TURN_SQL = """
SELECT 'turn', session.id || ' ' || message.sequence,
    'rem://sessions/' || session.session_id || '/messages/' || message.sequence, {content},
    session.session_id, message.sequence, message.created_at, message.role, message.tool_name
FROM unnest(%(sessions)s::bigint[], %(sequences)s::bigint[]) place (session_id, sequence)
CROSS JOIN LATERAL (
    SELECT * FROM sessions_app_message
    WHERE session_id = place.session_id AND user_id = %(user)s AND sequence = place.sequence AND kind = '{kind}'
    LIMIT 1
) message
JOIN sessions_app_session session ON session.id = message.session_id
WHERE message.role <> 'system' AND {content} IS DISTINCT FROM '' AND message.retracted_at IS NULL
    AND (%(since)s IS NULL OR message.created_at >= %(since)s)
"""
# By primary keys and by the indexes of a turn's place; the person's own, and facts that are everybody's.
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
    "turn": " UNION ALL ".join(
        (
            _TURN_SQL.format(kind="turn", content="left(message.content, %(chars)s)"),
            _TURN_SQL.format(kind="archived", content="NULL"),
        )
    ),
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

    def alone(self) -> "list[Question]":
        """The same, one for each search that it takes."""
        modes = ("text", "semantic") if self.used_mode == "hybrid" else (self.used_mode,)
        return [replace(self, mode=mode) for mode in modes]


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
        ranks: its place in each search that found it, from 1; none of a turn that was found through those around it.
        scores: what each of these searches gave it: BM25 by words, the cosine by meaning.
        place: within its kind, from 1.
        fused: what that place is by, made of the scores of both searches.
        pk: primary key; of a turn that of its session.
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
    scores: dict[str, float] = field(default_factory=dict)
    place: int = 0
    fused: float = 0.0
    pk: int = 0


class Key(NamedTuple):
    """What is found, before it is read."""

    kind: str
    place: Place  # of a turn; else the primary key and 0


class Found(NamedTuple):
    """What one search found, with its score there."""

    search: str
    key: Key
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
    found = searched(user, words, question, most)
    return told(user, question, found, in_order(question, found), most)


def searched(user: UserProfile, words: QueryWords, question: Question, most: int) -> list[Found]:
    """What the searches find, each the best of a kind, best first, and more than the `most` wanted; one statement."""
    depth = max(settings.RECALL.candidates, most + SPARE)
    scopes = [f"u{user.pk}", *(f"s{shard}" for shard in words.shards)]
    searches: list[str] = []
    parameters: list[Any] = []
    for kind in question.kinds:
        if question.used_mode != "semantic":
            asked = words.lookup(kind)
            searches.append(_BY_WORDS_SQL.format(table=_TABLES[kind]))
            parameters += [kind, user.pk, scopes, asked.rare, asked.joint, asked.with_newest, asked.queries]
            parameters += [asked.weights, asked.average, question.since, depth]
        if question.used_mode != "text" and (vector := question.vector):
            searches.append(_BY_MEANING_SQL.format(table=_VECTORS[kind]))
            parameters += [kind, user.pk, words.shards, vector.model, vector.dimensions, str(vector.numbers)]
            parameters += [question.since, depth]
    with connection.cursor() as cursor:
        cursor.execute(_SEARCH_SQL.format(searches=" UNION ALL ".join(searches)), parameters)
        return [
            Found(search, Key(kind, (session, sequence) if kind == "turn" else (found, 0)), score)
            for search, kind, found, score, session, sequence in cursor
            if kind != "turn" or session is not None
        ]


def in_order(question: Question, found: Sequence[Found]) -> dict[str, dict[Key, float]]:
    """For each kind all that was found of it with its score, best first."""
    return {kind: _order([one for one in found if one.key.kind == kind], kind) for kind in question.kinds}


def _order(found: Sequence[Found], kind: str) -> dict[Key, float]:
    by_search = {search: [one for one in found if one.search == search] for search in ("text", "semantic")}
    if kind == "turn":
        text, similarity = ({one.key.place: one.score for one in ones} for ones in by_search.values())
        scores = {Key(kind, place): score for place, score in fused_turns(text, similarity).items()}
    else:
        rankings = [[one.key for one in ones] for ones in by_search.values()]
        scores = reciprocal_ranks(rankings, settings.RECALL.rrf_k)
    best_first = sorted(scores, key=lambda key: (-scores[key], -key.place[0], -key.place[1]))  # of equal ones the newer
    return {key: scores[key] for key in best_first}


def told(
    user: UserProfile,
    question: Question,
    found: Sequence[Found],
    orders: Mapping[str, Mapping[Key, float]],
    most: int,
) -> list[Result]:
    """The best `most` of all kinds, read from their tables; one statement."""
    read = _read(user, question, [key for order in orders.values() for key in list(order)[: most + SPARE]])
    ranks, scores = _ranks(found), _scores(found)
    results = [
        replace(
            read[key],
            score=1 / (settings.RECALL.rrf_k + place),
            ranks=ranks.get(key, {}),
            scores=scores.get(key, {}),
            place=place,
            fused=order[key],
        )
        for order in orders.values()
        for place, key in enumerate((key for key in order if key in read), start=1)
    ]
    results.sort(key=lambda result: (-result.score, -result.time.timestamp(), result.ref))
    return results[:most]


def _ranks(found: Sequence[Found]) -> dict[Key, dict[str, int]]:
    """The place of each in each search, within its kind."""
    places: dict[tuple[str, str], int] = {}
    ranks: dict[Key, dict[str, int]] = {}
    for search, key, _score in found:
        places[search, key.kind] = places.get((search, key.kind), 0) + 1
        ranks.setdefault(key, {})[search] = places[search, key.kind]
    return ranks


def _scores(found: Sequence[Found]) -> dict[Key, dict[str, float]]:
    """What each search gave each."""
    scores: dict[Key, dict[str, float]] = {}
    for search, key, score in found:
        scores.setdefault(key, {})[search] = score
    return scores


def _read(user: UserProfile, question: Question, keys: Sequence[Key]) -> dict[Key, Result]:
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
        rows = _with_texts(user, cursor.fetchall())
    return dict(_told(row) for row in rows if not is_own(row[-1], row[3]))


def _with_texts(user: UserProfile, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The rows of `_READ_SQL` with the texts of archived turns, but for turns that have none."""
    archived = {row: _place(row) for row in rows if row[3] is None}
    texts = read_archived(user, archived.values()) if archived else {}
    found = {row: texts.get(place, UNREADABLE)[:CONTENT_CHARS] for row, place in archived.items()}
    return [(*row[:3], found.get(row, row[3]), *row[4:]) for row in rows if found.get(row) != ""]


def _told(row: Sequence[Any]) -> tuple[Key, Result]:
    kind, _, ref, content, session_id, sequence, time, role, _tool = row
    place = _place(row)
    return Key(kind, place), Result(kind, ref, content, session_id, sequence, time, role, pk=place[0])


def _place(row: Sequence[Any]) -> Place:
    """A turn's place; of anything else its primary key and 0."""
    first, _, second = row[1].partition(" ")
    return int(first), int(second or 0)
