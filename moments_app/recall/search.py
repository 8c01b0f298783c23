"""`recall`: find the facts, moments and turns in a person's memory that answer a query.

Each kind is searched with text search and semantic search. The scores are fused over all hits of all kinds, so a fact
precedes a turn only if it has a higher score. Irrelevant results and duplicates are left out. Filters apply inside the
searches, so the number of results doesn't depend on a person's share of a table.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, cached_property
from heapq import nlargest
from itertools import chain
from operator import attrgetter
from typing import Any

from moments_app.engines.words import is_from_assistant, speaker_of, words_of
from moments_app.models.known_person import SELF
from moments_app.recall.query_terms import query_words
from moments_app.recall.request import KINDS, RecallRequest, Span, span_in
from moments_app.recall.results import Key, Place, Result, TurnSpan, read_hits
from moments_app.recall.scoring import (
    CANDIDATES,
    Lookup,
    QueryWords,
    TurnScores,
    semantic_scores,
    share_with_sources,
    turn_scores,
    word_scores,
)
from sessions_app.database.sql import array_of, array_of_texts, prepared_cursor
from sessions_app.models import UserProfile

MATCH_COUNT = 5  # default number of results
MAX_ABOUT = 10_000  # maximum hits to filter by the person whom they are about
EXTRA_RESULTS = 10  # extra results to read, because some places lie beyond a session's end or have only platform text
READ_AHEAD = 60  # minimum results to read, because speakers and duplicates are only known after reading
ALWAYS_READ = 10  # number of best results to read regardless of their score
MIN_COSINE_SHARE = 0.5  # share of the best cosine; results below it need a matching word
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
# Returns the hits, and whether the vector is missing. For turns, the query also returns their places, because neighbors
# share scores. For moments, it also returns the turns that they cover, and for facts, their source turns. Turns
# are read in a subquery, because row security prevents planning this join on distributed tables. The hits are
# materialized first: the search functions can't query nodes while rows are being sent to these nodes.
_SEARCH_SQL = """
WITH found AS MATERIALIZED (SELECT * FROM ({searches}) found ORDER BY search, kind, place)
SELECT found.search, found.kind, found.found, found.score, COALESCE(message.session_id, moment.source_session_id),
    COALESCE(message.sequence, moment.first_sequence), moment.last_sequence,
    COALESCE(message.is_unembedded, moment.is_unembedded, atom.is_unembedded),
    atom.source_message_ids
FROM found LEFT JOIN (
    SELECT id, session_id, sequence, {no_vector_turn} AS is_unembedded FROM sessions_app_message source
    WHERE user_id = %(user)s AND id = ANY (ARRAY(SELECT found.found FROM found WHERE found.kind = 'turn')) OFFSET 0
) message ON found.kind = 'turn' AND message.id = found.found
LEFT JOIN (
    SELECT id, source_session_id, first_sequence, last_sequence, {no_vector_moment} AS is_unembedded
    FROM moments_app_moment source
    WHERE user_id = %(user)s AND id = ANY (ARRAY(SELECT found.found FROM found WHERE found.kind = 'moment')) OFFSET 0
) moment ON found.kind = 'moment' AND moment.id = found.found
LEFT JOIN (
    SELECT id, source_message_ids, {no_vector_fact} AS is_unembedded FROM moments_app_memoryatom source
    WHERE user_id = %(user)s AND id = ANY (ARRAY(SELECT found.found FROM found WHERE found.kind = 'fact')) OFFSET 0
) atom ON found.kind = 'fact' AND atom.id = found.found
ORDER BY found.search, found.kind, found.place
"""
_NO_VECTOR_SQL = """NOT EXISTS (SELECT 1 FROM {table} vector
    WHERE vector.source_id = source.id AND vector.user_id = %(user)s AND vector.model_id = %(model)s)"""


@dataclass
class Hits:
    """The hits of the searches. For each search and kind, the best hits come first."""

    text: dict[Key, float] = field(default_factory=dict)  # scores in text search
    semantic: dict[Key, float] = field(default_factory=dict)  # cosines in semantic search
    weights: dict[str, float] = field(default_factory=dict)  # the maximum score in text search, keyed by kind
    unembedded: set[Key] = field(default_factory=set)  # hits that have no vector yet
    spans: dict[Key, TurnSpan] = field(default_factory=dict)  # the turns that the moments cover
    places: dict[int, Place] = field(default_factory=dict)  # the places of turns, keyed by primary key
    source_pks: dict[Key, list[int]] = field(default_factory=dict)  # the source turns of facts

    @cached_property
    def shares(self) -> dict[Key, float]:
        """The scores in text search as shares of the maximum score. Read them after the last `update`."""
        return {key: min(1.0, score / (self.weights[key[0]] or 1.0)) for key, score in self.text.items()}

    @property
    def sources(self) -> dict[Key, list[Place]]:
        """The source turns of facts, limited to turns that are hits."""
        of_facts = {key: [self.places[pk] for pk in pks if pk in self.places] for key, pks in self.source_pks.items()}
        return {key: places for key, places in of_facts.items() if places}

    def update(self, others: "Hits") -> None:
        self.text |= others.text
        self.semantic |= others.semantic
        self.weights |= others.weights
        self.unembedded |= others.unembedded
        self.spans |= others.spans
        self.places |= others.places
        self.source_pks |= others.source_pks


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
        agent_id: the agent whose shards are searched; blank: only shards that every agent uses.
        most: the maximum number of results; None: `MATCH_COUNT`.
        words: the words of the request, if they were looked up.
    """
    most = most or MATCH_COUNT
    words = words or query_words(user, agent_id, request.text, request.searched_vector)
    hits = search(user, words, request, most)
    least_share = 0.0 if request.relevances else least_share  # the reranker decides what is relevant
    return read_results(user, request, hits, rank(hits, most, least_share=least_share), most)


