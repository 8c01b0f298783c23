"""What a model is asked to answer, and what its answer has to be before anything is done with it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from moments_app.engines.base import (
    ConsolidationAnswer,
    DigestAnswer,
    FormationAnswer,
    FormationShape,
    MomentAnswer,
    QueryAnswer,
    SummaryAnswer,
)

PROBLEM_MAX = 2_000  # characters told to the model of what is wrong

# The parts of JSON Schema that every endpoint with strict structured outputs takes. Some refuse a schema with bounds of
# length or defaults; those are held by validating the answer.
_KEYWORDS = {"$defs", "$ref", "type", "description", "properties", "items"}


class InvalidAnswer(Exception):
    """An answer that can't be used.

    Args:
        answer: its text.
        problem: what is wrong with it, for the model; may quote the answer.
        summary: the same for operators, without a word of the answer.
    """

    def __init__(self, answer: str, problem: str, summary: str = "") -> None:
        self.answer, self.problem, self.summary = answer, problem[:PROBLEM_MAX], summary or problem


def strict_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema as strict structured outputs want it: every property required, and no other allowed."""
    kept = {keyword: value for keyword, value in schema.items() if keyword in _KEYWORDS}
    for keyword in kept.keys() & {"properties", "$defs"}:
        kept[keyword] = {name: strict_schema(part) for name, part in kept[keyword].items()}
    if "items" in kept:
        kept["items"] = strict_schema(kept["items"])
    if "properties" in kept:
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept


Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True)
class Shape(Generic[Answer]):
    """What a model is asked for.

    Args:
        purpose: of the call, as it is recorded.
        model: what the answer has to validate as.
        problem: what else is wrong with an answer, in words that don't quote it; blank when nothing is.
        asked: what is asked for, where more is taken than that; else the same.
    """

    purpose: str
    model: type[Answer]
    problem: Callable[[Answer], str]
    asked: type[BaseModel] | None = None

    @cached_property
    def schema(self) -> dict[str, Any]:
        """As strict structured outputs want it."""
        return strict_schema((self.asked or self.model).model_json_schema())

    @property
    def as_text(self) -> str:
        """The shape in words, for endpoints that can't be given it as a response format."""
        return f"The answer's shape, as JSON Schema: {json.dumps(self.schema)}"


def _moments_problem(answer: MomentAnswer) -> str:
    told = all(moment.name.strip() and moment.summary.strip() for moment in answer.moments)
    return "" if told else "a moment's name or summary is blank."


def _summary_problem(answer: SummaryAnswer) -> str:
    return "" if answer.summary_text.strip() else "the summary is blank."


MOMENTS = Shape("moment-builder", MomentAnswer, _moments_problem)
SUMMARY = Shape("rolling-summary", SummaryAnswer, _summary_problem)
# Whether there is anything in a formation is for each item by itself: see `processes/form_memories.py`.
FORMATION = Shape("memory-extraction", FormationAnswer, lambda answer: "", FormationShape)
CONSOLIDATION = Shape(
    "stream-consolidation",
    ConsolidationAnswer,
    lambda answer: "" if any(line.text.strip() for line in answer.lines) else "every line is blank.",
)

DIGEST = Shape(
    "session-digest",
    DigestAnswer,
    lambda answer: "" if answer.context.strip() else "the context is blank.",
)
QUERY = Shape("recall-query", QueryAnswer, lambda answer: "")


def validated(completion: Any, shape: Shape[Answer], allowance: int) -> Answer:
    """The answer in a chat completion.

    Args:
        completion: the endpoint's JSON, whatever it is.
        shape: that it has to have.
        allowance: most characters the answer's texts may have together.

    Raises:
        InvalidAnswer: when there is none that can be used.
    """
    text = _text(completion)
    try:
        answer = shape.model.model_validate_json(_json_object(text))
    except ValidationError as error:
        raise _misshapen(text, error) from None
    texts = list(_strings(answer.model_dump()))
    length = sum(map(len, texts))
    if length > allowance:
        raise InvalidAnswer(text, f"it has {length} characters, more than the conversation; be shorter.")
    if any("\0" in part for part in texts):
        raise InvalidAnswer(text, "it holds a NUL character.")
    if problem := shape.problem(answer):
        raise InvalidAnswer(text, problem)
    return answer


def _text(completion: Any) -> str:
    try:
        choice = completion["choices"][0]
        message = choice["message"]
        text = message["content"]
    except (KeyError, IndexError, TypeError):
        raise InvalidAnswer("", "it has no choices with a message.") from None
    if message.get("refusal"):
        raise InvalidAnswer("", "the model refused.")
    if not isinstance(text, str) or not text.strip():
        raise InvalidAnswer("", "it is empty.")
    if choice.get("finish_reason") == "length":
        raise InvalidAnswer(text, "it was cut off at the model's limit; be shorter.")
    return text


def _json_object(text: str) -> str:
    """The JSON object in an answer: it may follow a model's thoughts, stand in a fence or between words."""
    if text.lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _misshapen(text: str, error: ValidationError) -> InvalidAnswer:
    found = error.errors(include_url=False, include_input=False)[:10]
    problem = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the answer'}: {e['msg']}" for e in found)
    # Names of fields may be the model's own; the kinds of error are not.
    kinds = "; ".join(sorted({e["type"] for e in found}))
    return InvalidAnswer(text, f"{problem}.", f"{kinds}.")


def _strings(value: object) -> Iterator[str]:
    """All texts in a value made of dicts and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
