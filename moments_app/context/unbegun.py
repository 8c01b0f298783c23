"""What has not begun: the session that a context is wanted for, and perhaps the person, before the first append.

Both stand in under a primary key that no row has. So every query about them finds nothing, and nothing of them is kept.
"""

from django.utils import timezone

from moments_app.context.input import ContextInput
from moments_app.context.request import ContextRequest
from sessions_app.models import Session, UserProfile

NO_ROW = 0


def unknown_person(user_id: str, application: int) -> UserProfile:
    """Return somebody of whom nothing is known yet."""
    return UserProfile(pk=NO_ROW, user_id=user_id, application_id=application)


def input_before_first_turn(user: UserProfile, session_id: str, request: ContextRequest) -> ContextInput:
    """Return the input of a session that has not begun: its person's memory, and nothing that was said in it."""
    began = user.updated_at or timezone.now()  # of a person who is there, so that the clock alone changes nothing
    session = Session(
        pk=NO_ROW, user=user, session_id=session_id, agent_id=request.new_agent_id, last_activity_at=began
    )
    return ContextInput(user, session, request.query, request.applied, [], True, "", request.recall)
