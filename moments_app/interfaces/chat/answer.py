"""What a model answered, read from the bytes that were passed on: a whole completion, or a stream of its parts.

The upstream is not trusted: whatever the bytes are, they become an answer that can be stored, or none.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from pydantic import ValidationError as NoMessage
from rest_framework.exceptions import ValidationError

from moments_app.interfaces.chat.conversation import stored
from sessions_app.imports.records import filled
from sessions_app.shorten import shorten_middle
from sessions_app.transcript.append import NewMessage

NOTICE_CHARS = 100  # of the notice in a text that is shortened


@dataclass
class Answer:
    """The first choice of a completion.

    Args:
        text: what was said.
        calls: of tools, by their position.
        model: as the upstream names it.
        finish_reason: why it ended; blank when it didn't.
    """

    text: str = ""
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    model: str = ""
    finish_reason: str = ""

    def take(self, part: Any) -> None:
        """Adds a completion, or a part of one."""
        choices = part.get("choices") if isinstance(part, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self.model = _text(part.get("model")) or self.model
                self.finish_reason = _text(choice.get("finish_reason")) or self.finish_reason
                self._say(choice.get("delta") or choice.get("message"))

    def _say(self, said: Any) -> None:
        if not isinstance(said, dict):
            return
        self.text += _text(said.get("content")) or _text(said.get("refusal"))
        calls = said.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
                number = call.get("index", position)
                self._call(number if isinstance(number, int) else position, _text(call.get("id")), function)

    def _call(self, number: int, call_id: str, function: dict[str, Any]) -> None:
        begun = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self.calls.setdefault(number, begun)
        call["id"] = call_id or call["id"]
        call["function"]["name"] += _text(function.get("name"))
        call["function"]["arguments"] += _text(function.get("arguments"))

    def _finished(self, number: int) -> dict[str, Any]:
        call = self.calls[number]
        function = {name: _storable(value) for name, value in call["function"].items()}
        return {"id": _storable(call["id"]), "type": "function", "function": function}

    def turn(self, metadata: dict[str, Any], *, is_whole: bool) -> NewMessage | None:
        """As the transcript takes it; None when nothing was said. Calls of an answer that broke off were not made."""
        calls = [self._finished(number) for number in sorted(self.calls)] if is_whole else []
        if not self.text and not calls:
            return None
        text = shorten_middle(_storable(self.text), max(0, settings.MESSAGE_MAX_CHARS - NOTICE_CHARS))
        try:
            turn = stored({"role": "assistant", "content": text, "tool_calls": calls}, {})
        except (NoMessage, ValidationError):
            return None
        extras = {"model": self.model, "finish_reason": self.finish_reason} | metadata
        return replace(turn, metadata=filled({name: _storable(value)[:255] for name, value in extras.items()}))


def read_answer(data: bytes, *, is_stream: bool) -> Answer:
    """The answer in what was passed on."""
    answer = Answer()
    for part in _events(data) if is_stream else [data]:
        try:
            answer.take(json.loads(part))
        except (ValueError, RecursionError):
            continue
    return answer


def _events(data: bytes) -> Iterator[bytes]:
    """The data of server-sent events."""
    for line in data.splitlines():
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _storable(text: str) -> str:
    """Without what PostgreSQL can't keep, NUL and lone surrogates; of a pair that came in two parts one character."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
