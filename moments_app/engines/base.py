"""What an engine is: the thing that writes memory text.

A process hands an engine plain data and gets plain, validated data back. Engines know nothing of the database, of
sessions or of jobs, so they can be called with no transaction open. There are two: `extractive.py` (no model) and
`model.py` (a language model behind an OpenAI-compatible endpoint).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

RECENT_MOMENTS = 8  # the latest of a person's moments, of which an engine is told


@dataclass(frozen=True)
class Turn:
    """One turn as an engine sees it.

    Args:
        index: position in the window given to the engine, from 0.
        role: `user`, `assistant` or `tool`; system turns are never shown to an engine.
        content: the text; for a tool turn its result.
        created_at: aware, UTC.
        tool_name: blank except for tool turns.
        tool_calls: what an assistant turn asked tools for, as JSON; else blank.
        tokens: estimated size.
    """

    index: int
    role: str
    content: str
    created_at: datetime
    tool_name: str = ""
    tool_calls: str = ""
    tokens: int = 0


@dataclass(frozen=True)
class Profile:
    """What is known of the person before this call."""

    summary: str = ""
    interests: Sequence[str] = ()
    preferred_topics: Sequence[str] = ()


@dataclass(frozen=True)
class KnownMoment:
    """A moment that there is already."""

    name: str
    summary: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class Journey:
    """The person's way up to the turns that an engine is shown, whatever conversation it was in.

    Args:
        text: as it was told last; blank where it never was.
        moments: the latest, newest first.
        count: how many moments there were in all.
        since: when the first of them began; None when there was none.
    """

    text: str = ""
    moments: Sequence[KnownMoment] = ()
    count: int = 0
    since: datetime | None = None

    def then(self, text: str, moments: Sequence[KnownMoment]) -> "Journey":
        """The journey with more moments; told anew unless the text is blank."""
        latest = sorted([*moments, *self.moments], key=lambda moment: moment.ends_at, reverse=True)
        since = min([moment.starts_at for moment in moments] + ([self.since] if self.since else []), default=None)
        return Journey(text or self.text, latest[:RECENT_MOMENTS], self.count + len(moments), since)


@dataclass(frozen=True)
class MomentRequest:
    """Everything an engine gets to build moments from.

    Args:
        turns: the window, oldest first, indexes 0..n-1.
        profile: of the session's user.
        journey: of the user, up to the window.
        prompt: the text of the prompt version in force.
    """

    turns: Sequence[Turn]
    profile: Profile
    journey: Journey
    prompt: str


class DraftMoment(BaseModel):
    """A moment as the engine proposes it; ranges are inclusive indexes into the window."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="Short kebab-case name of the episode.")
    summary: str = Field(min_length=1, max_length=2_000, description="Two or three sentences.")
    detail: str = Field(
        default="",
        max_length=6_000,
        description="At most 300 words: decisions, facts, names, numbers, dates, what stays open.",
    )
    topic_tags: list[str] = Field(default_factory=list, max_length=20)
    emotion_tags: list[str] = Field(default_factory=list, max_length=20)
    present_persons: list[str] = Field(default_factory=list, max_length=50)
    starts_at_message_idx: int = Field(ge=0)
    ends_at_message_idx: int = Field(ge=0)


class MomentAnswer(BaseModel):
    """What an engine answers. At least one moment: an empty answer is a failure, never "nothing to remember"."""

    model_config = ConfigDict(extra="forbid")

    moments: list[DraftMoment] = Field(min_length=1, max_length=200)
    user_summary_update: str = Field(
        default="", max_length=8_000, description="The profile summary, merged with what is new."
    )
    new_interests: list[str] = Field(default_factory=list, max_length=50)
    new_preferred_topics: list[str] = Field(default_factory=list, max_length=50)
    recent_journey: str = Field(
        default="", max_length=4_000, description="The journey so far with these moments in it, dated."
    )


@dataclass(frozen=True)
class SummaryRequest:
    """Everything an engine gets to carry a rolling summary on.

    Args:
        turns: those to be taken in, oldest first; their indexes are sequences of the session.
        base_text: the summary so far; blank for a first one.
        base_facts: its facts that still lie in the window.
        start: sequence where the window begins; what was said before it is to be left out.
        prompt: the text of the prompt version in force.
    """

    turns: Sequence[Turn]
    base_text: str
    base_facts: Sequence["Fact"]
    start: int
    prompt: str


class Fact(BaseModel):
    """One thing worth keeping, and the turns that say it."""

    model_config = ConfigDict(extra="forbid")

    fact: str = Field(min_length=1, max_length=1_000)
    message_indexes: list[int] = Field(default_factory=list, max_length=50)


class SummaryAnswer(BaseModel):
    """What an engine answers. A summary without a word is a failure, never "nothing happened"."""

    model_config = ConfigDict(extra="forbid")

    summary_text: str = Field(min_length=1, max_length=6_000, description="At most 200 words over the whole window.")
    facts: list[Fact] = Field(default_factory=list, max_length=100)


@dataclass(frozen=True)
class Limits:
    """How many items, and of how many words each."""

    least: int
    most: int
    words: int


