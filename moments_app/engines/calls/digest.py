"""Digest a session: the context needed to continue it, and the lessons in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.transcript import Turn, as_data


@dataclass(frozen=True)
class DigestRequest:
    """The engine's input for a digest of a session's live window.

    Args:
        turns: The latest turns of the window, oldest first. Their indexes are sequences of the session.
        context: The context from before the window. May be blank.
        max_words: Maximum words of the new context.
        prompt: The text of the active prompt version.
    """

    turns: Sequence[Turn]
    context: str
    max_words: int
    prompt: str


class DigestAnswer(BaseModel):
    """An engine's answer. An empty digest is a failure and never means that nothing happened."""

    model_config = ConfigDict(extra="forbid")

    context: str = Field(min_length=1, max_length=8_000, description="What a model needs to know to continue.")
    lessons: list[str] = Field(
        default_factory=list, max_length=20, description="What to do differently from now on, whoever asks."
    )


def _problem(answer: DigestAnswer) -> str:
    return "" if answer.context.strip() else "the context is blank."


SHAPE = Shape("session-digest", DigestAnswer, _problem)


def judged(request: DigestRequest, answer: DigestAnswer) -> Judged[DigestAnswer]:
    """Return the answer without parts that neither the turns nor the earlier context support."""
    grounds = Grounds(request.turns, [request.context])
    lessons = [kept for lesson in answer.lessons if (kept := grounds.kept(lesson, may_order=True))]
    context = grounds.kept(answer.context)
    problem = "" if context else "neither the turns nor the earlier context support the context."
    return grounds.judged(answer.model_copy(update={"context": context, "lessons": lessons}), problem)


def known_text(request: DigestRequest) -> str:
    """Return the beginning of a digest request, before the turns: the earlier context and the maximum length."""
    known = [f"Known from before these turns: {as_data(request.context)}"] if request.context else []
    return "\n".join([*known, f"Context: at most {request.max_words} words."])
