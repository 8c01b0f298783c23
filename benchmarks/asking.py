"""Asks a site the questions of conversations that it holds, and scores what comes back."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.clients import Http, timed
from benchmarks.conversations import Conversation, Question
from benchmarks.measures import Words, content_words, filled, share, stands_in
from benchmarks.stored import Place, put_in

MOST, FEW = 10, 5  # results that recall is told of
RANKED = 100  # turns that filling by rank alone takes from: the most a search returns
BUDGETS = (500, 1_000, 2_000, 3_000)
GREETING = [{"role": "user", "content": "Hi there."}]


class Stored:
    """A conversation in the site, with where each of its turns is and the words of its text.

    Args:
        conversation: of a person of its own.
        places: of its turns, by their ids.
    """

    def __init__(self, conversation: Conversation, places: dict[str, Place]) -> None:
        self.conversation = conversation
        self.places = places
        self.words = {turn.id: content_words(turn.text) for _session, turn in conversation.turns}
        self.lines = {
            places[turn.id]: f"- {turn.speaker}, {session.at:%Y-%m-%d}: {turn.text}"
            for session, turn in conversation.turns
        }


@dataclass(frozen=True)
class Searched:
    """What a search found for one question.

    Args:
        groups: what the question belongs to: its conversation, its category.
        of_most, of_few: share of the evidence among the results, and among the first few of them.
        seconds: that the same took when asked again, a query's vector being known.
    """

    groups: tuple[str, str]
    of_most: float
    of_few: float
    seconds: float


@dataclass(frozen=True)
class Filled:
    """What of an answer stands in a text: share of the evidence, share of the answer's words, and the text's tokens."""

    evidence: float
    answer: float
    tokens: int


class Asker:
    """Asks about what is stored.

    Args:
        http: of the site.
        mode: that its searches should be answered in: a provider that fails is an error here.
    """

    def __init__(self, http: Http, mode: str) -> None:
        self._http = http
        self._mode = mode

    def searched(self, stored: Stored, question: Question, asked: dict[str, Any]) -> Searched:
        """Searches twice: the first time tells what is found, the second how long it takes.

        Args:
            stored: what it is about.
            question: the query.
            asked: further fields of the request; without any, the search is the default one.
        """
        body = {"user_id": stored.conversation.id, "query": question.q, "match_count": MOST} | asked
        found = [_Result.of(result) for result in self._results(body)]
        few, most = (_share_among(stored, question, found[:count]) for count in (FEW, MOST))
        seconds = timed(lambda: self._http.request("POST", "/api/v1/memory/search", body))
        return Searched(_groups(stored, question), most, few, seconds)

    def greet(self, stored: Stored, session_id: str) -> None:
        """Begins the session that contexts are asked from."""
        put_in(self._http, stored.conversation.id, session_id, GREETING)

    def by_rank(self, stored: Stored, question: Question) -> dict[int, Filled]:
        """What of the answer is in as many of the turns that a search finds, best first, as each budget holds."""
        from sessions_app.tokens import estimate_tokens

        ranked = [(line, estimate_tokens(line)) for line in self._ranked(stored, question)]
        return {budget: _filled(stored, question, *filled(ranked, budget)) for budget in BUDGETS}

    def served(self, stored: Stored, question: Question, session_id: str) -> dict[int, Filled]:
        """What of it is in the context of each budget."""
        return {
            budget: _filled(stored, question, *self._context(stored, question, session_id, budget))
            for budget in BUDGETS
        }

    def _context(self, stored: Stored, question: Question, session_id: str, budget: int) -> tuple[str, int]:
        body = {"user_id": stored.conversation.id, "session_id": session_id, "query": question.q}
        wanted = body | {"max_tokens": budget, "format": "markdown"}
        answer = json.loads(self._http.request("POST", "/api/v1/memory/context", wanted))
        return answer["context"], answer["budget"]["estimated_used"]

    def _ranked(self, stored: Stored, question: Question) -> list[str]:
        """The turns of the conversation as a search puts them."""
        body = {"user_id": stored.conversation.id, "query": question.q, "match_count": RANKED, "kinds": ["turn"]}
        places = [(result["session_id"], result["sequence"]) for result in self._results(body)]
        return [stored.lines[place] for place in places if place in stored.lines]

    def _results(self, body: dict[str, Any]) -> list[Any]:
        answer = json.loads(self._http.request("POST", "/api/v1/memory/search", body))
        if answer["mode"] != self._mode:
            raise RuntimeError(f"Searched by {answer['mode']} in place of {self._mode}: is the provider well?")
        results: list[Any] = answer["results"]
        return results


@dataclass(frozen=True)
class _Result:
    """A result: its place, if it is a turn, and the words of its text."""

    place: Place | None
    words: Words

    @classmethod
    def of(cls, result: Any) -> "_Result":
        place = (result["session_id"], result["sequence"]) if result["kind"] == "turn" else None
        return cls(place, content_words(result["content"]))


def _share_among(stored: Stored, question: Question, found: Sequence[_Result]) -> float:
    """Share of the evidence that is among results: a turn itself, or one that has its words."""
    evidence = set(question.evidence)
    return share([turn for turn in evidence if _is_among(stored, turn, found)], evidence)


def _is_among(stored: Stored, turn: str, found: Iterable[_Result]) -> bool:
    place, words = stored.places[turn], stored.words[turn]
    return any(result.place == place or (words and stands_in(words, result.words)) for result in found)


def _filled(stored: Stored, question: Question, text: str, tokens: int) -> Filled:
    have = content_words(text.replace(question.q, ""))
    evidence = set(question.evidence)
    answer = content_words(question.a)
    there = [turn for turn in evidence if stands_in(stored.words[turn], have)]
    return Filled(share(there, evidence), share(answer & have, answer), tokens)


def _groups(stored: Stored, question: Question) -> tuple[str, str]:
    return f"conversation {stored.conversation.id}", f"category {question.category}"