@dataclass(frozen=True)
class StreamSection:
    """What one stream wants of a formation.

    Args:
        label: by which the answer names it.
        prompt: what it takes in.
        observations, facts: limits; None when it doesn't take such.
        current: its text and items as they are, so that they are not said again.
    """

    label: str
    prompt: str
    observations: Limits | None
    facts: Limits | None
    current: str


@dataclass(frozen=True)
class FormationRequest:
    """Everything an engine gets to form memories from: one call for all streams.

    Args:
        turns: since the last formation, oldest first; their indexes are sequences of the session.
        sections: one a stream.
        prompt: the text of the prompt version in force.
    """

    turns: Sequence[Turn]
    sections: Sequence[StreamSection]
    prompt: str


class DraftAtom(BaseModel):
    """One item and the turns it comes from."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=2_000)
    message_indexes: list[int] = Field(min_length=1, max_length=100)


class DraftAtoms(BaseModel):
    """What goes into one stream."""

    model_config = ConfigDict(extra="forbid")

    stream: str
    observations: list[DraftAtom] = Field(default_factory=list)
    facts: list[DraftAtom] = Field(default_factory=list)


class FormationShape(BaseModel):
    """What a model is asked for."""

    model_config = ConfigDict(extra="forbid")

    streams: list[DraftAtoms]


class FormationAnswer(BaseModel):
    """What is taken: entries of any shape, so that a bad item costs no good one. Each is checked by itself."""

    model_config = ConfigDict(extra="forbid")

    streams: list[Any] = Field(max_length=200)


@dataclass(frozen=True)
class Labelled:
    """A line of a stream's text, or an observation, and the label by which the answer names it."""

    label: str
    text: str


@dataclass(frozen=True)
class ConsolidationRequest:
    """Everything an engine gets to fold observations into a stream's text.

    Args:
        prompt: what the stream's text is made of.
        fixed: lines that people wrote; they stay as they are.
        lines: of the text so far, without those.
        observations: oldest first, each with its date.
        max_words: of the new lines together.
        rules: the text of the prompt version in force.
    """

    prompt: str
    fixed: Sequence[str]
    lines: Sequence[Labelled]
    observations: Sequence[Labelled]
    max_words: int
    rules: str


class DraftLine(BaseModel):
    """A line of the new text, and what it says."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=20_000)
    carries: list[str] = Field(
        max_length=1_000, description="Labels of the lines so far and of the observations that it says."
    )


class ConsolidationAnswer(BaseModel):
    """The new text, line by line."""

    model_config = ConfigDict(extra="forbid")

    lines: list[DraftLine] = Field(min_length=1, max_length=1_000)


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


@dataclass(frozen=True)
class QueryRequest:
    """Everything an engine gets to say what to look up in memory.

    Args:
        turns: the latest of the conversation, oldest first; their indexes are sequences of the session.
        message: about to be answered.
        prompt: the text of the prompt version in force.
    """

    turns: Sequence[Turn]
    message: str
    prompt: str


class QueryAnswer(BaseModel):
    """What to look up; blank when nothing."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(max_length=1_000)


@dataclass(frozen=True)
class CallRecord:
    """What one call of a model cost and how it ended; never its text.

    Args:
        purpose: the process's purpose, e.g. `moment-builder`.
        engine: name of the engine, e.g. `openai:gpt-4.1-mini`.
        input_tokens, output_tokens: as the endpoint reports them, else None.
        latency_ms: wall time, milliseconds.
        error_kind: blank when the call succeeded; else one of `unavailable`, `timeout`, `rate_limited`, `rejected`,
            `server_error`, `too_large`, `invalid_answer`.
        error: one sentence for an operator, without prompt, completion or key.
        retry_after: seconds the endpoint asked us to wait, or None.
    """

    purpose: str
    engine: str
    latency_ms: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    error_kind: str = ""
    error: str = ""
    retry_after: float | None = None


class EngineError(Exception):
    """The engine gave no usable answer. Nothing was changed; the job may try again.

    Args:
        kind: as in `CallRecord.error_kind`.
        message: one sentence for an operator.
        retry_after: seconds the endpoint asked us to wait, or None.
    """

    def __init__(self, kind: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after


class Engine(Protocol):
    """The interface both engines have."""

    name: str

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        """Divides the window into moments and says what they add to the profile.

        Raises:
            EngineError: when no valid answer could be had.
        """
        ...

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer:
        """Takes new turns into a rolling summary and drops what the window has left behind.

        Raises:
            EngineError: when no valid answer could be had.
        """
        ...

    def form_memories(self, request: FormationRequest) -> FormationAnswer:
        """Says what of the turns goes into which stream.

        Raises:
            EngineError: when no valid answer could be had.
        """
        ...

    def consolidate(self, request: ConsolidationRequest) -> ConsolidationAnswer:
        """Folds observations into a text.

        Raises:
            EngineError: when no valid answer could be had.
        """
        ...

    def digest(self, request: DigestRequest) -> DigestAnswer:
        """Says what of a session has to be known to go on, and what is to be learned from it.

        Raises:
            EngineError: when no valid answer could be had.
        """
        ...

    def recall_query(self, request: QueryRequest) -> QueryAnswer:
        """Says what to look up in memory before a message is answered.

        Raises:
            EngineError: when no valid answer could be had.
        """
        ...
