"""Turns and partition events for pages, with their moments, retractions and links."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from moments_app.models import Moment, Retraction
from moments_app.moments.partition import CLEARED, DIGEST
from sessions_app.admin.views import may_see
from sessions_app.models import Message
from sessions_app.retention.read_archived import with_text

BOUNDARIES = {"moment_compression": "Moments built", DIGEST: "Session compacted", CLEARED: "Session cleared"}
LINKED_ROLES = (Message.Role.USER, Message.Role.ASSISTANT)
COLORS = 8  # number of moment colors; adjacent moments have different colors


@dataclass(frozen=True)
class TurnLink:
    """A link that an extra adds to turns of users and assistants.

    Args:
        label: The label for screen readers, with `{}` for the turn's sequence number.
        view: The name of a page of a session. The link passes the turn's sequence number as `turn`.
        permission: The permission to see the link.
    """

    text: str
    label: str
    view: str
    permission: str

    def of(self, message: Message) -> "ShownLink":
        url = f"{reverse(self.view, args=[message.session_id])}?turn={message.sequence}"
        return ShownLink(self.text, self.label.format(message.sequence), url)


@dataclass(frozen=True)
class ShownLink:
    text: str
    label: str
    url: str


TURN_LINKS: list[TurnLink] = []


@dataclass(frozen=True)
class Marks:
    """The turns and boundaries that a transcript marks.

    Args:
        live_from: sequence number of the first turn of the live window.
        lag_from: sequence number of the first turn that the next build leaves in the live window.
        turn: sequence number of the requested turn.
        moment: primary key of the moment whose turns were requested.
    """

    live_from: int | None = None
    lag_from: int | None = None
    turn: int | None = None
    moment: int | None = None


@dataclass(frozen=True)
class Entry:
    """A line of a transcript.

    Args:
        message: a turn or a partition event.
        moment: the moment that contains the turn.
        opens_moment: whether the previous line is in another moment or in none.
        opens_live, opens_lag: whether the turn is the first of the live window, or of the lag.
        is_marked: whether the operator requested the line.
        retraction: the retraction that removed the turn from memory.
        moments: the moments whose keys a partition event contains, if they still exist.
        is_archived: whether the text of the turn is in an archive file.
        links: links from extras.
    """

    message: Message
    moment: Moment | None = None
    opens_moment: bool = False
    opens_live: bool = False
    opens_lag: bool = False
    is_marked: bool = False
    retraction: Retraction | None = None
    moments: tuple[Moment, ...] = ()
    is_archived: bool = False
    links: Sequence[ShownLink] = ()

    @property
    def color(self) -> int | None:
        return self.moment.pk % COLORS if self.moment else None

    @property
    def payload(self) -> str:
        if self.message.payload is None:
            return ""
        return json.dumps(self.message.payload, ensure_ascii=False, indent=2)

    @property
    def boundary(self) -> str:
        """The process that created a partition event."""
        kind = str(_payload(self.message).get("partition_type", ""))
        return BOUNDARIES.get(kind, kind)

    @property
    def summary(self) -> str:
        """The text of a partition event: the result of a build, or the new context of a digest."""
        payload = _payload(self.message)
        return str(payload.get("summary") or payload.get("context") or "")


def entries(request: HttpRequest, messages: Iterable[Message], marks: Marks = Marks()) -> list[Entry]:
    """Join messages with their moments and retractions, using at most one query for each kind.

    Archived turns get the text from their file.

    Args:
        request: the request of an operator. Moments and retractions are included if the operator may see them.
        messages: messages of one person, in conversation order.
    """
    messages = list(messages)
    archived = {message.pk for message in messages if message.kind == Message.Kind.ARCHIVED}
    if archived:
        with_text(messages[0].user, messages)
    by_pk, by_key = _moments(messages) if may_see(request, Moment) else ({}, {})
    retractions = _retractions(messages) if may_see(request, Retraction) else {}
    links = [link for link in TURN_LINKS if request.user.has_perm(link.permission)]
    found: list[Entry] = []
    for message in messages:
        if message.kind == Message.Kind.PARTITION:
            keys = _payload(message).get("moment_keys", [])
            found.append(Entry(message, moments=tuple(by_key[key] for key in keys if key in by_key)))
            continue
        moment = by_pk.get(message.moment_id) if message.moment_id else None
        before = found[-1].moment if found else None
        turn = _turn(message, moment, before, marks, retractions)
        is_archived = message.pk in archived
        has_links = message.role in LINKED_ROLES and not is_archived and message.retracted_at is None
        shown = [link.of(message) for link in links] if has_links else ()
        found.append(replace(turn, is_archived=is_archived, links=shown))
    return found


def _turn(
    message: Message,
    moment: Moment | None,
    before: Moment | None,
    marks: Marks,
    retractions: Mapping[datetime, Retraction],
) -> Entry:
    return Entry(
        message,
        moment=moment,
        opens_moment=moment is not None and moment != before,
        opens_live=message.sequence == marks.live_from,
        opens_lag=message.sequence == marks.lag_from,
        is_marked=message.sequence == marks.turn or (moment is not None and moment.pk == marks.moment),
        retraction=retractions.get(message.retracted_at) if message.retracted_at else None,
    )


def _moments(messages: Sequence[Message]) -> tuple[dict[int, Moment], dict[str, Moment]]:
    """Read the moments of the turns, and the moments that partition events refer to by key."""
    held = {message.moment_id for message in messages if message.moment_id}
    named = {key for message in messages for key in _payload(message).get("moment_keys", []) if message.kind != "turn"}
    own = Moment.objects.filter(user_id__in={message.user_id for message in messages}).defer("search_vector")
    moments = list(own.filter(pk__in=held)) if held else []
    if named:
        moments += own.filter(key__in=named)
    return {moment.pk: moment for moment in moments}, {moment.key: moment for moment in moments}


def _retractions(messages: Sequence[Message]) -> dict[datetime, Retraction]:
    """Return the turns' retractions, keyed by time. Each retracted turn records the time of its retraction."""
    times = {message.retracted_at for message in messages if message.retracted_at}
    sessions = {message.session_id for message in messages}
    found = Retraction.objects.filter(session_id__in=sessions, created_at__in=times) if times else ()
    return {retraction.created_at: retraction for retraction in found}


def _payload(message: Message) -> dict[str, Any]:
    return message.payload if isinstance(message.payload, dict) else {}
