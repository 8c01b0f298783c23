"""The OpenAI protocols of the chat endpoint: only their differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moments_app.interfaces.chat import request, responses
from moments_app.interfaces.chat.answer import Answer
from moments_app.interfaces.chat.request import ChatRequest

_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True)
class Protocol:
    """A protocol for calling a model.

    Args:
        name: its name in records.
        path: the path of a call, here and at the upstream.
        read_request: returns the request in a body; raises `ChatError`.
        answer: the class that reads the parts of an answer.
        endings: possible starts of the event that ends a stream.
    """

    name: str
    path: str
    read_request: Callable[[bytes], ChatRequest]
    answer: type[Answer]
    endings: Sequence[bytes]


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
    read_request=responses.read_request,
    answer=responses.ResponsesAnswer,
    endings=[
        f"{beginning}{event}".encode()
        for event in _LAST_EVENTS
        for beginning in ("event: ", "event:", 'data: {"type":"', 'data: {"type": "', 'data:{"type":"')
    ],
)
PROTOCOLS = {protocol.name: protocol for protocol in (CHAT, RESPONSES)}
