"""Help for each purpose of a prompt: when it is used, what the engine receives, and what it must answer."""

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
from moments_app.sessions.checkpoint import MAX_WORDS
from moments_app.streams.consolidate import MAX_OBSERVATIONS
from moments_app.streams.formation import MAX_TURNS

Purpose = PromptResource.Purpose


@dataclass(frozen=True)
class AnswerField:
    """A field of the answer: its name, its parent fields, and its possible values."""

    name: str
    limit: str
    description: str


@dataclass(frozen=True)
class PromptHelp:
    """The text next to the editor.

    Args:
        use: when the prompt is used, and for what.
        given: the engine's input in addition to the prompt.
        fields: the fields of the answer.
        rules: the rules that follow every prompt; blank: this prompt does not instruct an engine.
    """

    use: str
    given: list[str]
    fields: list[AnswerField]
    rules: str


def help_for(purpose: str) -> PromptHelp:
    """Return the help for prompts of this purpose."""
    use, given, answer = _KNOWN[purpose]
    largest = f"{settings.MOMENT_BUILDER.max_input_tokens:,}"
    lines = [line.format(tokens=largest) for line in given]
    rules = instructions("", has_turns=purpose != Purpose.STREAM_CONSOLIDATION).strip()
    return PromptHelp(use, lines, list(_fields(answer)) if answer else [], rules if answer else "")


_KNOWN: dict[str, tuple[str, list[str], type[BaseModel] | None]] = {
    Purpose.MOMENT_BUILDER: (
        "Divides older turns of a session into moments.",
        [
            "The turns, numbered from 0, at most about {tokens} tokens a call",
            f"The latest moments before the turns, at most {SHOWN_MOMENTS}",
        ],
        MomentAnswer,
    ),
    Purpose.ROLLING_SUMMARY: (
        "Updates the summary of a session's latest turns after each answer.",
        [
            "The turns since the last summary, at most about {tokens} tokens",
            "The summary so far, and its facts about turns in the window",
            "The first turn of the window",
        ],
        SummaryAnswer,
    ),
    Purpose.MEMORY_EXTRACTION: (
        "Extracts observations and facts from the latest turns, and assigns them to memory texts.",
        [
            f"The turns since the last extraction, at most {MAX_TURNS} and about {{tokens}} tokens",
            "For each memory text: what to remember, the maximum number of words, and existing items",
        ],
        FormationShape,
    ),
    Purpose.STREAM_CONSOLIDATION: (
        "Merges the waiting observations of a memory text into it.",
        [
            "The text's own instructions, and its maximum number of words",
            "The current lines with their labels, and lines written by hand, which don't change",
            f"The waiting observations with their dates, oldest first, at most {MAX_OBSERVATIONS}",
        ],
        ConsolidationAnswer,
    ),
    Purpose.SESSION_DIGEST: (
        "Writes a short summary of a session that pauses or ends, and lessons for the person's later contexts.",
        [
            "The live turns that are not in a moment yet, at most about {tokens} tokens a call",
            "What is known from earlier turns",
            f"The maximum number of words: {MAX_WORDS}",
        ],
        DigestAnswer,
    ),
    Purpose.RECALL_QUERY: (
        "Writes the memory search for a message, for contexts with `retrieval=auto`.",
        ["The latest turns of the session", "The message to answer"],
        QueryAnswer,
    ),
    Purpose.MEMORY_POLICY: (
        "The first layer of every context, word for word. No engine reads it.",
        [],
        None,
    ),
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
