"""Questions about stored conversations: ask a site, and score the answers."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.clients import Http, timed
from benchmarks.conversations import Question
from benchmarks.measures import Words, content_words, fill_budget, share, stands_in
from benchmarks.rankings import BUDGETS
from benchmarks.stored import StoredConversation, TurnPlace, put_in

MOST, FEW = 10, 5  # numbers of results for which recall is reported
RANKED = 100  # turns from which a context is filled by rank alone: the most that a search returns
GREETING = [{"role": "user", "content": "Hi there."}]


@dataclass(frozen=True)
class SearchScore:
    """The score of a search for one question.

    Args:
        groups: The groups of the question: its conversation and its category.
        of_most, of_few: The share of the evidence among the results, and among the first few of them.
        seconds: How long the same search took when repeated, with the query's vector known.
    """

    groups: tuple[str, str]
    of_most: float
    of_few: float
    seconds: float


@dataclass(frozen=True)
class TextScore:
    """The score of a text: its share of the evidence, its share of the answer's words, and its tokens."""

    evidence: float
    answer: float
    tokens: int


class Asker:
    """A client that asks about stored conversations.

    Args:
        http: A connection to the site.
        mode: The mode in which searches must be answered: a failing provider is an error here.
    """

    def __init__(self, http: Http, mode: str) -> None:
        self._http = http
        self._mode = mode

    def search(self, stored: StoredConversation, question: Question, fields: dict[str, Any]) -> SearchScore:
        """Search twice: the first time shows what is found, the second how long it takes.

        Args:
            stored: The conversation.
            question: The query.
            fields: Further fields of the request; without any, it is the default search.
        """
        body = {"user_id": stored.conversation.id, "query": question.q, "match_count": MOST} | fields
        found = [_Result.of(result) for result in self._results(body)]
        few, most = (_share_among(stored, question, found[:count]) for count in (FEW, MOST))
        seconds = timed(lambda: self._http.request("POST", "/api/v1/memory/search", body))
        return SearchScore(_groups(stored, question), most, few, seconds)

    def greet(self, stored: StoredConversation, session_id: str) -> None:
        """Begin the session for which contexts are requested."""
        put_in(self._http, stored.conversation.id, session_id, GREETING)

    def fill_by_rank(self, stored: StoredConversation, question: Question) -> dict[int, TextScore]:
        """Fill each budget with the turns that a search finds, best first, and score the texts."""
        from sessions_app.tokens import estimate_tokens

        ranked = [(line, estimate_tokens(line)) for line in self._ranked(stored, question)]
        return {budget: _score(stored, question, *fill_budget(ranked, budget)) for budget in BUDGETS}

    def score_contexts(self, stored: StoredConversation, question: Question, session_id: str) -> dict[int, TextScore]:
        """Request a context for each budget, and score it."""
        return {
            budget: _score(stored, question, *self._context(stored, question, session_id, budget)) for budget in BUDGETS
        }

    def _context(self, stored: StoredConversation, question: Question, session_id: str, budget: int) -> tuple[str, int]:
        body = {"user_id": stored.conversation.id, "session_id": session_id, "query": question.q}
        wanted = body | {"max_tokens": budget, "format": "markdown"}
        answer = json.loads(self._http.request("POST", "/api/v1/memory/context", wanted))
        return answer["context"], answer["budget"]["estimated_used"]

    def _ranked(self, stored: StoredConversation, question: Question) -> list[str]:
        """Return the turns of the conversation in the order of a search."""
        body = {"user_id": stored.conversation.id, "query": question.q, "match_count": RANKED, "kinds": ["turn"]}
        places = [(result["session_id"], result["sequence"]) for result in self._results(body)]
        return [stored.lines[stored.turns[place]] for place in places if place in stored.turns]

    def _results(self, body: dict[str, Any]) -> list[Any]:
        answer = json.loads(self._http.request("POST", "/api/v1/memory/search", body))
        if answer["mode"] != self._mode:
            raise RuntimeError(f"SearchScore by {answer['mode']} instead of {self._mode}: does the provider work?")
        results: list[Any] = answer["results"]
        return results


@dataclass(frozen=True)
class _Result:
    """A result: its place if it is a turn, and the words of its text."""

    place: TurnPlace | None
    words: Words

    @classmethod
    def of(cls, result: Any) -> "_Result":
        place = (result["session_id"], result["sequence"]) if result["kind"] == "turn" else None
        return cls(place, content_words(result["content"]))


def _share_among(stored: StoredConversation, question: Question, found: Sequence[_Result]) -> float:
    """Return the share of the evidence that is among the results, as the turn itself or as a text with its words."""
    evidence = set(question.evidence)
    return share([turn for turn in evidence if _is_among(stored, turn, found)], evidence)


def _is_among(stored: StoredConversation, turn: str, found: Iterable[_Result]) -> bool:
    place, words = stored.places[turn], stored.words[turn]
    return any(result.place == place or (words and stands_in(words, result.words)) for result in found)


def _score(stored: StoredConversation, question: Question, text: str, tokens: int) -> TextScore:
    have = content_words(text.replace(question.q, ""))
    evidence = set(question.evidence)
    answer = content_words(question.a)
    there = [turn for turn in evidence if stands_in(stored.words[turn], have)]
    return TextScore(share(there, evidence), share(answer & have, answer), tokens)


def _groups(stored: StoredConversation, question: Question) -> tuple[str, str]:
    return f"conversation {stored.conversation.id}", f"category {question.category}"
