"""Building moments: a window of turns becomes episodes, and what they add to the profile and the journey."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.profile import (
    CHANGES_MAX,
    DraftChange,
    Line,
    Profile,
    changed,
    judged_changes,
    lines_of,
    rewritten,
)
from moments_app.engines.calls.shape import Shape
from moments_app.engines.grounding import Grounds, Judged
from moments_app.engines.nearest import mentioned
from moments_app.engines.transcript import Turn, as_data

RECENT_MOMENTS = 8  # the latest of a person's moments, from which the journey is told
SHOWN_MOMENTS = 2  # of them, that a model is told
KNOWN_SUMMARY_MAX = 200  # characters of each
SHOWN_PHRASES = 4  # of the newest interests that the turns name, and of topics


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


class MomentShape(BaseModel):
    """What a model is asked for."""

    model_config = ConfigDict(extra="forbid")

    moments: list[DraftMoment] = Field(min_length=1, max_length=200)
    profile_changes: list[DraftChange] = Field(
        default_factory=list, max_length=CHANGES_MAX, description="Lines of the profile to add, change or end."
    )
    new_interests: list[str] = Field(default_factory=list, max_length=50)
    new_preferred_topics: list[str] = Field(default_factory=list, max_length=50)
    recent_journey: str = Field(
        default="", max_length=4_000, description="The journey so far with these moments in it, dated."
    )


class MomentAnswer(MomentShape):
    """What is taken. At least one moment: an empty answer is a failure, never "nothing to remember".

    Attributes:
        user_summary_update: the whole profile, as the engine without a model writes it, and prompts of operators may.
        line_sources: indexes of the turns that each new line of it comes from.
    """

    user_summary_update: str = Field(default="", max_length=8_000)
    line_sources: dict[str, list[int]] = Field(default_factory=dict)

    def lines_after(self, profile: Profile, sequences: Sequence[int]) -> list[Line]:
        """Return the lines of a profile after this answer.

        Args:
            profile: before.
            sequences: that the turns of the call have in their session, by their indexes.
        """
        lines = changed(profile.lines, self.profile_changes, sequences)
        if not self.user_summary_update.strip():
            return lines
        known = {text: [index for index in indexes if 0 <= index < len(sequences)] for text, indexes in self._sources}
        named = {text: tuple(sequences[index] for index in indexes) for text, indexes in known.items()}
        return rewritten(lines, self.user_summary_update, named)

    @property
    def _sources(self) -> Iterable[tuple[str, list[int]]]:
        return self.line_sources.items()


def _problem(answer: MomentAnswer) -> str:
    is_complete = all(moment.name.strip() and moment.summary.strip() for moment in answer.moments)
    return "" if is_complete else "a moment's name or summary is blank."


SHAPE = Shape("moment-builder", MomentAnswer, _problem, MomentShape)


def judged(request: MomentRequest, answer: MomentAnswer) -> Judged[MomentAnswer]:
    """Return an answer without what the conversation doesn't bear out. A moment is kept as long as it has a summary."""
    profile, journey = request.profile, request.journey
    summaries = [moment.summary for moment in journey.moments]
    known = [profile.summary, *profile.interests, *profile.preferred_topics, journey.text, *summaries]
    grounds = Grounds(request.turns, known)
    drafts = [_judged_moment(moment, grounds) for moment in answer.moments]
    whole = answer.user_summary_update.strip() and grounds.carried_on(answer.user_summary_update, profile.summary)
    changes = {
        "moments": drafts,
        "profile_changes": judged_changes(profile.lines, answer.profile_changes, grounds, len(request.turns)),
        "user_summary_update": whole,
        "line_sources": {line.text: grounds.said_at(line.text) for line in lines_of(whole)},
        "new_interests": grounds.kept_of(answer.new_interests),
        "new_preferred_topics": grounds.kept_of(answer.new_preferred_topics),
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
    """Return what stands before the window in a request for moments: profile, journey, recent moments."""
    phrases = {
        "interests": mentioned(request.profile.interests, request.turns)[-SHOWN_PHRASES:],
        "preferred_topics": mentioned(request.profile.preferred_topics, request.turns)[-SHOWN_PHRASES:],
    }
    lines = {number: line.text for number, line in enumerate(request.profile.lines, start=1)}
    profile = {"lines": lines} | {name: known for name, known in phrases.items() if known}
    journey = request.journey
    since = {"since": f"{journey.since:%Y-%m-%d}"} if journey.since else {}
    return "\n".join(
        [
            f"Profile so far: {as_data(profile)}",
            f"Journey so far: {as_data({'told': journey.text} | since)}",
            f"Recent moments, newest first: {as_data([_known(moment) for moment in journey.moments[:SHOWN_MOMENTS]])}",
        ]
    )


def _known(moment: KnownMoment) -> list[str]:
    return [moment.name, f"{moment.ends_at:%Y-%m-%d}", moment.summary[:KNOWN_SUMMARY_MAX]]
