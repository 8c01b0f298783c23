"""Scores of searches and contexts: the share of the turns that answer a question."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.conversations import Question
from benchmarks.measures import HALF, Words, content_words, share, stands_in
from benchmarks.stored import StoredConversation

BUDGETS = (500, 1_000, 2_000, 3_000)  # tokens of a context
COUNTS = (5, 10)  # results of a search


@dataclass(frozen=True)
class Score:
    """Shares of the evidence.

    Args:
        in_budget: In a context of each budget; empty if there are none.
        among: Among the first results of each number.
    """

    in_budget: Mapping[int, float]
    among: Mapping[int, float]

    @classmethod
    def mean(cls, scores: Sequence["Score"]) -> "Score":
        return cls(
            {budget: fmean(score.in_budget[budget] for score in scores) for budget in scores[0].in_budget},
            {count: fmean(score.among[count] for score in scores) for count in COUNTS},
        )

    @property
    def cells(self) -> list[str]:
        """The shares as cells of a table."""
        contexts = [f"{self.in_budget[budget]:.3f}" if self.in_budget else "" for budget in BUDGETS]
        return [*contexts, *(f"{self.among[count]:.3f}" for count in COUNTS)]


@dataclass(frozen=True)
class Statement:
    """A statement that was found or shown: the ids of the turns that it comes from, and its words."""

    sources: frozenset[str]
    words: Words


def share_in_text(
    stored: StoredConversation, question: Question, text: str, statements: Collection[Statement] = ()
) -> float:
    """Return the share of the evidence in a text.

    A turn is there if enough of its content words are, or if a statement made from it has half of them.
    """
    have = content_words(text.replace(question.q, ""))
    evidence = set(question.evidence)
    return share([turn for turn in evidence if _is_there(stored, turn, [have], statements)], evidence)


def share_among(
    stored: StoredConversation,
    question: Question,
    turns: Collection[str],
    texts: Sequence[Words] = (),
    statements: Collection[Statement] = (),
) -> float:
    """Return the share of the evidence among results.

    Args:
        stored, question: The question and the conversation that it is about.
        turns: The ids of the turns among the results.
        texts: The words of each result that is no turn.
        statements: The statements among the results.
    """
    evidence = set(question.evidence)
    found = [turn for turn in evidence if turn in turns or _is_there(stored, turn, texts, statements)]
    return share(found, evidence)


def _is_there(stored: StoredConversation, turn: str, texts: Iterable[Words], statements: Iterable[Statement]) -> bool:
    words = stored.words[turn]
    return any(stands_in(words, text) for text in texts) or any(
        turn in statement.sources and stands_in(words, statement.words, HALF) for statement in statements
    )
