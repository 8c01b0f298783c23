"""Subjects that a prompt can be tried on, and the outcome of a trial, as the page shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from moments_app.engines.calls.summary import Fact
from moments_app.jobs.trial import Trial, TrialAnswer
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from moments_app.moments.division import BuildInput, Built, Segment
from moments_app.sessions.checkpoint import Digested, DigestInput
from moments_app.streams.consolidate import Consolidated, ConsolidationInput
from moments_app.streams.form import FormationInput, Formed
from moments_app.summaries.roll import Rolled, SummaryInput
from sessions_app.admin.base import prefix_search
from sessions_app.models import Session

SUBJECTS = 8  # offered at once; a longer beginning finds the others


@dataclass(frozen=True)
class Subject:
    """A session or stream that a prompt can be tried on."""

    pk: int
    name: str
    about: str


@dataclass(frozen=True)
class AnswerPart:
    """A part of what an engine made."""

    heading: str
    text: str
    about: str = ""


@dataclass(frozen=True)
class Side:
    """One side of a trial: what came of one text."""

    made: TrialAnswer
    is_active: bool
    parts: list[AnswerPart]


def is_about_streams(resource: PromptResource) -> bool:
    """Tell whether the prompt is about streams, as consolidations are; all others are about a session."""
    return resource.purpose == PromptResource.Purpose.STREAM_CONSOLIDATION


def subjects(resource: PromptResource, beginning: str) -> list[Subject]:
    """Find what the prompt can be tried on, the latest first.

    Args:
        resource: the prompt.
        beginning: of an id or name, as the operator typed it; blank finds everything.
    """
    return _streams(beginning) if is_about_streams(resource) else _sessions(beginning)


def subject_with(resource: PromptResource, pk: int) -> Session | MemoryStream | None:
    """Return the session or stream that was chosen; None where it is gone."""
    if is_about_streams(resource):
        return MemoryStream.objects.filter(pk=pk).first()
    return Session.objects.select_related("user").filter(pk=pk).first()


def _sessions(beginning: str) -> list[Subject]:
    found = prefix_search(Session.objects.select_related("user"), beginning, "session_id", "user__user_id")
    return [
        Subject(one.pk, one.session_id, f"{one.user}, {one.message_count} turns, {one.last_activity_at:%Y-%m-%d %H:%M}")
        for one in found.order_by("-last_activity_at", "-id")[:SUBJECTS]
    ]


def _streams(beginning: str) -> list[Subject]:
    consolidating = MemoryStream.objects.active().exclude(consolidation_prompt="").select_related("user", "session")
    found = prefix_search(consolidating, beginning, "user__user_id", "name", "session__session_id")
    return [
        Subject(one.pk, f"{one.label} stream", f"{one.user or 'everybody'}, {one.last_updated_at:%Y-%m-%d %H:%M}")
        for one in found.order_by("-last_updated_at", "-id")[:SUBJECTS]
    ]


def sides(trial: Trial, active: PromptVersion | None) -> list[Side]:
    """Return both sides of a trial."""
    return [
        Side(made, bool(active and made.version.pk == active.pk), parts(made.answer) if made.answer else [])
        for made in trial.answers
    ]


# --- what the engine was given ---


@singledispatch
def given(input: Any) -> str:
    """Say what of its subject an engine was given."""
    return "all that waits"


@given.register
def _(input: BuildInput) -> str:
    return _turns(input.first_sequence, input.last_sequence)


@given.register
def _(input: DigestInput | SummaryInput | FormationInput) -> str:
    return _turns(input.request.turns[0].index, input.request.turns[-1].index)


@given.register
def _(input: ConsolidationInput) -> str:
    return f"{len(input.request.observations)} observations"


def _turns(first: int, last: int) -> str:
    return f"turns {first}–{last}"


# --- what it made of it ---


@singledispatch
def parts(answer: Any) -> list[AnswerPart]:
    """Return an answer in pieces to be read."""
    return [AnswerPart("Answer", str(answer))]


@parts.register
def _(answer: Built) -> list[AnswerPart]:
    moments = [
        AnswerPart(segment.draft.name, _paragraphs(segment.draft.summary, segment.draft.detail), _about(segment))
        for segment in answer.segments
    ]
    tags = ", ".join([*answer.profile.interests, *answer.profile.preferred_topics])
    return [*moments, AnswerPart("Profile", answer.profile.summary, tags), AnswerPart("Recent journey", answer.journey)]


@parts.register
def _(answer: Rolled) -> list[AnswerPart]:
    return [AnswerPart("Summary", answer.answer.summary_text), AnswerPart("Facts", _facts(answer.answer.facts))]


@parts.register
def _(answer: Formed) -> list[AnswerPart]:
    items = [
        AnswerPart(f"{one.stream.label}, {one.atom_type}", one.draft.text, f"turns {_numbers(one.sequences)}")
        for one in answer.candidates
    ]
    dropped = "\n".join(f"{number} × {reason}" for reason, number in (+answer.dropped).items())
    return [*items, AnswerPart("Dropped", dropped)] if dropped else items


@parts.register
def _(answer: Consolidated) -> list[AnswerPart]:
    text = answer.text.content
    dropped = "\n".join(f"{number} × {reason}" for reason, number in answer.text.dropped.items())
    return [
        AnswerPart("Text", text, f"{len(text.split())} words"),
        *([AnswerPart("Dropped", dropped)] if dropped else []),
    ]


@parts.register
def _(answer: Digested) -> list[AnswerPart]:
    context = AnswerPart("Context", answer.context, f"{len(answer.context.split())} words")
    return [context, *(AnswerPart("Lesson", lesson) for lesson in answer.lessons)]


def _about(segment: Segment) -> str:
    tags = ", ".join([*segment.draft.topic_tags, *segment.draft.emotion_tags, *segment.draft.present_persons])
    return " · ".join(filter(None, [_turns(segment.first_sequence, segment.last_sequence), tags]))


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip())


def _facts(facts: Sequence[Fact]) -> str:
    return "\n".join(f"{fact.fact} ({_numbers(fact.message_indexes)})" for fact in facts)


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
