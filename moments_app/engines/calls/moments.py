"""The request that divides a window of turns into moments, and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.answers import Question, Shape, length_of
from moments_app.engines.grounding import CheckedAnswer, Evidence
from moments_app.engines.transcript import Turn, as_data

SHOWN_MOMENTS = 2  # number of a person's latest moments that a model receives
KNOWN_SUMMARY_MAX = 200  # maximum characters of their summaries in the prompt


@dataclass(frozen=True)
class KnownMoment:
    name: str
    summary: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class Journey:
    """The moments before the engine's turns, from all conversations of the person."""

    moments: Sequence[KnownMoment] = ()  # the latest moments, newest first
    count: int = 0  # number of all moments
    since: datetime | None = None  # the start of the first moment


class DraftMoment(BaseModel):
    """A moment proposed by the engine. Its ranges are inclusive indexes into the window."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        min_length=1,
        max_length=200,
        description="Two to five words in kebab-case that distinguish the moment from others.",
    )
    summary: str = Field(min_length=1, max_length=2_000, description="Two or three sentences.")
    detail: str = Field(
        default="",
        max_length=6_000,
        description="At most 300 words: decisions, names, numbers, dates, who said what, reasons, what stays open.",
    )
    topic_tags: list[str] = Field(
        default_factory=list, max_length=20, description="Three to eight short lower-case phrases."
    )
    emotion_tags: list[str] = Field(default_factory=list, max_length=20, description="Feelings the person showed.")
    present_persons: list[str] = Field(
        default_factory=list, max_length=50, description="People who speak or are mentioned."
    )
    starts_at_message_idx: int = Field(ge=0)
    ends_at_message_idx: int = Field(ge=0)


class MomentAnswer(BaseModel):
    """The accepted moments. There is at least one, because an empty answer counts as a failure."""

    # Operators' older prompts also request profile changes and the journey.
    model_config = ConfigDict(extra="ignore")

    moments: list[DraftMoment] = Field(min_length=1, max_length=200)


def _problem(answer: MomentAnswer) -> str:
    is_complete = all(moment.name.strip() and moment.summary.strip() for moment in answer.moments)
    return "" if is_complete else "a moment's name or summary is blank."


SHAPE = Shape("moment-builder", MomentAnswer, _problem)


@dataclass(frozen=True)
class MomentRequest:
    turns: Sequence[Turn]  # the turns of the window, oldest first, with indexes 0..n-1
    journey: Journey  # the person's moments before the window
    prompt: str  # the text of the active prompt version
    call_texts: Sequence[str] = ()  # all turns of a combined call

    @property
    def question(self) -> Question[MomentAnswer]:
        moments = [
            [moment.name, f"{moment.ends_at:%Y-%m-%d}", moment.summary[:KNOWN_SUMMARY_MAX]]
            for moment in self.journey.moments[:SHOWN_MOMENTS]
        ]
        known = f"Recent moments, newest first: {as_data(moments)}"
        return Question(SHAPE, self.prompt, known, self._check, self.turns, length_of(self.turns))

    def _check(self, answer: MomentAnswer) -> CheckedAnswer[MomentAnswer]:
        """Return the answer without unsupported parts. Report a problem if a moment has no supported summary."""
        evidence = Evidence(self.turns, [moment.summary for moment in self.journey.moments], self.call_texts)
        drafts = [_checked_moment(moment, evidence) for moment in answer.moments]
        bare = sum(not draft.summary for draft in drafts)
        problem = f"neither the turns nor the earlier moments support the summary of {bare} of the moments."
        return evidence.checked_answer(answer.model_copy(update={"moments": drafts}), problem if bare else "")


def _checked_moment(moment: DraftMoment, evidence: Evidence) -> DraftMoment:
    changes = {
        "summary": evidence.supported(moment.summary),
        "detail": evidence.supported(moment.detail),
        "topic_tags": evidence.without_instructions(moment.topic_tags),
        "present_persons": evidence.mentioned(moment.present_persons),
    }
    return moment.model_copy(update=changes)
