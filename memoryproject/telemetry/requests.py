"""The id of a request. It is taken from the client or generated, and is in every response and log line."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind
from starlette.types import Message, Scope, Send

from memoryproject.serving.request_metrics import door
from sessions_app.trace import HEADER, continued, request_id

ANSWERED = b"x-request-id"


@contextmanager
def identified(scope: Scope, send: Send) -> Iterator[Send]:
    """Set the id of a request. Yield a `send` that adds it to the response.

    Args:
        scope, send: The ASGI scope and channel. A client may send a `traceparent` or an `X-Request-Id`.
    """
    headers = {name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
    carrier = {HEADER: headers.get(HEADER.encode()) or headers.get(ANSWERED, "")}
    with continued(carrier, f"{scope.get('method', '')} {door(scope.get('path', ''))}", SpanKind.SERVER) as span:

        async def note_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", message["status"])
                message["headers"] = [*message.get("headers", ()), (ANSWERED, request_id().encode())]
            await send(message)

        yield note_and_send
