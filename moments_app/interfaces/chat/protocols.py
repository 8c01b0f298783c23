"""The OpenAI protocols of the chat endpoint, Chat Completions and Responses. Classes here parse requests and answers.

An answer is parsed from the relayed bytes, which are a whole response or a stream of its parts. The upstream is not
trusted. Any bytes result either in an answer that can be stored, or in no answer.

The requests and answers of the Responses API consist of items. In the transcript, an item is a message or a part of
one. Consecutive items of an assistant, including its tool calls, are one turn, so that an answer is recognized in the
input of the next call. Items without text, such as reasoning, stay next to the items they belong to, and are forwarded
unchanged.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeVar

from django.conf import settings
from pydantic import ValidationError as InvalidMessage
from rest_framework.exceptions import ValidationError

from moments_app.interfaces.chat import request
from moments_app.interfaces.chat.errors import ChatError
from moments_app.interfaces.chat.request import ChatRequest, Entry, new_message, read_body, read_turns
from sessions_app.models.message import spoken
from sessions_app.text.chat_messages import without_empty
from sessions_app.text.length import shorten_middle
from sessions_app.transcript.append import NewMessage

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}  # types of calls, and fields with their arguments
RESULTS = ("function_call_output", "custom_tool_call_output")
# Fields that refer to earlier turns at the upstream. A request with memory omits them, because memory contains these
# turns.
EARLIER_TURNS = ("conversation", "previous_response_id")
_FINISHED = {"max_output_tokens": "length", "content_filter": "content_filter"}
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")
_USAGE = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}  # names in the API and in stored turns
NOTICE_CHARS = 100  # maximum characters of the notice in a shortened text


A = TypeVar("A", bound="Answer")


@dataclass
class Answer:
    """A model's answer, which is the first choice of a completion."""

    text: str = ""
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)  # tool calls, by position
    model: str = ""
    finish_reason: str = ""  # blank if the end of the answer is missing
    usage: dict[str, int] = field(default_factory=dict)  # `input_tokens` and `output_tokens`

    def add(self, part: Any) -> None:
        """Add a completion, or one chunk of a stream."""
        self._add_usage(part.get("usage") if isinstance(part, dict) else None)
        choices = part.get("choices") if isinstance(part, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self.model = _string(part.get("model")) or self.model
                self.finish_reason = _string(choice.get("finish_reason")) or self.finish_reason
                self._add_message(choice.get("delta") or choice.get("message"))

    def _add_usage(self, usage: Any) -> None:
        for name, tokens in (usage if isinstance(usage, dict) else {}).items():
            if name in _USAGE and type(tokens) is int and 0 <= tokens < 2**31:
                self.usage[_USAGE[name]] = tokens

    def _add_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        self.text += _text(message.get("content")) or _string(message.get("refusal"))
        calls = message.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
                number = call.get("index", position)
                self._add_call(number if isinstance(number, int) else position, _string(call.get("id")), function)

    def _add_call(self, number: int, call_id: str, function: dict[str, Any]) -> None:
        empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self.calls.setdefault(self._place_of_call(number, call_id), empty)
        call["id"] = call_id or call["id"]
        call["function"]["name"] += _string(function.get("name"))
        call["function"]["arguments"] += _string(function.get("arguments"))

    def _place_of_call(self, number: int, call_id: str) -> int:
        """Return the position of the tool call of a streamed part. Some endpoints number all calls 0."""
        known = self.calls[number]["id"] if number in self.calls else ""
        if not (known and call_id) or known == call_id:
            return number
        return next((place for place, call in self.calls.items() if call["id"] == call_id), max(self.calls) + 1)

    def _storable_call(self, number: int) -> dict[str, Any]:
        call = self.calls[number]
        function = {name: _storable(value) for name, value in call["function"].items()}
        return {"id": _storable(call["id"]), "type": "function", "function": function}

    def turn(self, metadata: dict[str, Any], *, is_whole: bool) -> NewMessage | None:
        """Return the answer as a turn for the transcript, or None if it is empty.

        Tool calls of an incomplete answer are dropped.
        """
        calls = [self._storable_call(number) for number in sorted(self.calls)] if is_whole else []
        if not self.text and not calls:
            return None
        text = shorten_middle(_storable(self.text), max(0, settings.MESSAGE_MAX_CHARS - NOTICE_CHARS))
        try:
            turn = new_message({"role": "assistant", "content": text, "tool_calls": calls}, {})
        except (InvalidMessage, ValidationError):
            return None
        extras = {"model": self.model, "finish_reason": self.finish_reason} | metadata
        texts = without_empty({name: _storable(value)[:255] for name, value in extras.items()})
        return replace(turn, metadata=texts | self.usage)


def read_answer(answer: A, data: bytes, *, is_stream: bool) -> A:
    """Add the parts in the relayed bytes to `answer`, which is empty at first, and return it. Skip invalid parts."""
    for part in _events(data) if is_stream else [data]:
        try:
            answer.add(json.loads(part))
        except (ValueError, RecursionError):
            continue
    return answer


def _events(data: bytes) -> Iterator[bytes]:
    for line in data.splitlines():
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _storable(text: str) -> str:
    """Replace NUL characters and lone surrogates, which PostgreSQL can't store. Join split surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class ResponsesRequest(ChatRequest):
    """A request of the Responses API, whose body consists of items."""

    @property
    def conversation(self) -> Any:
        named = self.body.get("conversation")
        return named.get("id", "") if isinstance(named, dict) else named

    def derived_session(self, user_id: str) -> str:
        """Return a session id derived from the first message, or blank if the request continues an earlier response."""
        return "" if self.body.get("previous_response_id") else super().derived_session(user_id)

    def as_parts(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [item for message in messages for item in _items(message)]

    def with_parts(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in self.body.items() if name not in EARLIER_TURNS} | {"input": parts}

    def without_memory(self) -> bytes:
        """Return the body without its conversation.

        Keep the id of the earlier response, because the upstream may know it.
        """
        body = {name: value for name, value in self.body.items() if name != "conversation"}
        return self.data if body == self.body else json.dumps(body).encode()


def read_request(data: bytes) -> ResponsesRequest:
    """Parse the body of a Responses request, or raise `ChatError`."""
    body = read_body(data)
    if body.get("background"):
        raise ChatError(400, "background", "background=true is not supported. Send the request without it.")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise ChatError(400, "invalid_input", "Send input as a text or a list of items.")
    groups = _group(items)
    places = accumulate((len(parts) for _message, parts in groups), initial=0)
    turns = list(read_turns((f"input[{place}]", message) for place, (message, _) in zip(places, groups, strict=False)))
    return ResponsesRequest(body, data, [Entry(message["role"], parts) for message, parts in groups], turns)


Grouped = list[tuple[dict[str, Any], list[dict[str, Any]]]]


def _group(items: Sequence[Any]) -> Grouped:
    """Group items into chat messages, each with its items. May raise `ChatError`."""
    groups: Grouped = []
    textless: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        message = _message(number, item)
        is_assistants = message is None or message["role"] == "assistant"
        if is_assistants and groups and groups[-1][0]["role"] == "assistant":
            groups[-1] = (_join(groups[-1][0], message), [*groups[-1][1], item])
        elif message is None:
            textless.append(item)
        else:
            groups.append((message, [*textless, item]))
            textless = []
    if groups:
        groups[-1][1].extend(textless)
    return groups


def _message(number: int, item: Any) -> dict[str, Any] | None:
    """Return an item as a chat message, or None if it has no text. May raise `ChatError`."""
    if not isinstance(item, dict):
        raise ChatError(400, "invalid_input", f"input[{number}] must be an object.")
    kind = item.get("type", "message")
    if kind in CALLS:
        return {"role": "assistant", "content": "", "tool_calls": [_call(item)]}
    if kind in RESULTS:
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    if kind != "message":
        return None
    role, content = item.get("role"), item.get("content")
    return {"role": role, "content": _text(content) if role == "assistant" else content}


def _join(message: dict[str, Any], more: dict[str, Any] | None) -> dict[str, Any]:
    if more is None:
        return message
    texts = [text for text in (message["content"], more["content"]) if text]
    calls = [*message.get("tool_calls", ()), *more.get("tool_calls", ())]
    return {"role": "assistant", "content": "\n".join(texts)} | ({"tool_calls": calls} if calls else {})


def _call(item: dict[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get(CALLS[item["type"]])}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [part.get("text") or part.get("refusal") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))


def _items(message: dict[str, Any]) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        return [
            {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": message["content"] or ""}
        ]
    text = spoken(message.get("name", ""), message["content"] or "")
    messages = [{"role": message["role"], "content": text}] if text else []
    calls = [
        {"type": "function_call", "call_id": call["id"]} | call["function"] for call in message.get("tool_calls", ())
    ]
    return [*messages, *calls]


class ResponsesAnswer(Answer):
    """An answer of the Responses API: the output of a response."""

    def add(self, part: Any) -> None:
        """Add a response, or an event of its stream."""
        if not isinstance(part, dict):
            return
        match part.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                self.text += _string(part.get("delta"))
            case "response.output_item.done":
                self._add_item(part.get("item"))
            case _:
                self._add_response(part.get("response", part))

    def _add_item(self, item: Any) -> None:
        if isinstance(item, dict) and item.get("type") in CALLS:
            called = _call(item)
            if all(isinstance(text, str) for text in (called["id"], *called["function"].values())):
                self.calls[len(self.calls)] = called

    def _add_response(self, response: Any) -> None:
        output = response.get("output") if isinstance(response, dict) else None
        if not isinstance(output, list):
            return
        self.model = _string(response.get("model")) or self.model
        if output:  # the complete output; a stream has already sent it in parts
            self._replace([item for item in output if isinstance(item, dict)])
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        if response.get("status") == "completed":
            self.finish_reason = "tool_calls" if self.calls else "stop"
        elif response.get("status") == "incomplete":
            self.finish_reason = _FINISHED.get(str(reason), "incomplete")

    def _replace(self, output: Sequence[dict[str, Any]]) -> None:
        texts = [_text(item.get("content")) for item in output if item.get("type") == "message"]
        self.text = "\n".join(filter(None, texts))
        self.calls = {}
        for item in output:
            self._add_item(item)


@dataclass(frozen=True)
class Protocol:
    """One of OpenAI's protocols for calling a model."""

    name: str  # identifies the protocol in the spool's records
    path: str  # path in the URLs of this endpoint and of the upstream
    read_request: Callable[[bytes], ChatRequest]  # parses the body of a request; raises `ChatError`
    answer: type[Answer]  # parses answers
    endings: Sequence[bytes]  # prefixes by which the last event of a stream is recognized


CHAT = Protocol(
    name="chat",
    path="/chat/completions",
    read_request=request.read_request,
    answer=Answer,
    endings=(b"data: [DONE]", b"data:[DONE]"),
)
RESPONSES = Protocol(
    name="responses",
    path="/responses",
    read_request=read_request,
    answer=ResponsesAnswer,
    endings=[
        f"{beginning}{event}".encode()
        for event in _LAST_EVENTS
        for beginning in ("event: ", "event:", 'data: {"type":"', 'data: {"type": "', 'data:{"type":"')
    ],
)
PROTOCOLS = {protocol.name: protocol for protocol in (CHAT, RESPONSES)}
