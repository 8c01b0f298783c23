"""Moments written directly, for tests that need many of them or specific times."""

from datetime import timedelta

from moments_app.models import Moment
from sessions_app.models import Session, UserProfile
from tests.support.transcript import START, talk

TURNS = 2  # per moment


def remember(user: UserProfile, count: int, *, session_id: str = "s1") -> list[Moment]:
    """Create a session with two turns per moment. Moments are an hour apart, with a gap of three days every ten.

    Returns:
        The moments, oldest first.
    """
    talked = Session.objects.filter(user=user, session_id=session_id).first()
    first = talked.message_count if talked else 0
    session = talk(user, TURNS * count, session_id=session_id)
    return [_moment(session, first + TURNS * number, number) for number in range(count)]


def _moment(session: Session, first: int, number: int) -> Moment:
    own = Moment.objects.for_user(session.user)
    starts_at = START + timedelta(days=3 * (number // 10), hours=number)
    moment = Moment.objects.create(
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
        previous_moment_keys=list(own.newest_first().values_list("key", flat=True)[:3]),
        engine="extractive",
    )
    session.messages.turns().filter(sequence__range=(first, first + TURNS - 1)).update(moment=moment)
    return moment
