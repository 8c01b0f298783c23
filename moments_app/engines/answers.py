"""Validate a model's answer before it is used."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from moments_app.engines.calls.shape import Answer, Shape
from moments_app.engines.grounding import Judge, Judged

PROBLEM_MAX = 2_000  # characters of the problem that is sent to the model


class InvalidAnswer(Exception):
    """An unusable answer.

    Args:
        answer: Its text.
        problem: A description of the problem for the model, which may quote the answer.
        summary: A description of the problem for operators, which doesn't quote the answer.
    """

    def __init__(self, answer: str, problem: str, summary: str = "") -> None:
        self.answer, self.problem, self.summary = answer, problem[:PROBLEM_MAX], summary or problem


def validated(
    shape: Shape[Answer], allowance: int, judge: Judge[Answer], completion: Any, *, is_last: bool = False
) -> Judged[Answer]:
    """Return the supported part of the answer in a chat completion.

    Args:
        shape: The required shape of the answer.
        allowance: Maximum total characters of the answer's texts.
        judge: Removes content that the conversation doesn't support.
        completion: The endpoint's JSON. It is not trusted.
        is_last: Whether this is the last attempt, so that a partly supported answer is better than none.

    Raises:
        InvalidAnswer: There is no usable answer.
    """
    return validated_text(shape, allowance, judge, _text(completion), is_last=is_last)


def validated_text(
    shape: Shape[Answer], allowance: int, judge: Judge[Answer], text: str, *, is_last: bool = False
) -> Judged[Answer]:
    """Return the answer in a text. See `validated`."""
    try:
        answer = shape.model.model_validate_json(_json_object(text))
    except ValidationError as error:
        raise _misshapen(text, error) from None
    texts = list(_strings(answer.model_dump()))
    length = sum(map(len, texts))
    if length > allowance:
        raise InvalidAnswer(text, f"it has {length} characters, more than the conversation; be shorter.")
    if any("\0" in part for part in texts):
        raise InvalidAnswer(text, "it contains a NUL character.")
    if problem := shape.problem(answer):
        raise InvalidAnswer(text, problem)
    return _usable(text, judge(answer), is_last=is_last)


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


def _usable(text: str, judged: Judged[Answer], *, is_last: bool) -> Judged[Answer]:
    if judged.problem and not (is_last and judged.is_usable):
        left_out = "; ".join(f"{json.dumps(one.text, ensure_ascii=False)} ({one.reason})" for one in judged.left_out)
        counts = ", ".join(f"{reason}: {count}" for reason, count in judged.dropped.items())
        summary = f"{judged.problem} Left out ({counts})."
        raise InvalidAnswer(text, f"{judged.problem} Left out: {left_out}.", summary)
    return judged


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


def _strings(value: object) -> Iterator[str]:
    """Yield all texts in a value of nested dicts and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
