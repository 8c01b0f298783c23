"""A query looked into: what recall finds for it as a request would, step by step, with the time each took.

The steps are those of `recall`; only that words and meaning are searched by a statement each, to be timed apart.
Nothing that is found counts as returned.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.conf import settings

from moments_app.models.embedding import KINDS
from moments_app.recall.query_vector import with_vector
from moments_app.recall.search import Found, Question, Result, in_order, searched, told
from moments_app.recall.words import QueryWords, query_words
from moments_app.vector_search import EXACT
from sessions_app.models import UserProfile
from sessions_app.row_security import acting_for


@dataclass(frozen=True)
class Plan:
    """How the vectors of a kind were searched.

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
        question: with the query's vector, where one could be had.
        steps: milliseconds of each, in their order.
        words: of the query; None for nobody.
        results: best first.
        plans: one a kind whose vectors were searched.
    """

    question: Question
    steps: dict[str, float] = field(default_factory=dict)
    words: QueryWords | None = None
    results: list[Result] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Notes how long its block took."""
        started = time.perf_counter()
        yield
        self.steps[step] = (time.perf_counter() - started) * 1000


def inspect(user: UserProfile, agent_id: str, question: Question, *, most: int | None = None) -> Inspection:
    """Asks as a request of this person would; a constant number of statements.

    Call it outside any transaction: it may wait for the embeddings endpoint.

    Args:
        user: whose memory it is.
        agent_id: whose shards are seen; blank: only those of every agent.
        question: what is asked for, without a vector.
        most: results; None is `RECALL__MATCH_COUNT`.
    """
    seen = Inspection(question)
    with seen.timed("embedding"):
        seen.question = with_vector(question)
    with acting_for(user.user_id) as person:
        if person is not None:  # erased meanwhile
            _look_up(seen, person, agent_id, most or settings.RECALL.match_count)
    seen.plans = _plans(user, seen.question)
    return seen


def _look_up(seen: Inspection, user: UserProfile, agent_id: str, most: int) -> None:
    question, found = seen.question, list[Found]()
    with seen.timed("words"):
        seen.words = query_words(user.pk, agent_id, question.text)
    for alone in question.alone():
        with seen.timed(f"search by {alone.mode}"):
            found += searched(user, seen.words, alone, most)
    with seen.timed("fusion"):
        order = in_order(found)
    with seen.timed("reading"):
        seen.results = told(user, question, found, order, most)


def _plans(user: UserProfile, question: Question) -> list[Plan]:
    """By the condition that the search itself goes by."""
    if question.used_mode == "text" or question.vector is None:
        return []
    model = question.vector.model
    own = {kind: KINDS[kind]._default_manager.filter(user=user, model=model) for kind in question.kinds}
    return [Plan(kind, vectors[:EXACT].count()) for kind, vectors in own.items()]
