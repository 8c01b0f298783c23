"""`delete_moment`: forget what a moment says. Its turns stay, and count as processed."""

from django.db import transaction

from moments_app.models import Moment
from sessions_app.models import Event
from sessions_app.models.event import MOMENT_DELETED


@transaction.atomic
def delete_moment(moment: Moment, *, actor: str) -> None:
    """Delete a moment. Close the gap in the chain, and blank journeys that may include it.

    Args:
        moment: a moment of the acting user.
        actor: who requests it, for the event log: `key:…` or `operator:…`.
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
    Moment.objects.telling_of(user_id, since).update(journey="")
