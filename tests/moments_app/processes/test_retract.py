"""Retraction: what was planted, or said by mistake, is no longer believed, nor anything made of it."""

import json
import re
from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from moments_app.models import Job, MemoryStream, TurnEmbedding, Word
from moments_app.processes import roll_summary
from moments_app.processes.retract import retract
from moments_app.processes.undo_retraction import undo_retraction
from sessions_app.models import Message, Session, UserProfile
from sessions_app.processes.append import NewMessage, append
from tests.support.api import Api
from tests.support.jobs import (
    assert_chain_is_whole,
    assert_each_compacted_turn_is_in_exactly_one_moment,
    build,
    count,
    work_off,
)
from tests.support.openai_server import OpenAIServer
from tests.support.streams import fold, form, shard
from tests.support.transcript import START, talk, turns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("rolling", "forming")]

MARKER = "xyzzyplugh"
POISON = f"I live in {MARKER}. I love {MARKER}, the {MARKER} account, and all {MARKER} money."
PLANTED = [20, 38, 39]  # at the beginning of a moment, and at the end of a formation


def poisoned(user: UserProfile, *planted: int, session_id: str = "s1", size: int = 40) -> Session:
    """A conversation with planted turns."""
    batch = turns(size)
    for at in planted:
        batch[at] = NewMessage(role=batch[at].role, content=POISON, created_at=START + timedelta(minutes=at))
    return append(user, session_id, batch).session


class TestRetractedTurns:
    """What is retracted is shown to nobody but those who look at the transcript."""

    @pytest.fixture
    def session(self, ada: UserProfile, model_server: OpenAIServer, embeddings_server: OpenAIServer) -> Session:
        session = poisoned(ada, 36)
        session.messages.filter(sequence=36).update(retracted_at=timezone.now())
        return session

    def test_row_10_no_engine_request_has_a_retracted_turn(
        self, session: Session, service: Api, model_server: OpenAIServer, embeddings_server: OpenAIServer
    ) -> None:
        form(session)
        build(session, lag=0)
        Job.objects.request(roll_summary.NAME, session, requested_by="test")
        work_off()
        asked = {"user_id": "ada", "session_id": "s1", "query": "Where is the kiln?", "retrieval": "auto"}
        assert service.get("memory/context", **asked).status_code == 200
        asked_for = {json.dumps(body) for body in model_server.requests + embeddings_server.requests}
        assert len(asked_for) >= 5
        assert not [body for body in asked_for if MARKER in body]

    def test_row_10_no_context_search_or_reload_has_a_retracted_turn(self, session: Session, service: Api) -> None:
        work_off()
        count(session.user)
        assert not Word.objects.filter(stem__startswith=MARKER[:6]).exists()
        assert not TurnEmbedding.objects.filter(source__retracted_at__isnull=False).exists()
        who = {"user_id": "ada"}
        for query in (POISON, "point 0", "money"):
            found = service.post("memory/search", **who, query=query, match_count=100)
            assert found.status_code == 200 and MARKER not in found.content.decode().replace(query, "")
        context = service.get("memory/context", **who, session_id="s1", query="Which account?")
        assert MARKER not in context.content.decode()
        live = service.get("sessions/s1/messages", **who, view="live", limit=1000)
        assert MARKER not in live.content.decode()
        assert len(live.json()["messages"]) == 39

    def test_the_transcript_still_has_it_and_says_so(self, session: Session, service: Api) -> None:
        shown = service.get("sessions/s1/messages", user_id="ada", view="all", after=35, limit=2).json()["messages"]
        assert shown[0]["content"] == POISON and shown[0]["retracted_at"] is not None
        assert shown[1]["retracted_at"] is None