def search(user: UserProfile, words: QueryWords, request: RecallRequest, most: int) -> Hits:
    """Return the hits of all searches. Each search may return more than `most` hits. Runs at most one query.

    The caller looked up `words` with the request's vector.
    """
    depth = MAX_ABOUT if request.about else max(CANDIDATES, most + EXTRA_RESULTS)
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
    about = _about_sql(request)
    searches: list[str] = []
    hits = Hits()
    for kind in request.searched_kinds:
        if request.used_mode != "semantic":
            lookup = words.lookup(kind)
            hits.weights[kind] = lookup.max_score
            searches.append(_BY_WORDS_SQL.format(kind=kind, table=_TABLES[kind] + then, limits=limits) + about)
            parameters |= {f"{name}_{kind}": value for name, value in _parameters(lookup).items()}
        if vector:
            searches.append(_BY_MEANING_SQL.format(kind=kind, table=_VECTORS[kind] + then, limits=limits) + about)
    if not searches:
        return hits
    with prepared_cursor() as cursor:
        cursor.execute(_search_sql(searches, with_vector=vector is not None), parameters)
        rows = cursor.fetchall()
    by_search = {"text": hits.text, "semantic": hits.semantic}
    for name, kind, found, score, session, sequence, last, is_unembedded, source_pks in rows:
        if kind != "turn":
            key = (kind, (found, 0))
            if session is not None:
                hits.spans[key] = (session, sequence, last)
            elif source_pks:
                hits.source_pks[key] = source_pks
        elif session is not None:
            key = (kind, (session, sequence))
            hits.places[found] = key[1]
        else:
            continue
        if is_unembedded:
            hits.unembedded.add(key)
        by_search[name][key] = score
    return hits


def _search_sql(searches: Sequence[str], *, with_vector: bool) -> str:
    missing = {
        f"no_vector_{kind}": _NO_VECTOR_SQL.format(table=table) if with_vector else "false"
        for kind, table in _VECTORS.items()
    }
    return _SEARCH_SQL.format(searches=" UNION ALL ".join(searches), **missing)


def _parameters(lookup: Lookup) -> dict[str, Any]:
    return {
        "rare": array_of_texts(lookup.rare),
        "joint": array_of_texts(lookup.joint),
        "with_newest": lookup.with_newest,
        "queries": array_of_texts(lookup.queries),
        "weights": array_of(lookup.weights),
        "average": lookup.average,
    }


def _about_sql(request: RecallRequest) -> str:
    if not request.about:
        return ""
    return _ABOUT_USER_SQL if request.about == SELF else _ABOUT_OTHER_SQL


def rank(hits: Hits, most: int, *, least_share: float = 0.0) -> dict[Key, float]:
    """Return the scores of the best hits of all kinds and of neighboring turns, best first.

    Args:
        most: the number of wanted results. The result contains a few more.
        least_share: the minimum share of the best score. The first `ALWAYS_READ` hits are exempt.
    """
    words = word_scores(hits.shares, max(hits.weights.values(), default=0.0))
    near = semantic_scores(hits.semantic, unembedded=hits.unembedded - hits.semantic.keys())
    said: dict[Place, float] = {}
    meant: dict[Place, float] = {}
    others: dict[Key, float] = defaultdict(float)
    for scores, turns in ((words, said), (near, meant)):
        for key, score in scores.items():
            if key[0] == "turn":
                turns[key[1]] = score
            else:
                others[key] += score
    moments = [(span, others[key]) for key, span in hits.spans.items()]
    of_turns = turn_scores(said, meant, moments)
    share_with_sources(of_turns, others, hits.sources)
    best = _best(of_turns, others, max(most + EXTRA_RESULTS, READ_AHEAD))
    worthwhile = least_share * best[0][0] if best else 0.0
    kept_hits = best[:ALWAYS_READ] + [one for one in best[ALWAYS_READ:] if one[0] >= worthwhile]
    return {(kind, place): score for score, place, kind in kept_hits}


