"""Turns and partition events as the pages show them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moments_app.models import Moment
from sessions_app.models import Message


@dataclass(frozen=True)
class Entry:
    """A line of a transcript.

    Args:
        message: a turn or a partition event.
        moment: that holds the turn.
        opens_live: it is the first turn of the live window.
        moments: those that a partition event names, where they still exist.
    """

    message: Message
    moment: Moment | None = None
    opens_live: bool = False
    moments: tuple[Moment, ...] = ()

    @property
    def payload(self) -> str:
        """The structured content, to be read."""
        if self.message.payload is None:
            return ""
        return json.dumps(self.message.payload, ensure_ascii=False, indent=2)

    @property
    def summary(self) -> str:
        """The line of a partition event."""
        return str(_payload(self.message).get("summary", ""))


def entries(messages: Iterable[Message], *, live_from: int | None = None) -> list[Entry]:
    """The messages with the moments they belong to or name: one query, however many.

    Args:
        messages: of one session, in conversation order.
        live_from: sequence of the first turn of the live window, to be marked.
    """
    messages = list(messages)
    named = {key for message in messages for key in _payload(message).get("moment_keys", []) if message.kind != "turn"}
    held = {message.moment_id for message in messages if message.moment_id}
    user_ids = {message.user_id for message in messages}
    moments = list(Moment.objects.filter(user_id__in=user_ids, pk__in=held)) if held else []
    if named:
        moments += Moment.objects.filter(user_id__in=user_ids, key__in=named)
    by_pk = {moment.pk: moment for moment in moments}
    by_key = {moment.key: moment for moment in moments}
    return [_entry(message, by_pk, by_key, live_from) for message in messages]


def _entry(message: Message, by_pk: Mapping[int, Moment], by_key: Mapping[str, Moment], live_from: int | None) -> Entry:
    if message.kind == Message.Kind.PARTITION:
        keys = _payload(message).get("moment_keys", [])
        return Entry(message, moments=tuple(by_key[key] for key in keys if key in by_key))
    moment = by_pk.get(message.moment_id) if message.moment_id else None
    return Entry(message, moment=moment, opens_live=message.sequence == live_from)


def _payload(message: Message) -> dict[str, Any]:
    return message.payload if isinstance(message.payload, dict) else {}
