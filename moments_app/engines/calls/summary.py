"""Update a rolling summary with the turns since the previous version."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.transcript import Turn, as_data


class Fact(BaseModel):
    model_config = ConfigDict(extra="forbid")

    fact: str = Field(min_length=1, max_length=1_000)
    message_indexes: list[int] = Field(default_factory=list, max_length=50)


@dataclass(frozen=True)
class SummaryRequest:
    """The engine's input for updating a rolling summary.

    Args:
        turns: The turns to add, oldest first. Their indexes are sequences of the session.
        base_text: The previous summary. Blank for the first one.
        base_facts: The previous summary's facts that are still in the window. They are kept and not sent to the model.
        start: The first sequence of the window. Earlier content is dropped from the summary.
        prompt: The text of the active prompt version.
    """

    turns: Sequence[Turn]
    base_text: str
    base_facts: Sequence["Fact"]
    start: int
    prompt: str


class SummaryAnswer(BaseModel):
    """An engine's answer. An empty summary is a failure and never means that nothing happened."""

    model_config = ConfigDict(extra="forbid")

    summary_text: str = Field(min_length=1, max_length=6_000, description="At most 200 words about the whole window.")
    facts: list[Fact] = Field(default_factory=list, max_length=100)


def _problem(answer: SummaryAnswer) -> str:
    return "" if answer.summary_text.strip() else "the summary is blank."


SHAPE = Shape("rolling-summary", SummaryAnswer, _problem)


def judged(request: SummaryRequest, answer: SummaryAnswer) -> Judged[SummaryAnswer]:
    """Return the previous facts and the answer, without parts that the turns or the previous summary don't support."""
    grounds = Grounds(request.turns, [request.base_text, *(fact.fact for fact in request.base_facts)])
    new = [fact.model_copy(update={"fact": text}) for fact in answer.facts if (text := grounds.kept(fact.fact))]
    known = {fact.fact for fact in request.base_facts}
    facts = [*request.base_facts, *(fact for fact in new if fact.fact not in known)]
    text = grounds.kept(answer.summary_text)
    problem = "" if text else "neither the turns nor the previous summary support the summary."
    return grounds.judged(answer.model_copy(update={"summary_text": text, "facts": facts}), problem)


def known_text(request: SummaryRequest) -> str:
    """Return the beginning of a summary request, before the new turns: the previous summary and the window's start."""
    return "\n".join(
        [
            f"Summary so far: {as_data(request.base_text)}",
            f"The window begins at turn {request.start}: leave out what was said before it.",
        ]
    )