def _best(turns: TurnScores, others: Mapping[Key, float], most: int) -> list[tuple[float, Place, str]]:
    """Return the scores, places and kinds of the best hits, best first, and newer turns first among equal scores."""
    of_turns = chain.from_iterable([of_session.values() for of_session in turns.values()])
    least = min(nlargest(most, chain(of_turns, others.values())), default=0.0)
    found = [
        (score, (session, sequence), "turn")
        for session, of_session in turns.items()
        for sequence, score in of_session.items()
        if score >= least
    ]
    found += [(score, place, kind) for (kind, place), score in others.items() if score >= least]
    return sorted(found, reverse=True)[:most]


def read_results(
    user: UserProfile, request: RecallRequest, hits: Hits, ranking: Mapping[Key, float], most: int
) -> list[Result]:
    read = read_hits(user, request.since, request.as_of, list(ranking))
    _add_ranks(hits, read)
    asked = frozenset(words_of(request.text))
    is_mentioned = cache(lambda speaker: not asked.isdisjoint(words_of(speaker)))  # many turns have the same speaker
    for key, found in read.items():
        found.score = ranking[key]
        found.score *= _score_factor(found, request, is_mentioned)
    results = [found for found in read.values() if request.until is None or found.time < request.until]
    results.sort(key=attrgetter("ref"))
    results.sort(key=attrgetter("score", "time"), reverse=True)  # equal results stay sorted by address
    nearest = max(hits.semantic.values(), default=0.0)
    least = MIN_COSINE_SHARE * nearest if request.used_mode == "hybrid" else -1.0
    relevant = [result for result in results if result.is_relevant(least)]
    return _deduplicated(_reranked(relevant, request.relevances))[:most]


def _reranked(results: list[Result], relevances: Mapping[str, float]) -> list[Result]:
    """Sort the results with reranker scores by these scores.

    Other results keep their places. Each place keeps its score.
    """
    places = [place for place, result in enumerate(results) if result.ref in relevances]
    known = sorted((results[place] for place in places), key=lambda result: relevances[result.ref], reverse=True)
    scores = [results[place].score for place in places]
    reranked = list(results)
    for place, result, score in zip(places, known, scores, strict=True):
        reranked[place], result.score = result, score
    return reranked


def _score_factor(found: Result, request: RecallRequest, is_mentioned: Callable[[str], bool]) -> float:
    """Return the factor for a result's score.

    Turns of mentioned speakers get a higher score, and ended facts a lower one. Assistants' turns also get a lower
    score, because replies are similar to many queries. A reply found only by text search keeps its score.
    """
    if found.score <= 0:
        return 1.0
    if found.kind != "turn":
        return ENDED_FACTOR if found.has_ended and not request.asks_about_past and not found.planned else 1.0
    speaker = speaker_of(found.content)
    if speaker and is_mentioned(speaker):
        return SPEAKER_FACTOR
    is_reply = "semantic" in found.ranks and is_from_assistant(found.role, speaker)
    return ASSISTANT_FACTOR if is_reply and not request.asks_assistant else 1.0


def _deduplicated(results: Iterable[Result]) -> list[Result]:
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
        result.words = words_of(result.unmarked_content)
        # Statements begin with "User:" or a name.
        own = frozenset([*result.words, result.role] if result.role else result.words)
        if result.kind != "turn" and not result.has_ended:
            if any(map(own.issubset, words.values())):
                continue
            derived[len(kept)] = own
        elif result.kind == "turn" and any(map(own.issuperset, derived.values())):
            taken = next(place for place, said in derived.items() if own.issuperset(said))
            result.score = kept[taken].score
            kept[taken], words[taken] = result, own
            del derived[taken]
            continue
        if not result.has_ended:
            words[len(kept)] = own
        kept.append(result)
    return kept


def _text_of(result: Result) -> str:
    return " ".join(result.content.casefold().split())


