"""The protocols of OpenAI that the chat endpoint speaks: where they differ, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moments_app.interfaces.chat import request, responses
from moments_app.interfaces.chat.answer import Answer
from moments_app.interfaces.chat.request import ChatRequest

_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True)
class Protocol:
    """A way to ask a model.

    Args:
        name: in records.
        path: of a call, here and at the upstream.
        read_request: returns the request in a body; raises `ChatError`.
        answer: what reads the parts of an answer.
        endings: how the event begins that ends a stream.
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
