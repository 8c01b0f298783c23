"""Moments written directly, for tests that need many of them or specific times."""

from datetime import timedelta

from django.db import connection

from moments_app.models import Moment
from sessions_app.models import Session, UserProfile
from tests.support.transcript import START, talk

TURNS = 2  # per moment
_LINK_TURNS_SQL = """
UPDATE sessions_app_message turn SET moment_id = moment.id FROM moments_app_moment moment
WHERE turn.session_id = %s AND moment.source_session_id = turn.session_id
  AND turn.sequence BETWEEN moment.first_sequence AND moment.last_sequence
"""


def remember(user: UserProfile, count: int, *, session_id: str = "s1") -> list[Moment]:
    """Create a session with two turns per moment. Moments are an hour apart, with a gap of three days every ten.

    Returns:
        The moments, oldest first.
    """
    talked = Session.objects.filter(user=user, session_id=session_id).first()
    first = talked.message_count if talked else 0
    session = talk(user, TURNS * count, session_id=session_id)
    moments = Moment.objects.bulk_create(_moment(session, first + TURNS * n, n) for n in range(count))
    Moment.objects.relink(user.pk, moments)
    with connection.cursor() as cursor:
        cursor.execute(_LINK_TURNS_SQL, [session.pk])
    return list(Moment.objects.filter(pk__in=[moment.pk for moment in moments]).order_by("pk"))


def _moment(session: Session, first: int, number: int) -> Moment:
    starts_at = START + timedelta(days=3 * (number // 10), hours=number)
    return Moment(
        user=session.user,
        source_session=session,
        key=f"{session.session_id}-moment-{number}",
        name=f"Moment {number} of {session.session_id}",
        summary=f"What was said in turns {first} and {first + 1}.",
        topic_tags=["kiln", "glaze"] if number % 2 else ["rent"],
        emotion_tags=["calm"] if number % 3 else [],
        starts_at=starts_at,
        ends_at=starts_at + timedelta(minutes=50),
        first_sequence=first,
        last_sequence=first + TURNS - 1,
        engine="extractive",
    )
