"""Read a model's answer from the relayed bytes: a whole completion, or a stream of its parts.

The upstream is not trusted: any bytes become either an answer that can be stored, or none.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from django.conf import settings
from pydantic import ValidationError as InvalidMessage
from rest_framework.exceptions import ValidationError

from moments_app.interfaces.chat.request import new_message
from sessions_app.text.chat_messages import filled
from sessions_app.text.length import shorten_middle
from sessions_app.transcript.append import NewMessage

_USAGE = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}  # their stored names
NOTICE_CHARS = 100  # of the notice in a shortened text


A = TypeVar("A", bound="Answer")


@dataclass
class Answer:
    """A model's answer: the first choice of a completion.

    Args:
        calls: tool calls, by their position.
        model: the upstream's name of the model.
        finish_reason: why it ended; blank if it didn't.
        usage: tokens, if the upstream reported them: `input_tokens`, `output_tokens`.
    """

    text: str = ""
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    model: str = ""
    finish_reason: str = ""
    usage: dict[str, int] = field(default_factory=dict)

    def add(self, part: Any) -> None:
        """Add a completion, or a part of one."""
        self._add_usage(part.get("usage") if isinstance(part, dict) else None)
        choices = part.get("choices") if isinstance(part, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self.model = _text(part.get("model")) or self.model
                self.finish_reason = _text(choice.get("finish_reason")) or self.finish_reason
                self._add_message(choice.get("delta") or choice.get("message"))

    def _add_usage(self, told: Any) -> None:
        for name, tokens in (told if isinstance(told, dict) else {}).items():
            if name in _USAGE and type(tokens) is int and 0 <= tokens < 2**31:
                self.usage[_USAGE[name]] = tokens

    def _add_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        self.text += _text(message.get("content")) or _text(message.get("refusal"))
        calls = message.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
                number = call.get("index", position)
                self._add_call(number if isinstance(number, int) else position, _text(call.get("id")), function)

    def _add_call(self, number: int, call_id: str, function: dict[str, Any]) -> None:
        begun = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self.calls.setdefault(number, begun)
        call["id"] = call_id or call["id"]
        call["function"]["name"] += _text(function.get("name"))
        call["function"]["arguments"] += _text(function.get("arguments"))

    def _whole_call(self, number: int) -> dict[str, Any]:
        call = self.calls[number]
        function = {name: _storable(value) for name, value in call["function"].items()}
        return {"id": _storable(call["id"]), "type": "function", "function": function}

    def turn(self, metadata: dict[str, Any], *, is_whole: bool) -> NewMessage | None:
        """Return the answer as a turn for the transcript; None if it is empty.

        Args:
            is_whole: whether the answer is complete; tool calls of an incomplete answer are dropped.
        """
        calls = [self._whole_call(number) for number in sorted(self.calls)] if is_whole else []
        if not self.text and not calls:
            return None
        text = shorten_middle(_storable(self.text), max(0, settings.MESSAGE_MAX_CHARS - NOTICE_CHARS))
        try:
            turn = new_message({"role": "assistant", "content": text, "tool_calls": calls}, {})
        except (InvalidMessage, ValidationError):
            return None
        extras = {"model": self.model, "finish_reason": self.finish_reason} | metadata
        texts = filled({name: _storable(value)[:255] for name, value in extras.items()})
        return replace(turn, metadata=texts | self.usage)


def read_answer(answer: A, data: bytes, *, is_stream: bool) -> A:
    """Return the answer with the content of the relayed bytes."""
    for part in _events(data) if is_stream else [data]:
        try:
            answer.add(json.loads(part))
        except (ValueError, RecursionError):
            continue
    return answer


def _events(data: bytes) -> Iterator[bytes]:
    """Yield the data of server-sent events."""
    for line in data.splitlines():
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which PostgreSQL can't store. A split pair is joined."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
