"""A query looked into: what recall finds for it as a request would, step by step, with the time that each step took.

The steps are those of `recall`, but words and meaning are searched by a statement each, to be timed apart. Nothing that
is found counts as returned.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.conf import settings

from moments_app.models.embedding import KINDS
from moments_app.recall.query_vector import with_vector
from moments_app.recall.request import RecallRequest
from moments_app.recall.rerank import with_relevances
from moments_app.recall.results import Result
from moments_app.recall.search import MATCH_COUNT, Hits, rank, read_results, search
from moments_app.recall.terms import QueryWords
from moments_app.recall.words import query_words
from sessions_app.models import UserProfile
from sessions_app.row_security import acting_for

# Below this number, the functions `nearest_…` read all vectors of a person instead of the index.
EXACT = 20_000


@dataclass(frozen=True)
class VectorSearch:
    """The way in which the vectors of a kind were searched.

    Args:
        kind: of memory.
        vectors: that the person has of the model in use, counted up to `EXACT`.
    """

    kind: str
    vectors: int

    @property
    def is_exact(self) -> bool:
        """All were read; else the index of nearest neighbours was."""
        return self.vectors < EXACT


@dataclass
class Inspection:
    """What was found, and how.

    Args:
        request: with the query's vector, where one could be had.
        steps: milliseconds of each, in their order.
        words: of the query; None for nobody.
        results: best first.
        plans: one a kind whose vectors were searched.
    """

    request: RecallRequest
    steps: dict[str, float] = field(default_factory=dict)
    words: QueryWords | None = None
    results: list[Result] = field(default_factory=list)
    plans: list[VectorSearch] = field(default_factory=list)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Note how long the block took."""
        started = time.perf_counter()
        yield
        self.steps[step] = (time.perf_counter() - started) * 1000


def inspect(user: UserProfile, agent_id: str, request: RecallRequest, *, most: int | None = None) -> Inspection:
    """Search as a request of this person would; a constant number of statements.

    Call it outside any transaction: it may wait for the embeddings endpoint.

    Args:
        user: whose memory it is.
        agent_id: whose shards are seen; blank: only those of every agent.
        request: what to search for, without a vector.
        most: results; None is `MATCH_COUNT`.
    """
    seen = Inspection(request)
    with seen.timed("embedding"):
        seen.request = with_vector(request)
    if settings.RERANK.base_url:
        with seen.timed("reranking"):
            seen.request = with_relevances(
                seen.request, user.user_id, application=user.application_id, agent_id=agent_id
            )
    with acting_for(user.user_id, application=user.application_id) as person:
        if person is not None:  # erased meanwhile
            _look_up(seen, person, agent_id, most or MATCH_COUNT)
    seen.plans = _plans(user, seen.request)
    return seen


def _look_up(seen: Inspection, user: UserProfile, agent_id: str, most: int) -> None:
    request, hits = seen.request, Hits()
    with seen.timed("words"):
        seen.words = query_words(user, agent_id, request.text, request.searched_vector)
    for one in request.by_mode():
        with seen.timed(f"search by {one.mode}"):
            hits.update(search(user, seen.words, one, most))
    with seen.timed("fusion"):
        ranking = rank(hits, most)
    with seen.timed("reading"):
        seen.results = read_results(user, request, hits, ranking, most)


def _plans(user: UserProfile, request: RecallRequest) -> list[VectorSearch]:
    """Return how each kind was searched, by the condition that the search itself goes by."""
    if request.used_mode == "text" or request.vector is None:
        return []
    model = request.vector.model
    own = {kind: KINDS[kind]._default_manager.filter(user=user, model=model) for kind in request.kinds}
    return [VectorSearch(kind, vectors[:EXACT].count()) for kind, vectors in own.items()]
