"""`recall`: find the facts, moments and turns in a person's memory that answer a query.

Each kind is searched with text search and semantic search. The scores are fused over all hits of all kinds, so a fact
precedes a turn only if it has a higher score. Irrelevant results and duplicates are left out. Filters apply inside the
searches, so the number of results doesn't depend on a person's share of a table.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import nlargest
from statistics import fmean
from typing import Any

from django.db import connection

from moments_app.engines.words import is_from_assistant, speaker_of, words_of
from moments_app.models.known_person import SELF
from moments_app.recall.query_terms import query_words
from moments_app.recall.request import KINDS, RecallRequest
from moments_app.recall.results import Key, Place, Result, TurnSpan, read_found
from moments_app.recall.term_weights import Lookup, QueryWords
from sessions_app.database.sql import array_of, array_of_texts
from sessions_app.models import UserProfile

MATCH_COUNT = 5  # default number of results
MAX_ABOUT = 10_000  # maximum hits to filter by the person whom they are about
SPARE = 10  # extra results to read, because some places lie beyond a session's end or have only platform text
READ_AHEAD = 60  # minimum results to read, because speakers and duplicates are only known after reading
SURE = 10  # number of best results to read regardless of their score
NEAR_ENOUGH = 0.5  # share of the best cosine; results below it need a matching word
ENDED_FACTOR = 0.5  # factor for a fact that has ended, unless the query asks about the past
SPEAKER_FACTOR = 2.0  # factor for a turn whose speaker the query mentions
ASSISTANT_FACTOR = 0.5  # factor for an assistant's turn, unless the query addresses the assistant

_TABLES = {"fact": "moments_app_memoryatom", "moment": "moments_app_moment", "turn": "sessions_app_message"}
_VECTORS = {
    "fact": "moments_app_factembedding",
    "moment": "moments_app_momentembedding",
    "turn": "moments_app_turnembedding",
}
# All searches share one set of parameters, because psycopg doesn't cache statements with more than 50 parameters.
_BY_WORDS_SQL = """
SELECT 'text' AS search, '{kind}' AS kind, * FROM recall_{table}(%(user)s, %(scopes)s, %(rare_{kind})s,
    %(joint_{kind})s, %(with_newest_{kind})s, %(queries_{kind})s, %(weights_{kind})s, %(average_{kind})s,
    %(since)s, {limits}) WITH ORDINALITY AS result (found, score, place)
"""
_BY_MEANING_SQL = """
SELECT 'semantic' AS search, '{kind}' AS kind, * FROM nearest_{table}(%(user)s, %(shards)s, %(model)s, %(dimensions)s,
    %(vector)s, %(since)s, {limits}) WITH ORDINALITY AS result (found, score, place)
"""
_ABOUT_USER_SQL = (
    "WHERE found IN (SELECT id FROM moments_app_memoryatom WHERE user_id = %(user)s AND about_kind = 'user')"
)
_ABOUT_OTHER_SQL = """
WHERE found IN (SELECT atom.id FROM moments_app_knownperson person JOIN moments_app_memoryatom atom
    ON atom.about_id = person.id AND atom.user_id = person.user_id
    WHERE person.user_id = %(user)s AND person.key = %(about)s)
"""
# Returns the hits. For turns, the query also returns their places, because neighbors share scores, and whether the
# vector is missing. For moments, it also returns the turns that they cover. Turns are read in a subquery, because row
# security prevents planning this join on distributed tables. The hits are materialized first: the search functions
# can't query nodes while rows are being sent to these nodes.
_SEARCH_SQL = """
WITH found AS MATERIALIZED (SELECT * FROM ({searches}) found ORDER BY search, kind, place)
SELECT found.search, found.kind, found.found, found.score, COALESCE(message.session_id, moment.source_session_id),
    COALESCE(message.sequence, moment.first_sequence), moment.last_sequence,
    message.sequence > session.embedded_sequence
