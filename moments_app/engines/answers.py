"""What a model is asked to answer, and what its answer has to be before anything is done with it."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from moments_app.engines.base import MomentAnswer

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


MOMENTS_SCHEMA = strict_schema(MomentAnswer.model_json_schema())


def validated(completion: Any, allowance: int) -> MomentAnswer:
    """The answer in a chat completion.

    Args:
        completion: the endpoint's JSON, whatever it is.
        allowance: most characters the answer's texts may have together.

    Raises:
        InvalidAnswer: when there is none that can be used.
    """
    text = _text(completion)
    try:
        answer = MomentAnswer.model_validate_json(_json_object(text))
    except ValidationError as error:
        raise _misshapen(text, error) from None
    texts = list(_strings(answer.model_dump()))
    length = sum(map(len, texts))
    if length > allowance:
        raise InvalidAnswer(text, f"it has {length} characters, more than the conversation; be shorter.")
    if any("\0" in part for part in texts):
        raise InvalidAnswer(text, "it holds a NUL character.")
    if not all(moment.name.strip() and moment.summary.strip() for moment in answer.moments):
        raise InvalidAnswer(text, "a moment's name or summary is blank.")
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


def schema_text() -> str:
    """The answer's shape in words, for endpoints that can't be given it as a response format."""
    return f"The answer's shape, as JSON Schema: {json.dumps(MOMENTS_SCHEMA)}"
