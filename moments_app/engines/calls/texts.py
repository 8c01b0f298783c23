"""Requests for texts: a rolling summary, a digest, a consolidated stream, and a query for memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.answers import Question, Shape, length_of
from moments_app.engines.grounding import CheckedAnswer, Evidence
from moments_app.engines.transcript import Turn, as_data, fenced

# --- rolling summary ---


class Fact(BaseModel):
    model_config = ConfigDict(extra="forbid")

    fact: str = Field(min_length=1, max_length=1_000)
    message_indexes: list[int] = Field(default_factory=list, max_length=50)


class SummaryAnswer(BaseModel):
    """A summary. An empty summary is a failure and never means that nothing happened."""

    model_config = ConfigDict(extra="forbid")

    summary_text: str = Field(min_length=1, max_length=6_000, description="At most 200 words about the whole window.")
    facts: list[Fact] = Field(default_factory=list, max_length=100)


SUMMARY = Shape(
    "rolling-summary", SummaryAnswer, lambda answer: "" if answer.summary_text.strip() else "the summary is blank."
)


@dataclass(frozen=True)
class SummaryRequest:
    turns: Sequence[Turn]  # the turns to add to the summary, oldest first; their indexes are sequence numbers
    base_text: str  # the previous summary; blank for the first one
    # the previous facts that are still in the window; they are kept, and not sent to the model
    base_facts: Sequence[Fact]
    start: int  # the sequence number of the window's first turn; earlier content is dropped from the summary
    prompt: str  # the text of the active prompt version

    @property
    def question(self) -> Question[SummaryAnswer]:
        known = (
            f"Summary so far: {as_data(self.base_text)}\n"
            f"The window begins at turn {self.start}: leave out everything that was said before it."
        )
        length = 2 * (length_of(self.turns) + len(self.base_text))
        return Question(SUMMARY, self.prompt, known, self._check, self.turns, length)

    def _check(self, answer: SummaryAnswer) -> CheckedAnswer[SummaryAnswer]:
        """Return the previous facts, and the parts of the answer that the turns or the previous summary support."""
        evidence = Evidence(self.turns, [self.base_text, *(fact.fact for fact in self.base_facts)])
        new = [
            fact.model_copy(update={"fact": text}) for fact in answer.facts if (text := evidence.supported(fact.fact))
        ]
        known = {fact.fact for fact in self.base_facts}
        facts = [*self.base_facts, *(fact for fact in new if fact.fact not in known)]
        text = evidence.supported(answer.summary_text)
        problem = "" if text else "neither the turns nor the previous summary support the summary."
        return evidence.checked_answer(answer.model_copy(update={"summary_text": text, "facts": facts}), problem)


# --- digest ---


class DigestAnswer(BaseModel):
    """A digest. An empty digest is a failure and never means that nothing happened."""

    model_config = ConfigDict(extra="forbid")

    context: str = Field(min_length=1, max_length=8_000, description="What a model needs to know to continue.")
    lessons: list[str] = Field(
        default_factory=list, max_length=20, description="What to do differently from now on, whoever asks."
    )


DIGEST = Shape("session-digest", DigestAnswer, lambda answer: "" if answer.context.strip() else "the context is blank.")


@dataclass(frozen=True)
class DigestRequest:
    """The engine's input for a digest: the context needed to continue a session, and the lessons from the session."""

    # the latest turns of the live window, oldest first; their indexes are sequence numbers
    turns: Sequence[Turn]
    context: str  # the context from before the window; may be blank
    max_words: int  # maximum words of the new context
    prompt: str  # the text of the active prompt version

    @property
    def question(self) -> Question[DigestAnswer]:
        known = f"Known from before these turns: {as_data(self.context)}\n" if self.context else ""
        known += f"Context: at most {self.max_words} words."
        length = len(self.context) + length_of(self.turns)
        return Question(DIGEST, self.prompt, known, self._check, self.turns, length)

    def _check(self, answer: DigestAnswer) -> CheckedAnswer[DigestAnswer]:
        """Return the answer without parts that neither the turns nor the earlier context support."""
        evidence = Evidence(self.turns, [self.context])
        lessons = [kept for lesson in answer.lessons if (kept := evidence.supported(lesson, may_instruct=True))]
        context = evidence.supported(answer.context)
        problem = "" if context else "neither the turns nor the earlier context support the context."
        return evidence.checked_answer(answer.model_copy(update={"context": context, "lessons": lessons}), problem)


# --- consolidation ---


@dataclass(frozen=True)
class LabeledText:
    label: str  # the label by which the answer refers to the text
    text: str  # a line of a stream's text, or an observation


class DraftLine(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=20_000)
    carries: list[str] = Field(
        max_length=1_000, description="Labels of the earlier lines and observations whose statements are in this line."
    )


class ConsolidationAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lines: list[DraftLine] = Field(min_length=1, max_length=1_000)


CONSOLIDATION = Shape(
    "stream-consolidation",
    ConsolidationAnswer,
    lambda answer: "" if any(line.text.strip() for line in answer.lines) else "every line is blank.",
)


@dataclass(frozen=True)
class ConsolidationRequest:
    """The engine's input for merging observations into a stream's text."""

    prompt: str  # the subject of the stream's text
    fixed: Sequence[str]  # lines written by people, which stay unchanged
    lines: Sequence[LabeledText]  # the other lines of the current text
    observations: Sequence[LabeledText]  # the observations to merge, oldest first, each with its date
    max_words: int  # maximum words of all new lines in total
    rules: str  # the text of the active prompt version

    @property
    def question(self) -> Question[ConsolidationAnswer]:
        fixed = f"Fixed lines, which your lines must not repeat: {as_data(list(self.fixed))}"
        known = [
            f"Instructions for the text: {as_data(self.prompt)}",
            f"At most {self.max_words} words.",
            *([fixed] if self.fixed else []),
            "Earlier lines:",
            *_as_lines(self.lines),
            "Observations, oldest first:",
            *_as_lines(self.observations),
        ]
        length = 2 * sum(len(part.label) + len(part.text) for part in [*self.lines, *self.observations])
        return Question(CONSOLIDATION, self.rules, "\n".join(known), self._check, max_length=length)

    def _check(self, answer: ConsolidationAnswer) -> CheckedAnswer[ConsolidationAnswer]:
        """Return the answer without lines that neither the current text nor the observations support."""
        evidence = Evidence(known=[part.text for part in [*self.lines, *self.observations]])
        lines = [
            line
            for line in answer.lines
            if evidence.accepts(line.text, evidence.drop_reason(line.text, may_instruct=True))
        ]
        problem = "" if lines else "neither the earlier lines nor the observations support any of the lines."
        return evidence.checked_answer(answer.model_copy(update={"lines": lines}), problem)


def _as_lines(parts: Sequence[LabeledText]) -> Iterator[str]:
    return (as_data({part.label: part.text}) for part in parts)


# --- query ---


class QueryAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: str = Field(max_length=1_000)  # blank if memory need not be searched


QUERY = Shape("recall-query", QueryAnswer)


@dataclass(frozen=True)
class QueryRequest:
    """The engine's input for the query that searches memory before a message is answered."""

    turns: Sequence[Turn]  # the latest turns of the session, oldest first; their indexes are sequence numbers
    message: str  # the message to be answered
    prompt: str  # the text of the active prompt version

    @property
    def question(self) -> Question[QueryAnswer]:
        known = [
            f"Message to answer: {as_data(self.message)}",
            "The conversation before it:",
            fenced(self.turns),
        ]
        return Question(QUERY, self.prompt, "\n".join(known))
