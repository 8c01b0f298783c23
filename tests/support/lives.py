"""A person's year in messages: three moves, two jobs, and a child whose name was wrong at first."""

from datetime import UTC, datetime

from moments_app.models import Job
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form

MOVES = [
    ("2025-01-10", "I live in Oslo."),
    ("2025-03-03", "I moved to Bergen today."),
    ("2025-09-15", "We moved from Bergen to Stavanger today."),
]
JOBS = [("2025-02-01", "I work as a baker at Hansen's."), ("2025-10-01", "I started a new job as a teacher.")]
CHILD = [("2025-01-20", "My daughter is called Maya."), ("2025-11-05", "My daughter's name is Mia, not Maya.")]

OSLO, BERGEN, STAVANGER = (
    "User: I live in Oslo.",
    "User: I moved to Bergen today [3 March 2025].",
    "User: We moved from Bergen to Stavanger today [15 September 2025].",
)
BAKER, TEACHER = "User: I work as a baker at Hansen's.", "User: I started a new job as a teacher."
MAYA, MIA = "User: My daughter is called Maya.", "User: My daughter's name is Mia, not Maya."
# The facts that were known and true on these days, in the order of their messages.
DATES = {
    "2025-01-15": [OSLO],
    "2025-02-15": [OSLO, MAYA, BAKER],
    "2025-06-01": [MAYA, BAKER, BERGEN],
    "2025-10-15": [MAYA, STAVANGER, TEACHER],
    "2025-12-01": [STAVANGER, TEACHER, MIA],
}


def say(user: UserProfile, session_id: str, day: str, text: str, *, name: str = "") -> Job:
    """Append a conversation with one statement of the person on a day, and form memory from it."""
    at = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=UTC)
    said = [("user", text), ("assistant", "I see."), ("user", "Thank you."), ("assistant", "You are welcome.")]
    names = {"user": name}
    messages = [NewMessage(role, content, created_at=at, name=names.get(role, "")) for role, content in said]
    return form(append(user, session_id, messages).session)


def told_a_life(user: UserProfile, model: OpenAIServer | None = None) -> None:
    """Append all conversations by day, a session per day. A model, if given, returns the statements as facts."""
    answers = iter((OSLO, MAYA, BAKER, BERGEN, STAVANGER, TEACHER, MIA))
    for day, text in sorted([*MOVES, *JOBS, *CHILD]):
        if model:
            facts = [f"other 0: {next(answers)}"]
            model.queue(behave.memories({"stream": "user", "statements": facts}))
        say(user, f"on-{day}", day, text)