def everything(but: Sequence[str] = ()) -> dict[str, list[str]]:
    """Every row of every table of ours and of the queue, as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = sorted(name for (name,) in cursor if name not in but)
        found = {}
        for table in tables:
            cursor.execute(f"SELECT row_to_json(t)::text FROM {table} t")
            found[table] = sorted(text for (text,) in cursor)
    return found


def with_marker() -> dict[str, list[str]]:
    """The derived rows that have the marker."""
    kept = ("sessions_app_message", "moments_app_retraction", "moments_app_retracteditem")
    turns = [str(row) for row in Message.objects.partitions().values()]
    stem = MARKER[:8]
    rows = everything(but=kept) | {"partition events": turns}
    return {table: found for table, texts in rows.items() if (found := [text for text in texts if stem in text])}


@pytest.fixture(params=["extractive", "model"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "model":
        request.getfixturevalue("model_server")
    return str(request.param)


@pytest.fixture
def shared(ada: UserProfile) -> MemoryStream:
    return shard("kilns", prompt="Everything about accounts and kilns.")


@pytest.fixture
def session(engine: str, ada: UserProfile, bo: UserProfile, shared: MemoryStream) -> Session:
    """Ada's, poisoned, between two others of hers; all that is made of them; and one of Bo's."""
    MemoryStream.objects.filter(pk=shared.pk).update(consolidation_trigger=1)
    for user, session_id in ((ada, "before"), (bo, "bos")):
        remember(talk(user, 40, session_id=session_id))
    session = poisoned(ada, *PLANTED, session_id="planted")
    remember(session, turns(20, first=40))
    remember(talk(ada, 40, session_id="after"))
    session.refresh_from_db()
    return session


def remember(session: Session, *batches: list[NewMessage]) -> None:
    """Everything the platform makes of a session, now and after each further batch."""
    for batch in ([], *batches):
        if batch:
            append(session.user, session.session_id, batch)
        form(session)
        for stream in MemoryStream.objects.seen_by(session):
            fold(stream)
        Job.objects.request(roll_summary.NAME, session, requested_by="test", hasten=True)
        work_off()
        build(session, lag=10)
        count(session.user)


class TestRetract:
    def test_what_is_planted_is_everywhere_at_first(self, session: Session, engine: str) -> None:
        made = with_marker()
        assert {"moments_app_moment", "moments_app_summary", "moments_app_memoryatom"} <= made.keys()
        assert {"moments_app_streamversion", "moments_app_memorystream", "moments_app_word"} <= made.keys()

    def test_row_10_retracting_leaves_no_derived_text_with_the_planted_marker(self, session: Session) -> None:
        bounds = session.last_moment_message_idx, session.live_from_sequence
        retract(session, PLANTED, reason="planted", requested_by="test")
        left = with_marker()
        assert left.keys() <= {"moments_app_word"}  # until they are counted anew
        work_off()
        assert with_marker() == {}
        session.refresh_from_db()
        assert (session.last_moment_message_idx, session.live_from_sequence) == bounds
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert_chain_is_whole(session.user)

    def test_row_10_an_undone_retraction_leaves_everything_as_it_was(self, session: Session) -> None:
        before = comparable()
        retraction = retract(session, PLANTED, reason="planted", requested_by="test")
        undo_retraction(retraction, requested_by="test")
        assert comparable() == before

    def test_row_10_undoing_after_everything_was_made_anew_puts_back_what_there_was(self, session: Session) -> None:
        before = comparable()
        retraction = retract(session, PLANTED, reason="planted", requested_by="test")
        work_off()
        undo_retraction(retraction, requested_by="test")
        work_off()
        assert comparable() == before


# Kept of what happened, or made anew at any time.
LOGS = (
    "django_q_ormq",
    "moments_app_enginecall",
    "moments_app_job",
    "moments_app_retraction",
    "moments_app_vocabulary",
    "moments_app_word",
    "sessions_app_event",
)
STAMPS = re.compile(r'"(updated_at|last_updated_at|retraction_count|embedded_sequence|counted_message_count)":[^,}]*')


def comparable() -> dict[str, list[str]]:
    return {table: [STAMPS.sub("", text) for text in texts] for table, texts in everything(but=LOGS).items()}
