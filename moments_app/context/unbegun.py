"""Placeholders for a session, and perhaps a person, that don't exist before the first append.

Both have a primary key that no row has. So every query about them finds nothing, and nothing about them is cached.
"""

from django.utils import timezone

from moments_app.context.input import ContextInput
from moments_app.context.request import ContextRequest
from sessions_app.models import Session, UserProfile

NO_ROW = 0


def unknown_person(user_id: str, application: int) -> UserProfile:
    """Return a person about whom nothing is known yet."""
    return UserProfile(pk=NO_ROW, user_id=user_id, application_id=application)


def input_before_first_turn(user: UserProfile, session_id: str, request: ContextRequest) -> ContextInput:
    """Return the input of a session that has not started: the person's memory, without turns."""
    began = user.updated_at or timezone.now()  # for a known person, so that the clock alone changes nothing
    session = Session(
        pk=NO_ROW, user=user, session_id=session_id, agent_id=request.new_agent_id, last_activity_at=began
    )
    return ContextInput(user, session, request.query, request.applied, [], True, "", request.recall)
