"""Questions to a model, and validation of its answers."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic

from pydantic import BaseModel, ValidationError

from moments_app.engines.grounding import Answer, AnswerCheck, CheckedAnswer
from moments_app.engines.transcript import Turn, fenced

PROBLEM_MAX = 2_000  # maximum characters of a problem when it is sent to the model
# An answer may always be this long, because the names and tags of a short window may be longer than the window.
ANSWER_MIN_ALLOWANCE = 6_000  # total characters of the answer's texts
# JSON Schema keywords accepted by every endpoint with strict structured outputs. Some endpoints reject length limits or
# defaults, so these are enforced when the answer is validated.
_KEYWORDS = {"$defs", "$ref", "type", "description", "properties", "items"}


class InvalidAnswer(Exception):
    """An unusable answer.

    Args:
        problem: A description for the model, which may quote the answer.
        summary: A description for operators, which doesn't quote the answer.
    """

    def __init__(self, answer: str, problem: str, summary: str = "") -> None:
        self.answer, self.problem, self.summary = answer, problem[:PROBLEM_MAX], summary or problem


@dataclass(frozen=True)
class Shape(Generic[Answer]):
    """The required shape of a model's answer."""

    purpose: str  # purpose of the call, for its record
    model: type[Answer]
    # returns a problem that `model` can't detect, without quoting the answer
    problem: Callable[[Answer], str] = lambda answer: ""
    asked: type[BaseModel] | None = None  # the pydantic model whose schema is sent, if it is stricter than `model`

    @cached_property
    def schema(self) -> dict[str, Any]:
        return _strict_schema((self.asked or self.model).model_json_schema())

    @property
    def as_text(self) -> str:
        """The shape in words, for endpoints that don't accept a schema as a response format."""
        return f"The answer's shape, as JSON Schema: {json.dumps(self.schema)}"


@dataclass(frozen=True)
class Question(Generic[Answer]):
    """A request to a model, with the shape and the checks of its answer."""

    shape: Shape[Answer]
    prompt: str  # the text of the active prompt version
    known: str  # the text before the turns
    check: AnswerCheck[Answer] = CheckedAnswer  # removes statements that the request doesn't support
    turns: Sequence[Turn] = ()
    max_length: int = 0  # maximum characters of the answer's texts in total, if greater than `ANSWER_MIN_ALLOWANCE`

    @property
    def text(self) -> str:
        """The user message of a separate call."""
        if not self.turns:
            return self.known
        return "\n".join([self.known, indexes_of([turn.index for turn in self.turns]), fenced(self.turns)])

    def checked_answer(self, completion: Any, *, is_last: bool = False) -> CheckedAnswer[Answer]:
        """Return the part of a chat completion's answer that the turns support.

        Args:
            completion: The endpoint's JSON. It is not trusted.
            is_last: Whether this is the last attempt. If so, a partly supported answer is accepted.

        Raises:
            InvalidAnswer: There is no usable answer.
        """
        return self.checked_text(_text(completion), is_last=is_last)

    def checked_text(self, text: str, *, is_last: bool = False) -> CheckedAnswer[Answer]:
        try:
            answer = self.shape.model.model_validate_json(_json_object(text))
        except ValidationError as error:
            raise _misshapen(text, error) from None
        texts = list(_strings(answer.model_dump()))
        length = sum(map(len, texts))
        if length > max(ANSWER_MIN_ALLOWANCE, self.max_length):
            raise InvalidAnswer(text, f"it has {length} characters, more than the conversation; be shorter.")
        if any("\0" in part for part in texts):
            raise InvalidAnswer(text, "it contains a NUL character.")
        if problem := self.shape.problem(answer):
            raise InvalidAnswer(text, problem)
        checked = self.check(answer)
        if checked.problem and not (is_last and checked.is_usable):
            raise _unsupported(text, checked)
        return checked


def indexes_of(indexes: Sequence[int]) -> str:
    return f"Turns: {indexes[0]} to {indexes[-1]}."


def length_of(turns: Sequence[Turn]) -> int:
    return sum(len(turn.content) for turn in turns)


def read_object(completion: Any) -> dict[str, Any]:
    """Return the JSON object in a chat completion. Raise `InvalidAnswer` if there is none."""
    text = _text(completion)
    try:
        answer = json.loads(_json_object(text))
    except (ValueError, RecursionError):
        raise InvalidAnswer(text, "it is not JSON.") from None
    if not isinstance(answer, dict):
        raise InvalidAnswer(text, "it is not a JSON object.")
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
    if choice.get("finish_reason") == "content_filter":
        raise InvalidAnswer("", "the endpoint's content filter stopped it.")
    if not isinstance(text, str) or not text.strip():
        raise InvalidAnswer("", "it is empty.")
    if choice.get("finish_reason") == "length":
        raise InvalidAnswer(text, "it was cut off at the model's limit; be shorter.")
    return text


def _json_object(text: str) -> str:
    """Return the JSON object in an answer. It may follow a model's reasoning, or be in a code fence or other text."""
    if text.lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _misshapen(text: str, error: ValidationError) -> InvalidAnswer:
    found = error.errors(include_url=False, include_input=False)[:10]
    problem = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the answer'}: {e['msg']}" for e in found)
    # A field name may come from the model, so only the types of the errors are quoted.
    kinds = "; ".join(sorted({e["type"] for e in found}))
    return InvalidAnswer(text, f"{problem}.", f"{kinds}.")


def _unsupported(text: str, checked: CheckedAnswer[Any]) -> InvalidAnswer:
    left_out = "; ".join(f"{json.dumps(one.text, ensure_ascii=False)} ({one.reason})" for one in checked.left_out)
    counts = ", ".join(f"{reason}: {count}" for reason, count in checked.dropped.items())
    summary = f"{checked.problem} Left out ({counts})."
    return InvalidAnswer(text, f"{checked.problem} Left out: {left_out}.", summary)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def _strict_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema for strict structured outputs: every property is required, and no other is allowed."""
    kept = {keyword: value for keyword, value in schema.items() if keyword in _KEYWORDS}
    for keyword in kept.keys() & {"properties", "$defs"}:
        kept[keyword] = {name: _strict_schema(part) for name, part in kept[keyword].items()}
    if "items" in kept:
        kept["items"] = _strict_schema(kept["items"])
    if "properties" in kept:
        kept.pop("description", None)  # the docstring of the class, which models don't need
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept
