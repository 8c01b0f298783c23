"""Help for each purpose of a prompt: when it is read, what the engine gets with it, what it has to answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from pydantic import BaseModel

from moments_app.engines.calls.consolidation import ConsolidationAnswer
from moments_app.engines.calls.digest import DigestAnswer
from moments_app.engines.calls.formation import FormationShape
from moments_app.engines.calls.moments import SHOWN_MOMENTS, MomentAnswer
from moments_app.engines.calls.recall_query import QueryAnswer
from moments_app.engines.calls.summary import SummaryAnswer
from moments_app.engines.transcript import instructions
from moments_app.models import PromptResource
from moments_app.sessions.checkpoint import MAX_WORDS, SHOWN_TURNS
from moments_app.streams.consolidate import MAX_OBSERVATIONS
from moments_app.streams.formation import MAX_TURNS

Purpose = PromptResource.Purpose


@dataclass(frozen=True)
class AnswerField:
    """A field of the answer: its name, those it lies in before it, and what it may hold."""

    name: str
    limit: str
    description: str


@dataclass(frozen=True)
class PromptHelp:
    """The text beside the editor.

    Args:
        use: when the prompt is read, and what comes of it.
        given: what the engine gets beside the prompt.
        fields: of the answer.
        rules: follow every prompt; blank: this one is no instruction to an engine.
    """

    use: str
    given: list[str]
    fields: list[AnswerField]
    rules: str


def help_for(purpose: str) -> PromptHelp:
    """Return what is known of prompts of this purpose."""
    use, given, answer = _KNOWN[purpose]
    largest = f"{settings.MOMENT_BUILDER.max_input_tokens:,}"
    lines = [line.format(tokens=largest) for line in given]
    rules = instructions("", has_turns=purpose != Purpose.STREAM_CONSOLIDATION).strip()
    return PromptHelp(use, lines, list(_fields(answer)) if answer else [], rules if answer else "")


_KNOWN: dict[str, tuple[str, list[str], type[BaseModel] | None]] = {
    Purpose.MOMENT_BUILDER: (
        "Divides older turns of a session into moments, and merges what they tell into the profile.",
        [
            "The turns, numbered from 0, at most about {tokens} tokens a call",
            "The profile so far",
            "The person's journey up to the turns: as it was told last, and since when it is",
            f"The latest moments before the turns, at most {SHOWN_MOMENTS}",
        ],
        MomentAnswer,
    ),
    Purpose.ROLLING_SUMMARY: (
        "Carries the summary of a session's latest window on, after each round.",
        [
            "The turns since the last summary, at most about {tokens} tokens",
            "The summary so far, and its facts that lie in the window",
            "Where the window begins",
        ],
        SummaryAnswer,
    ),
    Purpose.MEMORY_EXTRACTION: (
        "Says what of the latest turns goes into which memory stream, as observations and facts.",
        [
            f"The turns since the last formation, at most {MAX_TURNS} and about {{tokens}} tokens",
            "For each stream what it takes in, how many items of how many words, and what it has already",
        ],
        FormationShape,
    ),
    Purpose.STREAM_CONSOLIDATION: (
        "Folds the observations that wait in a stream into its text.",
        [
            "What the stream's text is for, in the stream's own words, and how many words it may have",
            "The lines so far, each with its label, and those written by hand, which stay as they are",
            f"The observations that wait, oldest first with their dates, at most {MAX_OBSERVATIONS}",
        ],
        ConsolidationAnswer,
    ),
    Purpose.SESSION_DIGEST: (
        "Makes a short context of a session that pauses or ends, and lessons for the person's later contexts.",
        [
            f"The latest {SHOWN_TURNS} turns of the live window",
            "What is known from before it",
            f"How many words the context may have: {MAX_WORDS}",
        ],
        DigestAnswer,
    ),
    Purpose.RECALL_QUERY: (
        "Says what to look up in memory before a message is answered, for contexts with retrieval auto.",
        ["The latest turns of the session", "The message that is about to be answered"],
        QueryAnswer,
    ),
    Purpose.MEMORY_POLICY: ("Is the first layer of every context, as it stands. No engine reads it here.", [], None),
}


def _fields(answer: type[BaseModel]) -> Iterator[AnswerField]:
    schema = answer.model_json_schema()
    return _described(schema, schema.get("$defs", {}), "")


def _described(part: dict[str, Any], parts: dict[str, Any], within: str) -> Iterator[AnswerField]:
    for name, field in part["properties"].items():
        yield AnswerField(f"{within}{name}", _limit(field), field.get("description", ""))
        if nested := parts.get(field.get("items", {}).get("$ref", "").rpartition("/")[2]):
            yield from _described(nested, parts, f"{within}{name} › ")


def _limit(field: dict[str, Any]) -> str:
    if field["type"] == "array":
        return f"list, at most {field['maxItems']:,}" if "maxItems" in field else "list"
    if field["type"] == "string":
        return f"text, at most {field['maxLength']:,} characters" if "maxLength" in field else "text"
    return "number"
