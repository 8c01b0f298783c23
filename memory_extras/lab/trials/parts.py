"""The engine's input and result in a prompt trial, in readable parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from memory_extras.lab.trials.try_prompt import Trial, TrialAnswer
from moments_app.engines.calls.texts import Fact
from moments_app.models import PromptResource, PromptVersion
from moments_app.moments.division import BuildInput, BuildResult, Segment
from moments_app.sessions.checkpoint import DigestInput, DigestResult
from moments_app.streams.consolidate import ConsolidatedText, ConsolidationInput
from moments_app.streams.formation import FormationInput, FormationResult
from moments_app.summaries import SummaryInput, TimedSummary


@dataclass(frozen=True)
class AnswerPart:
    heading: str
    text: str
    about: str = ""


def is_about_streams(resource: PromptResource) -> bool:
    """Return whether the prompt runs on a stream (a consolidation prompt). All other prompts run on a session."""
    return resource.purpose == PromptResource.Purpose.STREAM_CONSOLIDATION


# --- input ---


@singledispatch
def describe_input(input: Any) -> str:
    """Describe the part of the subject that the engine received."""
    return "all waiting work"


@describe_input.register
def _(input: BuildInput) -> str:
    return _turns(input.first_sequence, input.last_sequence)


@describe_input.register
def _(input: DigestInput) -> str:
    return _turns(input.turns.start, input.turns.stop - 1)


@describe_input.register
def _(input: SummaryInput | FormationInput) -> str:
    return _turns(input.request.turns[0].index, input.request.turns[-1].index)


@describe_input.register
def _(input: ConsolidationInput) -> str:
    return f"{len(input.request.observations)} observations"


def _turns(first: int, last: int) -> str:
    return f"turns {first}–{last}"


# --- result ---


@singledispatch
def readable_parts(answer: Any) -> list[AnswerPart]:
    return [AnswerPart("Answer", str(answer))]


@readable_parts.register
def _(answer: BuildResult) -> list[AnswerPart]:
    moments = [
        AnswerPart(segment.draft.name, _paragraphs(segment.draft.summary, segment.draft.detail), _about(segment))
        for segment in answer.segments
    ]
    return [*moments, AnswerPart("Journey", answer.journey)]


@readable_parts.register
def _(answer: TimedSummary) -> list[AnswerPart]:
    return [AnswerPart("Summary", answer.answer.summary_text), AnswerPart("Facts", _facts(answer.answer.facts))]


@readable_parts.register
def _(answer: FormationResult) -> list[AnswerPart]:
    items = [
        AnswerPart(f"{one.label}, {one.atom_type}", one.draft.text, f"turns {_numbers(one.sequences)}")
        for one in answer.candidates
    ]
    dropped = "\n".join(f"{number} × {reason}" for reason, number in (+answer.dropped).items())
    return [*items, AnswerPart("Dropped", dropped)] if dropped else items


@readable_parts.register
def _(answer: ConsolidatedText) -> list[AnswerPart]:
    text = answer.content
    dropped = "\n".join(f"{number} × {reason}" for reason, number in answer.dropped.items())
    return [
        AnswerPart("Text", text, f"{len(text.split())} words"),
        *([AnswerPart("Dropped", dropped)] if dropped else []),
    ]


@readable_parts.register
def _(answer: DigestResult) -> list[AnswerPart]:
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


@dataclass(frozen=True)
class Side:
    result: TrialAnswer
    is_active: bool
    parts: list[AnswerPart]


def readable_sides(trial: Trial, active: PromptVersion | None) -> list[Side]:
    return [
        Side(
            result,
            bool(active and result.version.pk == active.pk),
            readable_parts(result.answer) if result.answer else [],
        )
        for result in trial.answers
    ]
