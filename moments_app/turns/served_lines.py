"""Hashes of the lines that were served to people, to recognize the lines later. They are written in the background.

A process also knows its own unwritten lines. Other processes see them some hundredths of a second later. A process
doesn't rewrite its recent lines with the next context, which shares most of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from moments_app.models.own_text import REFRESHED
from moments_app.turns.served_text import served_hashes
from sessions_app.database.deferred_writes import WriteBehind
from sessions_app.database.sql import array_of
from sessions_app.models import UserProfile
from sessions_app.process_cache import ProcessCache

TRUSTED_SECONDS = 600  # during which a process trusts that the lines it wrote still exist
MOST_PEOPLE, MOST_LINES = 300, 1_000  # people, and lines of each

# Leaves recent rows unchanged, and writes the others in a fixed order, to prevent deadlocks.
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


@dataclass(frozen=True)
class ServedTexts:
    """Texts that were served together; see `served_hashes`."""

    user: int
    texts: Sequence[str]
    quoted: Sequence[str]
    query: str = ""

    @cached_property
    def hashes(self) -> dict[int, bool]:
        return served_hashes(self.texts, self.quoted, self.query)


class WrittenLines:
    """The lines that this process knows to be written, by person, and whether each only quotes."""

    def __init__(self) -> None:
        self._people: ProcessCache[int, dict[int, bool]] = ProcessCache(MOST_PEOPLE, seconds=TRUSTED_SECONDS)

    def have(self, one: ServedTexts) -> bool:
        """Return True if all served lines are written, as far as this process knows."""
        return not self.others(one.user, one.hashes)

    def others(self, user: int, lines: Mapping[int, bool]) -> dict[int, bool]:
        """Return the lines that are not known to be written."""
        known = self._people.get(user) or {}
        return {line: is_quote for line, is_quote in lines.items() if line not in known or known[line] > is_quote}

    def add(self, by_user: Mapping[int, Mapping[int, bool]]) -> None:
        """Record lines as written."""
        for user, lines in by_user.items():
            known = self._people.get(user)
            if known is None or len(known) + len(lines) > MOST_LINES:
                known = {}
                self._people.put(user, known)
            known.update({line: known.get(line, True) and is_quote for line, is_quote in lines.items()})

    def forget(self) -> None:
        """Forget all lines, as in a new process."""
        self._people.clear()


written = WrittenLines()


def note(user: UserProfile, texts: Sequence[str], quoted: Sequence[str], query: str = "") -> None:
    """Record texts as served, in the background.

    Args:
        user: the person whose memory they are.
        texts, quoted, query: see `served_hashes`.
    """
    one = ServedTexts(user.pk, texts, quoted, query)
    if not written.have(one):
        waiting.note(one)


def not_written_yet(user_pk: int) -> dict[int, bool]:
    """Return the hashes of lines that this process has served to a person and not yet written."""
    known: dict[int, bool] = {}
    for one in waiting.waiting():
        if one.user == user_pk:
            _add(known, one)
    return known


def _add(known: dict[int, bool], one: ServedTexts) -> None:
    for line, is_quote in one.hashes.items():
        known[line] = known.get(line, True) and is_quote


def write(batch: Sequence[ServedTexts]) -> None:
    """Store the lines served to existing people, in a transaction."""
    there = UserProfile.objects.hold({one.user for one in batch})
    by_user: dict[int, dict[int, bool]] = {}
    for one in batch:
        if one.user in there:
            _add(by_user.setdefault(one.user, {}), one)
    new = {user: written.others(user, lines) for user, lines in by_user.items()}
    rows = [(user, line, is_quote) for user, lines in new.items() for line, is_quote in lines.items()]
    if rows:
        users, hashes, quotes = (array_of(map(int, column)) for column in zip(*rows, strict=True))
        today = timezone.localdate()
        lines: dict[str, Any] = {"users": users, "hashes": hashes, "quotes": quotes}
        with connection.cursor() as cursor:
            cursor.execute(_WRITE_SQL, lines | {"today": today, "stale": today - REFRESHED})
        transaction.on_commit(partial(written.add, by_user))


def keep(user_pk: int, texts: Iterable[str]) -> None:
    """Store the platform's own text for a model, in the caller's transaction."""
    write([ServedTexts(user_pk, list(texts), ())])


waiting = WriteBehind("served-lines", write, soon=True)