def _add_ranks(hits: Hits, read: Mapping[Key, Result]) -> None:
    for search, found in (("text", hits.text), ("semantic", hits.semantic)):
        places = dict.fromkeys(KINDS, 0)
        for key, score in found.items():
            places[key[0]] += 1
            if key in read:
                result = read[key]
                result.ranks[search] = places[key[0]]
                result.scores[search] = score
    for key, share in hits.shares.items():
        if key in read:
            read[key].share = share


# --- times in a query: results from a span of time, even if they contain no word of the query ---

MAX_SCANNED = 5_000  # maximum newest turns of a span to sample from
# A long span has more turns than fit into a context, so the query samples turns from all parts of the span. It uses the
# indexes of a person's newest turns, moments and facts.
_SCAN_SQL = """
(SELECT 'moment' AS kind, id, 0::bigint AS sequence FROM moments_app_moment
 WHERE user_id = %(user)s AND ends_at >= %(since)s AND ends_at < %(until)s
 ORDER BY ends_at DESC, first_sequence DESC, id DESC LIMIT %(most)s)
UNION ALL
(SELECT 'fact', id, 0 FROM moments_app_memoryatom
 WHERE user_id = %(user)s AND formed_at >= %(since)s AND formed_at < %(until)s AND state NOT IN ('evicted', 'line')
 ORDER BY formed_at DESC, id DESC LIMIT %(most)s)
UNION ALL
(SELECT 'turn', session_id, sequence FROM (
    SELECT session_id, sequence, row_number() OVER (ORDER BY created_at, id) AS place, count(*) OVER () AS number
    FROM (
        SELECT session_id, sequence, created_at, id FROM sessions_app_message
        WHERE user_id = %(user)s AND created_at >= %(since)s AND created_at < %(until)s
          AND kind IN ('turn', 'archived') AND role IN ('user', 'assistant') AND retracted_at IS NULL
        ORDER BY created_at DESC, id DESC LIMIT %(scanned)s
    ) newest
 ) said WHERE (place - 1) %% greatest(ceil(number::numeric / %(most)s), 1) = 0)
"""


def recall_with_span(
    user: UserProfile, agent_id: str, request: RecallRequest, *, most: int
) -> tuple[list[Result], Span | None]:
    """Return the best results that a person may see, and the span mentioned in the query.

    Results from the span come first. They fill the whole list, or half of it if the query also asks for something else.
    Return no span if the request has time limits, or is about one person.
    """
    words = query_words(user, agent_id, request.text, request.searched_vector)
    found = recall(user, agent_id, request, most=most, words=words)
    has_own = request.since or request.until or request.about
    if has_own or not (span := span_for(user, request, words, request.text)):
        return found, None
    then = results_in_span(user, agent_id, request, span, most=most)
    first = then if span.is_whole_query else then[: (most + 1) // 2]
    known = {result.ref for result in first}
    others = [result for result in found if result.ref not in known]
    return [*sorted(first, key=lambda result: result.time), *others][:most], span


def span_for(user: UserProfile, request: RecallRequest, words: QueryWords, query: str) -> Span | None:
    """Return the span mentioned in a query, relative to the time of the request, not to the current time."""
    is_read = request.as_of is None and query == request.text
    return words.span if is_read else span_in(query, request.now_of(user))


def results_in_span(user: UserProfile, agent_id: str, request: RecallRequest, span: Span, *, most: int) -> list[Result]:
    """Return results from a span: first those that match the other words of the query, then moments, facts and turns.

    Runs a constant number of queries. Returns up to `most` results of each kind.
    """
    scores: dict[Key, float] = {}
    if not span.is_whole_query:
        within = replace(request, text=span.other_words, since=span.since, until=span.until)
        words = query_words(user, agent_id, span.other_words, request.searched_vector)
        scores = rank(search(user, words, within, most), most)
    keys = dict.fromkeys([*scores, *_sampled_keys(user, request, span, most)])
    found = read_hits(user, span.since, request.as_of, list(keys))
    for key, result in found.items():
        result.score = scores.get(key, 0.0)
    return [found[key] for key in keys if key in found and span.has(found[key].time)]


def _sampled_keys(user: UserProfile, request: RecallRequest, span: Span, most: int) -> list[Key]:
    until = min(span.until, request.as_of) if request.as_of else span.until
    parameters: dict[str, int | datetime] = {
        "user": user.pk,
        "since": span.since,
        "until": until,
        "most": most,
        "scanned": MAX_SCANNED,
    }
    with prepared_cursor() as cursor:
        cursor.execute(_SCAN_SQL, parameters)
        return [(kind, (pk, sequence)) for kind, pk, sequence in cursor.fetchall() if kind in request.kinds]
