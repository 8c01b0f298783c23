"""Rolling a summary: the one so far, carried on over the turns since."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.transcript import Turn, as_data


class Fact(BaseModel):
    """One thing worth keeping, and the turns that say it."""

    model_config = ConfigDict(extra="forbid")

    fact: str = Field(min_length=1, max_length=1_000)
    message_indexes: list[int] = Field(default_factory=list, max_length=50)


@dataclass(frozen=True)
class SummaryRequest:
    """Everything an engine gets to carry a rolling summary on.

    Args:
        turns: those to be taken in, oldest first; their indexes are sequences of the session.
        base_text: the summary so far; blank for a first one.
        base_facts: its facts that still lie in the window; they stay, and a model is not shown them again.
        start: sequence where the window begins; what was said before it is to be left out.
        prompt: the text of the prompt version in force.
    """

    turns: Sequence[Turn]
    base_text: str
    base_facts: Sequence["Fact"]
    start: int
    prompt: str


class SummaryAnswer(BaseModel):
    """What an engine answers. A summary without a word is a failure, never "nothing happened"."""

    model_config = ConfigDict(extra="forbid")

    summary_text: str = Field(min_length=1, max_length=6_000, description="At most 200 words over the whole window.")
    facts: list[Fact] = Field(default_factory=list, max_length=100)


def _problem(answer: SummaryAnswer) -> str:
    return "" if answer.summary_text.strip() else "the summary is blank."


SHAPE = Shape("rolling-summary", SummaryAnswer, _problem)


def judged(request: SummaryRequest, answer: SummaryAnswer) -> Judged[SummaryAnswer]:
    """Return the facts so far and an answer without what neither the turns nor the summary before bear out."""
    grounds = Grounds(request.turns, [request.base_text, *(fact.fact for fact in request.base_facts)])
    new = [fact.model_copy(update={"fact": text}) for fact in answer.facts if (text := grounds.kept(fact.fact))]
    known = {fact.fact for fact in request.base_facts}
    facts = [*request.base_facts, *(fact for fact in new if fact.fact not in known)]
    text = grounds.kept(answer.summary_text)
    problem = "" if text else "nothing in the summary is said in the turns."
    return grounds.judged(answer.model_copy(update={"summary_text": text, "facts": facts}), problem)


def known_text(request: SummaryRequest) -> str:
    """Return what stands before the new turns in a request for a summary: the one so far, where the window begins."""
    return "\n".join(
        [
            f"Summary so far: {as_data(request.base_text)}",
            f"The window begins at turn {request.start}: leave out what was said before it.",
        ]
    )
