"""Ask the upstream model again without some lines of memory, to see whether its answer depends on them."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC
from typing import Any

from django.conf import settings

from moments_app.context.item import Item
from moments_app.context.receipts import KeptContext, KeptLine
from moments_app.context.render import FORMATS
from moments_app.engines.answers import InvalidAnswer
from moments_app.engines.interface import CallRecord
from moments_app.models import EngineCall
from moments_app.models.engine_call import TRIAL

PURPOSE = f"{TRIAL}trace"
SECONDS = 60.0
ANSWER_BYTES = 1_000_000
FORMAT = "xml"
LineName = tuple[str, int]  # the layer of a line, and the line's index in the layer


def can_ask_again() -> bool:
    return bool(settings.CHAT.upstream_base_url)


def ask_again(kept: KeptContext, left_out: Collection[LineName], *, model: str) -> str:
    """Send a context without some of its lines to the upstream model, and return the answer.

    Args:
        left_out: the lines to leave out.

    Raises:
        EngineError: the model did not answer.
        InvalidAnswer: the answer can't be parsed.
    """
    from moments_app.engines.endpoint import Endpoint  # imported here because commands don't need the client

    chat = settings.CHAT
    endpoint = Endpoint(
        base_url=chat.upstream_base_url,
        path="/chat/completions",
        api_key=chat.upstream_api_key.get_secret_value(),
        model=model,
        max_response_bytes=ANSWER_BYTES,
        record=_record,
    )
    seconds = min(SECONDS, chat.read_timeout_seconds)
    body = {"messages": _messages(kept, left_out)}
    return endpoint.call(PURPOSE, body, seconds=seconds, read=_said, refuses=lambda _: False)


def _record(call: CallRecord) -> None:
    EngineCall.objects.record(replace(call, exchange=None))


def _messages(kept: KeptContext, left_out: Collection[LineName]) -> list[dict[str, str]]:
    memory = {
        layer.name: [_item(line) for place, line in enumerate(layer.lines) if (layer.name, place) not in left_out]
        for layer in kept.layers
        if layer.name != "query"
    }
    text = FORMATS[FORMAT].render(memory)
    return [{"role": "system", "content": str(text)}, {"role": "user", "content": kept.query}]


def _item(line: KeptLine) -> Item:
    zone = line.time.tzinfo if line.time and line.time.tzinfo else UTC
    return Item(line.text, ref=line.ref, time=line.time, zone=zone, role=line.role, speaker=line.speaker)


def _said(answer: Any) -> str:
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise InvalidAnswer("", "it has no choices with a message.") from None
    if not isinstance(text, str) or not text:
        raise InvalidAnswer("", "it has no text.")
    return text
