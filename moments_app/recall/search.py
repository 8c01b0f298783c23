"""`recall`: what of a person's memory answers a query: facts, moments and turns.

Each kind is searched by words and by meaning, and both scores are fused over all that was found, whatever its kind: so
a fact stands before a turn only where it is worth more. What has nothing to do with the query is left out, and what
says the same is told once. Filters hold within the searches, so that a small person among millions of rows gets as many
results as a large one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from moments_app.recall.fusion import Place, fused, shared_with_neighbours
from moments_app.recall.words import QueryWords, query_words
from moments_app.turns.served_text import TOOLS, lines_of, without
from moments_app.turns.words import is_named, words_of
from sessions_app.models import UserProfile
from sessions_app.retention.read_archived import UNREADABLE, read_archived

KINDS = ("fact", "moment", "turn")
MODES = ("hybrid", "semantic", "text")
CONTENT_CHARS = 2_000  # of a result that are told; its address leads to the whole
SPARE = 10  # more are read than wanted: places beyond a session's end, the platform's own text
READ_AHEAD = 60  # are read at least: who speaks and what says the same is known only then
NEAR_ENOUGH = 0.5  # of the cosine of the nearest: what is farther and has no word in common is left out
SPEAKER_FACTOR = 2.0  # of the score of a turn whose speaker the query names

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
# What was found, by primary keys; of turns the place too, which decides on their neighbours, and whether it has its
# vector already.
_SEARCH_SQL = """
WITH found AS MATERIALIZED ({searches})
SELECT found.search, found.kind, found.found, found.score, message.session_id, message.sequence,
    message.sequence > session.embedded_sequence
FROM found LEFT JOIN sessions_app_message message ON found.kind = 'turn' AND message.id = found.found
LEFT JOIN sessions_app_session session ON session.id = message.session_id
ORDER BY found.search, found.kind, found.place
"""
# A turn by its place, of one kind: of an archived one the text is read from its file afterwards. One after another:
# where the planner expects hardly any of a kind, it would read all of them. Of a turn that memory's own text stands in
# the whole is read, for that is taken out; one that has nothing else is not found.
_TURN_SQL = """
SELECT 'turn', session.id || ' ' || message.sequence,
    'rem://sessions/' || session.session_id || '/messages/' || message.sequence, {content},
    session.session_id, message.sequence, message.created_at, message.role, own.places
FROM unnest(%(sessions)s::bigint[], %(sequences)s::bigint[]) place (session_id, sequence)
CROSS JOIN LATERAL (
    SELECT * FROM sessions_app_message
    WHERE session_id = place.session_id AND user_id = %(user)s AND sequence = place.sequence AND kind = '{kind}'
    LIMIT 1
) message
JOIN sessions_app_session session ON session.id = message.session_id
LEFT JOIN moments_app_owntext own ON own.session_id = message.session_id AND own.sequence = message.sequence
    AND own.user_id = %(user)s
WHERE message.role <> 'system' AND {content} IS DISTINCT FROM '' AND message.retracted_at IS NULL
    AND (%(since)s IS NULL OR message.created_at >= %(since)s)
    AND NOT (message.role = 'tool' AND message.tool_name = ANY(%(tools)s))
    AND (own.id IS NULL OR own.places IS NOT NULL)
"""
_CONTENT = "CASE WHEN own.places IS NULL THEN left(message.content, %(chars)s) ELSE message.content END"
# By primary keys and by the indexes of a turn's place; the person's own, and facts that are everybody's.
_READ_SQL = {
    "fact": """
SELECT 'fact', atom.id::text, 'rem://atoms/' || atom.atom_id, left(atom.content, %(chars)s), session.session_id,
    NULL::bigint, atom.formed_at, '', NULL::integer[]
FROM moments_app_memoryatom atom LEFT JOIN sessions_app_session session
    ON session.id = atom.source_session_id AND session.user_id = %(user)s
WHERE atom.id = ANY(%(facts)s) AND (atom.user_id = %(user)s OR atom.user_id IS NULL) AND atom.state <> 'evicted'
""",
    "moment": """
