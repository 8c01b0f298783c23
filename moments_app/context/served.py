"""What was served about people, to be known when it comes back: hashes of its lines, written behind the request.

What a process has not written yet it knows all the same; another one does some hundredths of a second later.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from django.db import connection
from django.utils import timezone

from moments_app.context.item import Item
from moments_app.context.render import Rendered
from moments_app.models.own_text import REFRESHED
from moments_app.recall.search import Result
from moments_app.turns.served_text import served_hashes
from moments_app.write_behind import WriteBehind
from sessions_app.models import UserProfile

# What is there and fresh is not touched; the rest in one order, so that two processes never wait for each other.
_WRITE_SQL = """
INSERT INTO moments_app_servedline (user_id, hash, is_quote, served_on)
SELECT * FROM unnest(%(users)s::bigint[], %(hashes)s::bigint[], %(quotes)s::boolean[]) AS line (user_id, hash, is_quote)
CROSS JOIN CAST(%(today)s AS date) AS today
WHERE NOT EXISTS (
    SELECT FROM moments_app_servedline there WHERE there.user_id = line.user_id AND there.hash = line.hash
    AND there.served_on > %(stale)s AND there.is_quote <= line.is_quote
)
ORDER BY 1, 2
ON CONFLICT (user_id, hash) DO UPDATE
SET served_on = excluded.served_on, is_quote = moments_app_servedline.is_quote AND excluded.is_quote
"""


class Placed(Protocol):
    """An item as it stands in a context."""

    @property
    def item(self) -> Item: ...


@dataclass(frozen=True)
class Served:
    """What was served once; see `served_hashes`."""

    user: int
    texts: Sequence[str]
    quoted: Sequence[str]
    asked: str = ""

    @cached_property
    def hashes(self) -> dict[int, bool]:
        return served_hashes(self.texts, self.quoted, self.asked)


def note_context(user: UserProfile, context: Rendered, layers: Mapping[str, Sequence[Placed]], query: str) -> None:
    """Notes a context as served; returns at once.

    Args:
        user: whose memory it is.
        context: as it is written; blank where the layers are the answer.
        layers: what stands in it.
        query: the message it is for.
    """
    items = [(name, line.item) for name, lines in layers.items() for line in lines]
    texts = [context] if isinstance(context, str) else [message["content"] or "" for message in context]
    quoted = [item.text for name, item in items if _is_quote(name, item)]
    waiting.note(Served(user.pk, texts if context else [item.text for _name, item in items], quoted, query))


def _is_quote(layer: str, item: Item) -> bool:
    """Whether somebody said it: a turn; the moments' layer has the address of a partition event."""
    return bool(item.role) or ("/messages/" in item.ref and layer != "moments")


def note_results(user: UserProfile, results: Sequence[Result]) -> None:
    """Notes what a search has found as served; returns at once."""
    turns = [result.content for result in results if result.kind == "turn"]
    waiting.note(Served(user.pk, [result.content for result in results], turns))


def not_written_yet(user_pk: int) -> dict[int, bool]:
    """Hashes of lines that this process has served about a person and still has to write."""
    known: dict[int, bool] = {}
    for one in waiting.waiting():
        if one.user == user_pk:
            _add(known, one)
    return known


def _add(known: dict[int, bool], one: Served) -> None:
    for line, is_quote in one.hashes.items():
        known[line] = known.get(line, True) and is_quote


def write(batch: Sequence[Served]) -> None:
    """Keeps the lines of what was served, in a transaction; of people that are there."""
    there = UserProfile.objects.hold({one.user for one in batch})
    by_user: dict[int, dict[int, bool]] = {}
    for one in batch:
        if one.user in there:
            _add(by_user.setdefault(one.user, {}), one)
    rows = [(user, line, is_quote) for user, lines in by_user.items() for line, is_quote in lines.items()]
    if rows:
        users, hashes, quotes = (list(column) for column in zip(*rows, strict=True))
        today = timezone.localdate()
        lines: dict[str, Any] = {"users": users, "hashes": hashes, "quotes": quotes}
        with connection.cursor() as cursor:
            cursor.execute(_WRITE_SQL, lines | {"today": today, "stale": today - REFRESHED})


def keep(user_pk: int, texts: Iterable[str]) -> None:
    """Keeps what the platform leaves for a model to read, in the caller's transaction."""
    write([Served(user_pk, list(texts), ())])


waiting = WriteBehind("served-lines", write, soon=True)
