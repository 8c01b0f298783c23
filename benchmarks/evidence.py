"""Scores of searches and contexts: the share of a question's evidence that they contain."""

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
        in_budget: The share in a context of each budget. Empty if there are none.
        among: The share among the first results, by their number.
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
    """A statement in the results: the ids of its source turns, and its words."""

    sources: frozenset[str]
    words: Words


def share_in_text(
    stored: StoredConversation, question: Question, text: str, statements: Collection[Statement] = ()
) -> float:
    """Return the share of the evidence in a text.

    A turn counts if enough of its content words are in the text, or if a statement derived from it has half of them.
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
        stored, question: The conversation and the question.
        turns: The ids of the turns in the results.
        texts: The words of each result that isn't a turn.
        statements: The statements in the results.
    """
    evidence = set(question.evidence)
    found = [turn for turn in evidence if turn in turns or _is_there(stored, turn, texts, statements)]
    return share(found, evidence)


def _is_there(stored: StoredConversation, turn: str, texts: Iterable[Words], statements: Iterable[Statement]) -> bool:
    words = stored.words[turn]
    return any(stands_in(words, text) for text in texts) or any(
        turn in statement.sources and stands_in(words, statement.words, HALF) for statement in statements
    )
