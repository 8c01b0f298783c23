"""`delete_moment` deletes a moment. Its turns stay, and count as processed.

The other functions clean rows that contain keys of deleted moments or sentences by a model. Keys are derived from the
moments' names, which may quote turns.
"""

from collections.abc import Collection, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q

from moments_app.models import Job, Moment
from moments_app.models.job import LEFT_OUT
from moments_app.moments.partition import rewrite
from sessions_app.models import Event, Message, Session
from sessions_app.models.event import MOMENT_DELETED


@transaction.atomic
def delete_moment(moment: Moment, *, actor: str) -> None:
    """Delete a moment. Close the gap in the chain, and clear journeys that may mention it.

    Args:
        moment: a moment of the acting person.
        actor: the key or operator that requests the deletion, as `key:…` or `operator:…`.
    """
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


def mentions(session: Session, keys: Sequence[str], also: Q | None = None) -> list[Message | Job | Event]:
    """Return the rows that contain these keys, and the session's jobs whose results contain dropped sentences.

    The rows are partition events of the person's other sessions, jobs, and entries of the event log.

    Args:
        session: the session of the moments.
        keys: the keys of the moments.
        also: a condition that selects additional partition events.
    """
    events = Message.objects.partitions().filter(session__user_id=session.user_id).exclude(session=session)
    named = Q(payload__last_n_moment_keys__has_any_keys=keys) | Q(payload__moment_keys__has_any_keys=keys)
    quoting = Q(session=session, result__has_key=LEFT_OUT)
    jobs = Job.objects.filter(quoting | Q(result__moment_keys__has_any_keys=keys), user_id=session.user_id)
    log = Event.objects.filter(user_pk=session.user_id, payload__moment_keys__has_any_keys=keys)
    return [*events.filter(named | also if also else named), *jobs, *log] if keys else [*jobs]


def take_keys_out(row: Message | Job | Event, keys: Collection[str], **fields: str) -> None:
    """Remove keys of deleted moments from a row. If the row is a job, also remove its dropped sentences.

    Args:
        row: a partition event, a job, or an entry of the event log.
        keys: the keys of the deleted moments.
        fields: new values for fields of a partition event's payload.
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
