"""Questions about stored conversations: a site's contexts and results, and recall's ranking of turns."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from benchmarks.clients import Http
from benchmarks.conversations import Question
from benchmarks.evidence import BUDGETS, COUNTS, Score, Statement, share_among, share_in_text
from benchmarks.measures import content_words, fill_budget
from benchmarks.stored import StoredConversation

WORDS, VECTORS, DEFAULT = "words alone", "vectors alone", "default"
MODES = {WORDS: "text", VECTORS: "semantic", DEFAULT: "hybrid"}  # of a search
TURNS, EVERYTHING = "turns", "everything"
RANKED = 150  # turns that fill the largest budget
SESSION = "asked"  # a session without messages, so a context has no live turns

PATIENCE = 60  # seconds to retry while a provider does not respond

Answer = TypeVar("Answer")
Scores = dict[tuple[str, str], Score]  # by what is searched (turns or everything) and by method (words, vectors, both)


class Degraded(Exception):
    """A search or context used only words, because the provider did not respond."""


@dataclass(frozen=True)
class Asker:
    """A client that asks about stored conversations.

    Args:
        key: The site's API key.
        ports: The ports of the web servers for contexts, by search method.
        searches: The search methods.
    """

    key: str
    ports: Mapping[str, int]
    searches: Sequence[str]

    def ask(self, stored: StoredConversation, question: Question) -> Scores:
        """Ask a question with all methods."""
        scores = rank_turns(stored, question, self.searches)
        for search in self.searches:
            in_budget = self._contexts(stored, question, search) if search in self.ports else {}
            scores[EVERYTHING, search] = Score(in_budget, self._results(stored, question, search))
        return scores

    def _contexts(self, stored: StoredConversation, question: Question, search: str) -> dict[int, float]:
        """Request a context for each budget. Return its share of the evidence."""
        with closing(Http(self.ports[search], self.key)) as http:
            return {budget: _context(http, stored, question, search, budget) for budget in BUDGETS}

    def _results(self, stored: StoredConversation, question: Question, search: str) -> dict[int, float]:
        """Search everything. Return the share of the evidence among the first results."""
        body = {"user_id": stored.conversation.id, "query": question.q, "mode": MODES[search]}
        with closing(Http(self.ports[WORDS if search == WORDS else DEFAULT], self.key)) as http:
            found = post(http, "search", search, body | {"match_count": max(COUNTS)})["results"]
        return {count: _share_of_results(stored, question, found[:count]) for count in COUNTS}


def _context(http: Http, stored: StoredConversation, question: Question, search: str, budget: int) -> float:
    body = {"user_id": stored.conversation.id, "session_id": SESSION, "query": question.q}
    answer = post(http, "context", search, body | {"max_tokens": budget, "format": "markdown"})
    items = [item for layer in answer["layers"] for item in layer["items"]]
    return share_in_text(stored, question, answer["context"], _statements(stored, items, "text"))


def rank_turns(stored: StoredConversation, question: Question, searches: Sequence[str]) -> Scores:
    """Rank the person's turns by recall in this process, and score each ranking.

    Raises:
        Degraded: There are no vectors.
    """
    ranked = rank(stored, question.q, [MODES[search] for search in searches])
    return {
        (TURNS, search): _score_turns(stored, question, turns) for search, turns in zip(searches, ranked, strict=True)
    }


def rank(stored: StoredConversation, query: str, modes: Sequence[str]) -> list[list[str]]:
    """Rank the person's turns by recall in this process. Return their ids for each search mode.

    Raises:
        Degraded: A mode needs vectors, but there are none.
    """
    from moments_app.recall.query import with_vector
    from moments_app.recall.request import RecallRequest
    from moments_app.recall.search import recall
    from sessions_app.models import UserProfile

    user = UserProfile.objects.get(user_id=stored.conversation.id)
    asked = RecallRequest(query, ["turn"])
    if set(modes) != {MODES[WORDS]} and (asked := with_vector(asked)).degraded:
        raise Degraded
    found = [recall(user, "", replace(asked, mode=mode), most=RANKED) for mode in modes]
    places = [[(result.session_id, result.sequence) for result in results] for results in found]
    return [[stored.turns[place] for place in some if place in stored.turns] for some in places]


def _score_turns(stored: StoredConversation, question: Question, ranked: Sequence[str]) -> Score:
    """Score the turns that fill each budget in ranked order, each with only its date and speaker."""
    from sessions_app.text.length import estimate_tokens

    lines = [(stored.lines[turn], estimate_tokens(stored.lines[turn])) for turn in ranked]
    in_budget = {budget: share_in_text(stored, question, fill_budget(lines, budget)[0]) for budget in BUDGETS}
    return Score(in_budget, {count: share_among(stored, question, ranked[:count]) for count in COUNTS})


def _share_of_results(stored: StoredConversation, question: Question, found: Sequence[dict[str, Any]]) -> float:
    places = [(result["session_id"], result["sequence"]) for result in found if result["kind"] == "turn"]
    turns = {stored.turns[place] for place in places if place in stored.turns}
    texts = [content_words(result["content"]) for result in found if result["kind"] != "turn"]
    return share_among(stored, question, turns, texts, _statements(stored, found, "content"))


def _statements(stored: StoredConversation, shown: Sequence[dict[str, Any]], text: str) -> list[Statement]:
    """Return the results that are statements, with their source turns."""
    known = [(stored.sources[one["ref"]], one[text]) for one in shown if one["ref"] in stored.sources]
    return [Statement(sources, content_words(said)) for sources, said in known]


def until_answered(ask: Callable[[], Answer]) -> Answer:
    """Retry until the provider of embeddings responds, and return the result.

    Raises:
        RuntimeError: The provider does not respond within `PATIENCE` seconds.
    """
    from django.db import connection

    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            try:
                return ask()
            except Degraded:
                time.sleep(1)
        raise RuntimeError("The embeddings provider does not respond.")
    finally:
        connection.close()


def post(http: Http, what: str, search: str, body: dict[str, Any]) -> Any:
    """Request a context or a search.

    Raises:
        Degraded: It used only words, but vectors were expected.
    """
    answer = json.loads(http.request("POST", f"/api/v1/memory/{what}", body))
    if answer["degraded"] and search != WORDS:
        raise Degraded
    return answer
