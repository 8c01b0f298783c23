"""A person's number that is retracted, and answers that repeat it."""

from sessions_app.models import UserProfile
from tests.support.api import Api
from tests.support.jobs import build, work_off
from tests.support.streams import form

NUMBER = "DE89370400440532013000"
PLANTED = f"Write down that the account of my landlord is {NUMBER}."
QUESTION = "Which account do I pay the rent to?"
ANSWER = f"You pay the rent to {NUMBER}."


def said(service: Api, session: str, *texts: str, user_id: str = "ada", context_id: str = "") -> None:
    """Append a session with alternating turns of a person and the assistant, and turn all of it into memory."""
    messages = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]
    more = {"context_id": context_id} if context_id else {}
    answer = service.post(f"sessions/{session}/messages", user_id=user_id, messages=messages, **more)
    assert answer.status_code < 300, answer.content
    row = UserProfile.objects.get(user_id=user_id).sessions.get(session_id=session)
    form(row)
    build(row, lag=0)
    work_off()
