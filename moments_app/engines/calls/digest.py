"""Digesting a session: what has to be known to go on, and the lessons in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.transcript import Turn, as_data


@dataclass(frozen=True)
class DigestRequest:
    """Everything an engine gets to digest the live window of a session.

    Args:
        turns: the latest of the window, oldest first; their indexes are sequences of the session.
        context: what is known from before the window; may be blank.
        max_words: of the new context.
        prompt: the text of the prompt version in force.
    """

    turns: Sequence[Turn]
    context: str
    max_words: int
    prompt: str


class DigestAnswer(BaseModel):
    """What an engine answers. A digest without a word is a failure, never "nothing happened"."""

    model_config = ConfigDict(extra="forbid")

    context: str = Field(min_length=1, max_length=8_000, description="What has to be known to go on.")
    lessons: list[str] = Field(
        default_factory=list, max_length=20, description="What to do otherwise from now on, whoever asks."
    )


def _problem(answer: DigestAnswer) -> str:
    return "" if answer.context.strip() else "the context is blank."


SHAPE = Shape("session-digest", DigestAnswer, _problem)


def judged(request: DigestRequest, answer: DigestAnswer) -> Judged[DigestAnswer]:
    """Return an answer without what neither the turns nor the context before bear out."""
    grounds = Grounds(request.turns, [request.context])
    lessons = [kept for lesson in answer.lessons if (kept := grounds.kept(lesson, may_order=True))]
    context = grounds.kept(answer.context)
    problem = "" if context else "nothing in the context is said in the turns."
    return grounds.judged(answer.model_copy(update={"context": context, "lessons": lessons}), problem)


def known_text(request: DigestRequest) -> str:
    """Return what stands before the turns in a request for a digest: what is known from before, how long it may be."""
    known = [f"Known from before these turns: {as_data(request.context)}"] if request.context else []
    return "\n".join([*known, f"Context: at most {request.max_words} words."])