FROM found LEFT JOIN (
    SELECT id, session_id, sequence FROM sessions_app_message
    WHERE user_id = %(user)s AND id = ANY (ARRAY(SELECT found.found FROM found WHERE found.kind = 'turn')) OFFSET 0
) message ON found.kind = 'turn' AND message.id = found.found
LEFT JOIN (
    SELECT id, source_session_id, first_sequence, last_sequence FROM moments_app_moment
    WHERE user_id = %(user)s AND id = ANY (ARRAY(SELECT found.found FROM found WHERE found.kind = 'moment')) OFFSET 0
) moment ON found.kind = 'moment' AND moment.id = found.found
LEFT JOIN sessions_app_session session ON session.id = message.session_id
ORDER BY found.search, found.kind, found.place
"""


@dataclass
class Hits:
    """The hits of the searches. For each search and kind, the best hits come first.

    Args:
        text: scores in text search.
        semantic: cosines in semantic search.
        weights: the maximum score in text search, keyed by kind.
        unembedded: turns that have no vector yet.
        spans: the turns that the moments cover.
    """

    text: dict[Key, float] = field(default_factory=dict)
    semantic: dict[Key, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    unembedded: set[Key] = field(default_factory=set)
    spans: dict[Key, TurnSpan] = field(default_factory=dict)

    @property
    def shares(self) -> dict[Key, float]:
        """The scores in text search as shares of the maximum score. At most 1."""
        return {key: min(1.0, score / (self.weights[key[0]] or 1.0)) for key, score in self.text.items()}

    def update(self, others: "Hits") -> None:
        self.text |= others.text
        self.semantic |= others.semantic
        self.weights |= others.weights
        self.unembedded |= others.unembedded
        self.spans |= others.spans


def recall(
    user: UserProfile,
    agent_id: str,
    request: RecallRequest,
    *,
    most: int | None = None,
    least_share: float = 0.0,
    words: QueryWords | None = None,
) -> list[Result]:
    """Return the best results that a person may see, best first. Runs a constant number of queries.

    Args:
        user: the person whose memory is searched.
        agent_id: the agent whose shards are searched; blank: only shards that every agent uses.
        most: the maximum number of results; None: `MATCH_COUNT`.
        least_share: see `rank`.
        words: the words of the request, if they were looked up.
    """
    most = most or MATCH_COUNT
    words = words or query_words(user, agent_id, request.text, request.searched_vector)
    hits = search(user, words, request, most)
    least_share = 0.0 if request.relevances else least_share  # the reranker decides what is relevant
    return read_results(user, request, hits, rank(hits, most, least_share=least_share), most)


def search(user: UserProfile, words: QueryWords, request: RecallRequest, most: int) -> Hits:
    """Return the hits of all searches. Runs at most one query.

    Each search may return more than `most` hits. The caller looked up `words` with the request's vector.
    """
    depth = MAX_ABOUT if request.about else max(CANDIDATES, most + SPARE)
    # Each search excludes later messages, which would otherwise displace earlier hits.
    end = min(filter(None, (request.as_of, request.until)), default=None)
    then, limits = ("_then", "%(depth)s, %(end)s") if end else ("", "%(depth)s")
    parameters: dict[str, Any] = {
        "user": user.pk,
        "scopes": array_of_texts([f"u{user.pk}", *(f"s{shard}" for shard in words.shards)]),
        "since": request.since,
        "depth": depth,
        "end": end,
        "about": request.about,
    }
    if vector := request.searched_vector:
        parameters |= {"shards": array_of(words.shards), "vector": words.vector}
        parameters |= {"model": vector.model, "dimensions": vector.dimensions}
    about = _about(request)
    searches: list[str] = []
    hits = Hits()
    for kind in request.searched_kinds:
        if request.used_mode != "semantic":
            lookup = words.lookup(kind)
            hits.weights[kind] = lookup.worth
            searches.append(_BY_WORDS_SQL.format(kind=kind, table=_TABLES[kind] + then, limits=limits) + about)
            parameters |= {f"{name}_{kind}": value for name, value in _parameters(lookup).items()}
        if vector:
            searches.append(_BY_MEANING_SQL.format(kind=kind, table=_VECTORS[kind] + then, limits=limits) + about)
    if not searches:
        return hits
    with connection.cursor() as cursor:
        cursor.execute(_SEARCH_SQL.format(searches=" UNION ALL ".join(searches)), parameters)
        rows = cursor.fetchall()
    by_search = {"text": hits.text, "semantic": hits.semantic}
    for name, kind, found, score, session, sequence, last, is_unembedded in rows:
        key = (kind, (found, 0))
        if kind == "turn":
            if session is None:
                continue
            key = (kind, (session, sequence))
            if is_unembedded:
                hits.unembedded.add(key)
        elif session is not None:
            hits.spans[key] = (session, sequence, last)
        by_search[name][key] = score
    return hits


def _parameters(lookup: Lookup) -> dict[str, Any]:
    return {
        "rare": array_of_texts(lookup.rare),
        "joint": array_of_texts(lookup.joint),
        "with_newest": lookup.with_newest,
        "queries": array_of_texts(lookup.queries),
        "weights": array_of(lookup.weights),
        "average": lookup.average,
    }


def _about(request: RecallRequest) -> str:
    if not request.about:
        return ""
    return _ABOUT_USER_SQL if request.about == SELF else _ABOUT_OTHER_SQL


def rank(hits: Hits, most: int, *, least_share: float = 0.0) -> dict[Key, float]:
    """Return the scores of the best hits of all kinds and of neighboring turns, best first.

    Args:
        most: The number of wanted results. The result contains a few more.
        least_share: The minimum share of the best score. The first `SURE` hits are exempt.
    """
    words = word_scores(hits.shares, max(hits.weights.values(), default=0.0))
    near = near_scores(hits.semantic, unembedded=hits.unembedded - hits.semantic.keys())
    others = {key: words.get(key, 0.0) + near.get(key, 0.0) for key in words.keys() | near.keys() if key[0] != "turn"}
    moments = [(span, others[key]) for key, span in hits.spans.items()]
    turns = turn_scores(_turns_of(words), _turns_of(near), moments)
    found = [(score, place, "turn") for place, score in turns.items()]
    found += [(score, place, kind) for (kind, place), score in others.items()]
    best = nlargest(max(most + SPARE, READ_AHEAD), found)  # if scores are equal, newer hits first
    worthwhile = least_share * best[0][0] if best else 0.0
    told = best[:SURE] + [one for one in best[SURE:] if one[0] >= worthwhile]
    return {(kind, place): score for score, place, kind in told}


def _turns_of(scores: Mapping[Key, float]) -> dict[Place, float]:
    return {place: score for (kind, place), score in scores.items() if kind == "turn"}


def read_results(
    user: UserProfile, request: RecallRequest, hits: Hits, ranking: Mapping[Key, float], most: int
) -> list[Result]:
    """Return the best `most` results, read from their tables."""
    read = read_found(user, request.since, request.as_of, list(ranking))
    _add_ranks(hits, read)
    named = frozenset(words_of(request.text))
    for key, found in read.items():
        found.score = ranking[key]
        found.score *= _factor(found, request, named)
    results = [found for found in read.values() if request.until is None or found.time < request.until]
    results.sort(key=lambda result: (-result.score, -result.time.timestamp(), result.ref))
    nearest = max(hits.semantic.values(), default=0.0)
    least = NEAR_ENOUGH * nearest if request.used_mode == "hybrid" else -1.0
    relevant = [result for result in results if result.is_relevant(least)]
    return _without_repetitions(_reranked(relevant, request.relevances))[:most]


def _reranked(results: list[Result], relevances: Mapping[str, float]) -> list[Result]:
    """Return the results in a new order. Those with reranker scores exchange positions and scores."""
    places = [place for place, result in enumerate(results) if result.ref in relevances]
    known = sorted((results[place] for place in places), key=lambda result: relevances[result.ref], reverse=True)
    scores = [results[place].score for place in places]
    reranked = list(results)
    for place, result, score in zip(places, known, scores, strict=True):
        reranked[place], result.score = result, score
    return reranked


def _factor(found: Result, request: RecallRequest, named: AbstractSet[str]) -> float:
    """Return the factor for a result's score.

    Turns of mentioned speakers get a higher score, and ended facts a lower one. Assistants' turns also get a lower
    score, because replies are similar to many queries. A reply found only by text search keeps its score.
    """
    if found.score <= 0:
        return 1.0
    if found.kind != "turn":
        return ENDED_FACTOR if found.is_over and not request.asks_of_past and not found.planned else 1.0
    speaker = speaker_of(found.content)
    if speaker and not named.isdisjoint(words_of(speaker)):
        return SPEAKER_FACTOR
    is_reply = "semantic" in found.ranks and is_from_assistant(found.role, speaker)
    return ASSISTANT_FACTOR if is_reply and not request.asks_of_assistant else 1.0


def _without_repetitions(results: Iterable[Result]) -> list[Result]:
    """Leave out results that only repeat a better one. A turn replaces statements derived from it.

    A statement that is no longer valid stays, because it shows the period in which it was valid. It doesn't hide valid
    statements.
    """
    once: dict[str, Result] = {}
    for result in results:
        once.setdefault(_text_of(result) if result.kind == "turn" else result.ref, result)
    found = list(once.values())
    if all(result.kind == "turn" for result in found):
        return found
    kept: list[Result] = []
    words: dict[int, frozenset[str]] = {}  # words of valid results, keyed by position
    derived: dict[int, frozenset[str]] = {}  # words of results that are not turns, keyed by position
    for result in found:
        own = frozenset(words_of(f"{result.role} {result.said}"))  # statements begin with "User:" or a name
        if result.kind != "turn" and not result.is_over:
            if any(map(own.issubset, words.values())):
                continue
            derived[len(kept)] = own
        elif result.kind == "turn" and any(map(own.issuperset, derived.values())):
            taken = next(place for place, said in derived.items() if own.issuperset(said))
            result.score = kept[taken].score
            kept[taken], words[taken] = result, own
            del derived[taken]
            continue
        if not result.is_over:
            words[len(kept)] = own
        kept.append(result)
    return kept


def _text_of(result: Result) -> str:
    return " ".join(result.content.casefold().split())


def _add_ranks(hits: Hits, read: Mapping[Key, Result]) -> None:
    """For each search, add a result's score and its rank within its kind. Also add its share of the query's words."""
    for search, found in (("text", hits.text), ("semantic", hits.semantic)):
        places = dict.fromkeys(KINDS, 0)
        for key, score in found.items():
            places[key[0]] += 1
            if key in read:
                read[key].ranks[search] = places[key[0]]
                read[key].scores[search] = score
    for key, share in hits.shares.items():
        if key in read:
            read[key].share = share


# --- scores ---

# Neighbors of a turn get a share of its score, because an answer often contains no word of the question. Each tuple has
# the distance, the share for the turn after, and the share for the turn before. See docs/benchmarks.md for the
# measurements.
SHARES = ((1, 0.5, 0.4), (2, 0.3, 0.2), (3, 0.15, 0.1), (4, 0.08, 0.05))
CANDIDATES = 150  # number of best results of each search to rank
# If no text has at least this share of the query's words, the matches are probably random.
COMPLETE = 0.5
NEAR_PART = 0.5  # factor for these shares in semantic search, because vectors of adjacent turns are similar
SESSION_SHARE, SESSION_BEST = 0.2, 3  # share of the mean of a session's best scores, added to its turns
MOMENT_SHARE = 0.2  # share of a moment's score, added to its turns


def word_scores(shares: Mapping[Key, float], worth: float) -> dict[Key, float]:
    """Return scores that grow with the rarity of the matched words and with their share of the query.

    A text that contains all rare words of the query outranks any similar text. If even the best text contains few of
    these words, the scores are low, so similarity decides.

    Args:
        shares: The share of the total weight of the query's words that each text contains.
        worth: The sum of the inverse document frequencies of the query's words.
    """
    trust = min(1.0, max(shares.values(), default=0.0) / COMPLETE)
    return {key: trust * worth * share**2 for key, share in shares.items()}


def near_scores(similarity: Mapping[Key, float], *, unembedded: Collection[Key] = ()) -> dict[Key, float]:
    """Return how far each text is above the least similar of the best `CANDIDATES`, in standard deviations.

    Args:
        similarity: The cosines of the texts found by semantic search.
        unembedded: Texts without a vector. They get the mean, because their meaning is unknown.
    """
    if not similarity:
        return {}
    nearest = nlargest(CANDIDATES, similarity.values())
    mean = fmean(nearest)
    deviation = math.sqrt(fmean([(cosine - mean) ** 2 for cosine in nearest]))
    if deviation < 1e-9:
        return dict.fromkeys(similarity, 0.0)
    least = nearest[-1]
    scores = {key: (cosine - least if cosine > least else 0.0) / deviation for key, cosine in similarity.items()}
    return scores | dict.fromkeys(unembedded, (mean - least) / deviation)


def turn_scores(
    words: Mapping[Place, float], near: Mapping[Place, float], moments: Collection[tuple[TurnSpan, float]] = ()
) -> dict[Place, float]:
    """Return the scores of turns and their neighbors, from both searches, their sessions and their moments.

    A session can at most double a turn's score, so a turn without a score gets none from its session. Some places may
    be beyond the end of their session.

    Args:
        words, near: The scores of turns from text search and from semantic search.
        moments: The turns that each moment covers, and its score.
    """
    sessions: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for place in {**words, **near}:
        said, meant = words.get(place, 0.0), near.get(place, 0.0)
        session, sequence = place
        scores = sessions[session]
        scores[sequence] += said + meant
        shared = said + NEAR_PART * meant
        for distance, to_later, to_earlier in SHARES:
            scores[sequence + distance] += to_later * shared
            if sequence >= distance:
                scores[sequence - distance] += to_earlier * shared
    for scores in sessions.values():
        bonus = SESSION_SHARE * fmean(sorted(scores.values())[-SESSION_BEST:])
        for sequence, score in scores.items():
            scores[sequence] = score + (score if score < bonus else bonus)
    in_order = {session: sorted(sessions[session]) for session in {span[0] for span, _ in moments} & sessions.keys()}
    for (session, first, last), score in moments:
        of_session = in_order.get(session, [])
        for sequence in of_session[bisect_left(of_session, first) : bisect_right(of_session, last)]:
            sessions[session][sequence] += MOMENT_SHARE * score
    return {(session, sequence): score for session, scores in sessions.items() for sequence, score in scores.items()}
