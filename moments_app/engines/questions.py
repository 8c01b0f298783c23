"""Convert requests about turns to prompts: the instructions, what is known already, and the turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any, Generic

from moments_app.engines.calls import digest, formation, moments, summary
from moments_app.engines.calls.digest import DigestRequest
from moments_app.engines.calls.formation import FormationRequest
from moments_app.engines.calls.moments import MomentRequest
from moments_app.engines.calls.shape import Answer, Shape
from moments_app.engines.calls.summary import SummaryRequest
from moments_app.engines.grounding import Judge
from moments_app.engines.transcript import Turn, fenced

# An answer longer than its input is no summary, but names and tags may exceed a short window.
ANSWER_MIN_ALLOWANCE = 6_000  # characters


@dataclass(frozen=True)
class Question(Generic[Answer]):
    """A request to a model, and how its answer is read.

    Args:
        shape: the required shape of the answer.
        prompt: the text of the active prompt version.
        known: the text before the turns.
        turns: the turns that it is about, oldest first.
        allowance: maximum characters of the answer's texts together.
        judge: removes what the turns don't support.
    """

    shape: Shape[Answer]
    prompt: str
    known: str
    turns: Sequence[Turn]
    allowance: int
    judge: Judge[Answer]

    @property
    def text(self) -> str:
        """The user message, if the call has no other question."""
        return "\n".join([self.known, indexes_of([turn.index for turn in self.turns]), fenced(self.turns)])


def indexes_of(indexes: Sequence[int]) -> str:
    """Return the line that says which turns are meant."""
    return f"Turns: {indexes[0]} to {indexes[-1]}."


@singledispatch
def question_of(request: Any) -> Question[Any]:
    """Return the question for a request."""
    raise TypeError(f"{type(request).__name__} is about no turns.")


@question_of.register
def _(request: MomentRequest) -> Question[Any]:
    allowance = max(ANSWER_MIN_ALLOWANCE, _length(request.turns))
    judge = partial(moments.judged, request)
    return Question(moments.SHAPE, request.prompt, moments.known_text(request), request.turns, allowance, judge)


@question_of.register
def _(request: SummaryRequest) -> Question[Any]:
    allowance = max(ANSWER_MIN_ALLOWANCE, 2 * (_length(request.turns) + len(request.base_text)))
    judge = partial(summary.judged, request)
    return Question(summary.SHAPE, request.prompt, summary.known_text(request), request.turns, allowance, judge)


@question_of.register
def _(request: FormationRequest) -> Question[Any]:
    allowance = max(ANSWER_MIN_ALLOWANCE, 2 * _length(request.turns))
    judge = partial(formation.judged, request)
    return Question(formation.SHAPE, request.prompt, formation.known_text(request), request.turns, allowance, judge)


@question_of.register
def _(request: DigestRequest) -> Question[Any]:
    allowance = max(ANSWER_MIN_ALLOWANCE, len(request.context) + _length(request.turns))
    judge = partial(digest.judged, request)
    return Question(digest.SHAPE, request.prompt, digest.known_text(request), request.turns, allowance, judge)


def _length(turns: Sequence[Turn]) -> int:
    return sum(len(turn.content) for turn in turns)