SELECT 'moment', moment.id::text, 'rem://moments/key/' || moment.key, left(moment.summary, %(chars)s),
    session.session_id, moment.first_sequence, moment.ends_at, '', NULL
FROM moments_app_moment moment LEFT JOIN sessions_app_session session ON session.id = moment.source_session_id
WHERE moment.id = ANY(%(moments)s) AND moment.user_id = %(user)s
""",
    "turn": " UNION ALL ".join(
        (_TURN_SQL.format(kind="turn", content=_CONTENT), _TURN_SQL.format(kind="archived", content="NULL"))
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
        score: what it is worth beside all others that were found, of whatever kind; results are in its order.
        ranks: its place in each search that found it, from 1; none of a turn that was found through those around it.
        scores: what each of these searches gave it: BM25 by words, the cosine by meaning.
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
    pk: int = 0

    def is_relevant(self, least: float) -> bool:
        """Whether it has to do with the query: a word in common, a meaning near enough, or a neighbour like that.

        Args:
            least: cosine of what is near enough.
        """
        return "text" in self.ranks or self.scores.get("semantic", least) >= least


class Key(NamedTuple):
    """What is found, before it is read."""

    kind: str
    place: Place  # of a turn; else the primary key and 0


class Found(NamedTuple):
    """What one search found.

    Args:
        search: `text` or `semantic`.
        key: what it is.
        score: that the search gave it.
        share: of words: the same as a share of what all words of the query are worth; of meaning: the score.
        is_unembedded: a turn that is to get its vector yet.
    """

    search: str
    key: Key
    score: float
    share: float
    is_unembedded: bool


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
    return told(user, question, found, in_order(found), most)


def searched(user: UserProfile, words: QueryWords, question: Question, most: int) -> list[Found]:
    """What the searches find, each the best of a kind, best first, and more than the `most` wanted; one statement."""
    depth = max(settings.RECALL.candidates, most + SPARE)
    scopes = [f"u{user.pk}", *(f"s{shard}" for shard in words.shards)]
    searches: list[str] = []
    parameters: list[Any] = []
    worth: dict[str, float] = {}
    for kind in question.kinds:
        if question.used_mode != "semantic":
            asked = words.lookup(kind)
            worth[kind] = sum(asked.weights)
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
            Found(
                search,
                Key(kind, (session, sequence) if kind == "turn" else (found, 0)),
                score,
                score / (worth[kind] or 1.0) if search == "text" else score,
                bool(is_unembedded),
            )
            for search, kind, found, score, session, sequence, is_unembedded in cursor.fetchall()
            if kind != "turn" or session is not None
        ]


def in_order(found: Sequence[Found]) -> dict[Key, float]:
    """All that was found of all kinds, and the turns around, with their scores, best first."""
    text, similarity = ({one.key: one.share for one in found if one.search == name} for name in ("text", "semantic"))
    unembedded = {one.key for one in found if one.is_unembedded and one.key not in similarity}
    scores, base = fused(text, similarity, unembedded=unembedded)
    turns = {key.place: score for key, score in scores.items() if key.kind == "turn"}
    scores |= {Key("turn", place): score for place, score in shared_with_neighbours(turns, base=base).items()}
    best_first = sorted(scores, key=lambda key: (-scores[key], -key.place[0], -key.place[1]))  # of equal ones the newer
    return {key: scores[key] for key in best_first}


def told(
    user: UserProfile, question: Question, found: Sequence[Found], order: Mapping[Key, float], most: int
) -> list[Result]:
    """The best `most` of what was found, read from their tables; one statement."""
    read = _read(user, question, list(order)[: max(most + SPARE, READ_AHEAD)])
    ranks, scores = _ranks(found), _scores(found)
    named = frozenset(words_of(question.text))
    results = [
        Result(
            **fields,
            score=_with_speaker(order[key], fields["kind"], fields["content"], named),
            ranks=ranks.get(key, {}),
            scores=scores.get(key, {}),
        )
        for key, fields in read.items()
    ]
    results.sort(key=lambda result: (-result.score, -result.time.timestamp(), result.ref))
    nearest = max((one.score for one in found if one.search == "semantic"), default=0.0)
    least = NEAR_ENOUGH * nearest if question.used_mode == "hybrid" else -1.0
    return _said_once(result for result in results if result.is_relevant(least))[:most]


def _with_speaker(score: float, kind: str, content: str, named: Collection[str]) -> float:
    """The score of a result: what somebody said answers best what is asked about them."""
    return score * SPEAKER_FACTOR if score > 0 and kind == "turn" and is_named(content, named) else score


def _said_once(results: Iterable[Result]) -> list[Result]:
    """Results without those that only say what another one says; a turn stands in for what was taken from it."""
    kept: list[Result] = []
    words: list[frozenset[str]] = []
    derived: list[int] = []  # places of what is no turn
    for result in results:
        own = frozenset(words_of(result.content))
        if result.kind != "turn":
            if any(own <= others for others in words):
                continue
            derived.append(len(kept))
        elif (taken := next((place for place in derived if words[place] <= own), None)) is not None:
            kept[taken], words[taken] = replace(result, score=kept[taken].score), own
            derived.remove(taken)
            continue
        kept.append(result)
        words.append(own)
    return kept


def _ranks(found: Sequence[Found]) -> dict[Key, dict[str, int]]:
    """The place of each in each search, within its kind."""
    places: dict[tuple[str, str], int] = {}
    ranks: dict[Key, dict[str, int]] = {}
    for one in found:
        places[one.search, one.key.kind] = places.get((one.search, one.key.kind), 0) + 1
        ranks.setdefault(one.key, {})[one.search] = places[one.search, one.key.kind]
    return ranks


def _scores(found: Sequence[Found]) -> dict[Key, dict[str, float]]:
    """What each search gave each."""
    scores: dict[Key, dict[str, float]] = {}
    for one in found:
        scores.setdefault(one.key, {})[one.search] = one.score
    return scores


def _read(user: UserProfile, question: Question, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
    """Fields of the result of each that is there; planned anew each time, so only for the kinds that were found."""
    if not keys:
        return {}
    statements = [_READ_SQL[kind] for kind in dict.fromkeys(key.kind for key in keys)]
    turns = [key.place for key in keys if key.kind == "turn"]
    parameters = {
        "user": user.pk,
        "chars": CONTENT_CHARS,
        "since": question.since,
        "tools": list(TOOLS),
        "facts": [key.place[0] for key in keys if key.kind == "fact"],
        "moments": [key.place[0] for key in keys if key.kind == "moment"],
        "sessions": [session for session, _sequence in turns],
        "sequences": [sequence for _session, sequence in turns],
    }
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(statements), parameters)
        rows = _with_texts(user, cursor.fetchall())
    return dict(_told(row) for row in rows)


def _with_texts(user: UserProfile, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The rows of `_READ_SQL` with the texts of archived turns, but for turns that have none."""
    archived = {row[1]: _place(row) for row in rows if row[3] is None}
    if not archived:
        return list(rows)
    texts = read_archived(user, archived.values())
    found = {name: texts.get(place, UNREADABLE) for name, place in archived.items()}
    told = [(*row[:3], found[row[1]] if row[3] is None else row[3], *row[4:]) for row in rows]
    return [row for row in told if row[3]]


def _told(row: Sequence[Any]) -> tuple[Key, dict[str, Any]]:
    kind, _, ref, content, session_id, sequence, time, role, own_places = row
    if own_places:  # what memory itself had said is no result
        content = without(lines_of(content), own_places)
    place = _place(row)
    fields = {"kind": kind, "ref": ref, "content": content[:CONTENT_CHARS], "session_id": session_id}
    return Key(kind, place), fields | {"sequence": sequence, "time": time, "role": role, "pk": place[0]}


def _place(row: Sequence[Any]) -> Place:
    """A turn's place; of anything else its primary key and 0."""
    first, _, second = row[1].partition(" ")
    return int(first), int(second or 0)
