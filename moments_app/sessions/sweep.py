"""`compact_sessions`: queue the digests of busy sessions and the settling of quiet ones.

Sessions are read in batches, oldest activity first. Each batch skips rows that another run has locked, so parallel runs
never process the same session.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from moments_app.models import Job
from moments_app.sessions.digest import DigestSession
from moments_app.sessions.settle import Settle
from sessions_app.models import Session
from sessions_app.models.session import KEEP_RECENT, SessionQuerySet

BATCH = 100


@dataclass(frozen=True)
class CompactionResult:
    """The numbers of sessions to digest and to settle."""

    digested: int = 0
    settled: int = 0

    def __str__(self) -> str:
        return f"sessions to compact: {self.digested}, idle sessions to update: {self.settled}"


def compact_sessions(*, dry_run: bool = False) -> CompactionResult:
    """Queue jobs that compact long sessions, and jobs that bring idle sessions up to date."""
    if not settings.SESSION_COMPACTION.enabled:
        return CompactionResult()
    busy, quiet = Session.objects.busy(), Session.objects.quiet()
    if dry_run:
        return CompactionResult(busy.count(), quiet.count())
    return CompactionResult(_queue(busy, DigestSession.name, {"keep": KEEP_RECENT}), _queue(quiet, Settle.name, {}))


def _queue(due: SessionQuerySet, process: str, params: dict[str, Any]) -> int:
    asked = 0
    for batch in _batches(due):
        for session in batch:
            Job.objects.request(process, session, requested_by="compact_sessions", params=params)
        asked += len(batch)
    return asked


def _batches(due: SessionQuerySet) -> Iterator[list[Session]]:
    """Yield batches of sessions, each locked until the next one is read."""
    beyond = Q()
    while True:
        with transaction.atomic():
            rows = due.filter(beyond).order_by("last_arrived_at", "id")
            batch = list(rows.select_for_update(skip_locked=True, no_key=True, of=("self",))[:BATCH])
            if not batch:
                return
            yield batch
        last = batch[-1]
        later = Q(last_arrived_at__gt=last.last_arrived_at) | Q(pk__gt=last.pk)
        beyond = Q(last_arrived_at__gte=last.last_arrived_at) & later
