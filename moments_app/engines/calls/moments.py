"""Building moments: a window of turns becomes episodes, and what they add to the journey."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.transcript import Turn, as_data

RECENT_MOMENTS = 8  # the latest of a person's moments, from which the journey is told
SHOWN_MOMENTS = 2  # of them, that a model is told
KNOWN_SUMMARY_MAX = 200  # characters of each


@dataclass(frozen=True)
class KnownMoment:
    """A moment from before this call."""

    name: str
    summary: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class Journey:
    """The person's way up to the turns that an engine is shown, whatever conversation it was in.

    Args:
        text: as it was told last; blank if it never was.
        moments: the latest, newest first.
        count: how many moments there were in all.
        since: when the first of them began; None when there was none.
    """

    text: str = ""
    moments: Sequence[KnownMoment] = ()
    count: int = 0
    since: datetime | None = None

    def then(self, text: str, moments: Sequence[KnownMoment]) -> "Journey":
        """Return the journey with more moments, told again unless the text is blank."""
        latest = sorted([*moments, *self.moments], key=lambda moment: moment.ends_at, reverse=True)
        since = min([moment.starts_at for moment in moments] + ([self.since] if self.since else []), default=None)
        return Journey(text or self.text, latest[:RECENT_MOMENTS], self.count + len(moments), since)


@dataclass(frozen=True)
class MomentRequest:
    """Everything an engine gets to build moments from.

    Args:
        turns: the window, oldest first, indexes 0..n-1.
        journey: of the user, up to the window.
        prompt: the text of the prompt version in force.
    """

    turns: Sequence[Turn]
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
    """The accepted moments. There is at least one, because an empty answer counts as a failure."""

    # Older prompts of operators ask for changes of the profile, too.
    model_config = ConfigDict(extra="ignore")

    moments: list[DraftMoment] = Field(min_length=1, max_length=200)
    recent_journey: str = Field(
        default="", max_length=4_000, description="The journey so far with these moments in it, dated."
    )


def _problem(answer: MomentAnswer) -> str:
    is_complete = all(moment.name.strip() and moment.summary.strip() for moment in answer.moments)
    return "" if is_complete else "a moment's name or summary is blank."


SHAPE = Shape("moment-builder", MomentAnswer, _problem)


def judged(request: MomentRequest, answer: MomentAnswer) -> Judged[MomentAnswer]:
    """Return an answer without what the conversation doesn't bear out. A moment is kept as long as it has a summary."""
    journey = request.journey
    grounds = Grounds(request.turns, [journey.text, *(moment.summary for moment in journey.moments)])
    drafts = [_judged_moment(moment, grounds) for moment in answer.moments]
    changes = {
        "moments": drafts,
        "recent_journey": grounds.kept(answer.recent_journey),
    }
    bare = sum(not draft.summary for draft in drafts)
    problem = f"in the summaries of {bare} moments nothing is left that the turns say." if bare else ""
    return grounds.judged(answer.model_copy(update=changes), problem)


def _judged_moment(moment: DraftMoment, grounds: Grounds) -> DraftMoment:
    changes = {
        "summary": grounds.kept(moment.summary),
        "detail": grounds.kept(moment.detail),
        "topic_tags": grounds.kept_of(moment.topic_tags),
        "present_persons": grounds.persons(moment.present_persons),
    }
    return moment.model_copy(update=changes)


def known_text(request: MomentRequest) -> str:
    """Return what stands before the window in a request for moments: journey and recent moments."""
    journey = request.journey
    since = {"since": f"{journey.since:%Y-%m-%d}"} if journey.since else {}
    return "\n".join(
        [
            f"Journey so far: {as_data({'told': journey.text} | since)}",
            f"Recent moments, newest first: {as_data([_known(moment) for moment in journey.moments[:SHOWN_MOMENTS]])}",
        ]
    )


def _known(moment: KnownMoment) -> list[str]:
    return [moment.name, f"{moment.ends_at:%Y-%m-%d}", moment.summary[:KNOWN_SUMMARY_MAX]]
