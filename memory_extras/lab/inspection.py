"""Inspection of a query: run a search step by step, and measure each step.

The steps are those of `recall`, except that word searches and vector searches are separate queries, so that each can be
timed. The results don't count as used.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from django.conf import settings

from moments_app.models.embedding import KINDS
from moments_app.recall.query import with_names, with_relevances, with_vector
from moments_app.recall.query_terms import query_words
from moments_app.recall.request import RecallRequest
from moments_app.recall.results import Result
from moments_app.recall.scoring import QueryWords
from moments_app.recall.search import MATCH_COUNT, Hits, rank, read_results, search
from sessions_app.models import UserProfile
from sessions_app.row_security import acting_for

# If a person has fewer vectors than this, the functions `nearest_…` compare all of them instead of using the index.
EXACT = 20_000


@dataclass(frozen=True)
class VectorSearch:
    """How the vectors of one kind were searched.

    `vectors` is the number of the person's vectors of this kind and model, counted up to `EXACT`.
    """

    kind: str
    vectors: int

    @property
    def is_exact(self) -> bool:
        return self.vectors < EXACT


@dataclass
class Inspection:
    """The results, best first, and how they were found.

    Args:
        request: The request, with the query's vector if there is one.
        steps: The milliseconds of each step, in order.
        words: The words of the query. None if there is no such person.
        plans: How vectors were searched, one item per kind.
    """

    request: RecallRequest
    steps: dict[str, float] = field(default_factory=dict)
    words: QueryWords | None = None
    results: list[Result] = field(default_factory=list)
    plans: list[VectorSearch] = field(default_factory=list)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.steps[step] = (time.perf_counter() - started) * 1000


def inspect(user: UserProfile, agent_id: str, request: RecallRequest, *, limit: int | None = None) -> Inspection:
    """Run a person's search, with a constant number of queries.

    Call it outside any transaction, because it may wait for the embeddings endpoint.

    Args:
        agent_id: The agent whose shards are visible. If blank, only shards of all agents are visible.
        limit: The maximum number of results, by default `MATCH_COUNT`.
    """
    seen = Inspection(request)
    with seen.timed("embedding"):
        named = with_names(request.text, user.user_id, application=user.application_id)
        seen.request = with_vector(replace(request, text=named))
    if settings.RERANK.base_url:
        with seen.timed("reranking"):
            seen.request = with_relevances(
                seen.request, user.user_id, application=user.application_id, agent_id=agent_id
            )
    with acting_for(user.user_id, application=user.application_id) as person:
        if person is not None:  # the person may have been erased
            _look_up(seen, person, agent_id, limit or MATCH_COUNT)
    seen.plans = _plans(user, seen.request)
    return seen


def _look_up(seen: Inspection, user: UserProfile, agent_id: str, limit: int) -> None:
    request, hits = seen.request, Hits()
    with seen.timed("words"):
        seen.words = query_words(user, agent_id, request.text, request.searched_vector)
    for one in request.by_mode():
        with seen.timed(f"search by {one.mode}"):
            hits.update(search(user, seen.words, one, limit))
    with seen.timed("fusion"):
        ranking = rank(hits, limit)
    with seen.timed("reading"):
        seen.results = read_results(user, request, hits, ranking, limit)


def _plans(user: UserProfile, request: RecallRequest) -> list[VectorSearch]:
    """Return how the vectors of each kind were searched. The database functions use the same threshold."""
    if request.used_mode == "text" or request.vector is None:
        return []
    model = request.vector.model
    own = {kind: KINDS[kind]._default_manager.filter(user=user, model=model) for kind in request.kinds}
    return [VectorSearch(kind, vectors[:EXACT].count()) for kind, vectors in own.items()]
