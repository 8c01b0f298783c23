"""Consolidate a stream: merge waiting observations into its text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.transcript import as_data


@dataclass(frozen=True)
class Labelled:
    """A line of a stream's text, or an observation, with the label that the answer uses for it."""

    label: str
    text: str


@dataclass(frozen=True)
class ConsolidationRequest:
    """The engine's input for merging observations into a stream's text.

    Args:
        prompt: The subject of the stream's text.
        fixed: Lines written by people. They stay unchanged.
        lines: The other lines of the current text.
        observations: Oldest first, each with its date.
        max_words: Maximum total words of the new lines.
        rules: The text of the active prompt version.
    """

    prompt: str
    fixed: Sequence[str]
    lines: Sequence[Labelled]
    observations: Sequence[Labelled]
    max_words: int
    rules: str


class DraftLine(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=20_000)
    carries: list[str] = Field(
        max_length=1_000, description="Labels of the earlier lines and observations whose statements are in this line."
    )


class ConsolidationAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lines: list[DraftLine] = Field(min_length=1, max_length=1_000)


def _problem(answer: ConsolidationAnswer) -> str:
    return "" if any(line.text.strip() for line in answer.lines) else "every line is blank."


SHAPE = Shape("stream-consolidation", ConsolidationAnswer, _problem)


def judged(request: ConsolidationRequest, answer: ConsolidationAnswer) -> Judged[ConsolidationAnswer]:
    """Return the answer without lines that neither the current text nor the observations support."""
    grounds = Grounds(known=[part.text for part in [*request.lines, *request.observations]])
    lines = [line for line in answer.lines if grounds.takes(line.text, grounds.complaint(line.text, may_order=True))]
    problem = "" if lines else "neither the lines so far nor the observations support any of the lines."
    return grounds.judged(answer.model_copy(update={"lines": lines}), problem)


def as_message(request: ConsolidationRequest) -> str:
    fixed = list(request.fixed)
    return "\n".join(
        [
            f"What the text is for: {as_data(request.prompt)}",
            f"At most {request.max_words} words.",
            *([f"Lines that stay as they are, not to be said again: {as_data(fixed)}"] if fixed else []),
            "Lines so far:",
            *_labelled(request.lines),
            "Observations, oldest first:",
            *_labelled(request.observations),
        ]
    )


def _labelled(parts: Sequence[Labelled]) -> Iterator[str]:
    return (as_data({part.label: part.text}) for part in parts)
