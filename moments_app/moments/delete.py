"""Delete moments, and remove their keys from other rows.

Retractions and rebuilds remove the keys of deleted moments, because keys are derived from names, which may quote turns.
"""

from collections.abc import Collection, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q

from moments_app.models import Job, Moment
from moments_app.models.job import LEFT_OUT
from moments_app.moments.history import rewrite
from sessions_app.models import Event, Message, Session
from sessions_app.models.event import MOMENT_DELETED


@transaction.atomic
def delete_moment(moment: Moment, *, actor: str) -> None:
    """Delete a moment, and clear journeys that may mention it. Its turns stay, and count as processed."""
    Event.objects.create(
        type=MOMENT_DELETED,
        actor=actor,
        user_pk=moment.user_id,
        session_pk=moment.source_session_id,
        payload={
            "key": moment.key,
            "first_sequence": moment.first_sequence,
            "last_sequence": moment.last_sequence,
        },
    )
    user_id, since = moment.user_id, moment.starts_at
    moment.delete()
    Moment.objects.with_journey_since(user_id, since).update(journey="")


def rows_with_keys(session: Session, keys: Sequence[str], also: Q | None = None) -> list[Message | Job | Event]:
    """Return the rows that contain these moment keys, and the session's jobs whose results contain dropped sentences.

    The rows are jobs, entries of the event log, and partition events of the person's other sessions.

    Args:
        also: a condition that selects additional partition events.
    """
    events = Message.objects.partitions().filter(session__user_id=session.user_id).exclude(session=session)
    named = Q(payload__last_n_moment_keys__has_any_keys=keys) | Q(payload__moment_keys__has_any_keys=keys)
    quoting = Q(session=session, result__has_key=LEFT_OUT)
    jobs = Job.objects.filter(quoting | Q(result__moment_keys__has_any_keys=keys), user_id=session.user_id)
    log = Event.objects.filter(user_pk=session.user_id, payload__moment_keys__has_any_keys=keys)
    return [*events.filter(named | also if also else named), *jobs, *log] if keys else [*jobs]


def remove_keys(row: Message | Job | Event, keys: Collection[str], **fields: str) -> None:
    """Remove keys of deleted moments from a row, and dropped sentences from a job.

    `fields` are further fields to set in the payload of a partition event.
    """
    if isinstance(row, Message):
        rewrite(row, _without(row.payload, keys) | fields)
    elif isinstance(row, Job):
        row.result = {name: value for name, value in _without(row.result, keys).items() if name != LEFT_OUT}
        row.save(update_fields=["result"])
    else:
        row.payload = _without(row.payload, keys)
        row.save(update_fields=["payload"])


def _without(payload: Any, keys: Collection[str]) -> dict[str, Any]:
    return {
        name: [key for key in value if key not in keys] if name in ("moment_keys", "last_n_moment_keys") else value
        for name, value in payload.items()
    }
