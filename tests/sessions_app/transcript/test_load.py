"""The messages that a client replays."""

import re
from collections.abc import Iterable
from contextlib import nullcontext

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from memoryproject.conf import MomentBuilderSettings
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.transcript.load import LoadedMessage, Omitted, load_session_messages, page_of_messages
from tests.support.api import Api
from tests.support.jobs import build
from tests.support.transcript import START, talk

# Add many turns to a session.
MORE_TURNS = """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, created_at, metadata)
SELECT session_id, user_id, 50 + n, kind, role, tool_name, content, tokens, created_at, metadata
FROM sessions_app_message, generate_series(0, %s) AS n WHERE session_id = %s AND sequence = 0
"""

pytestmark = pytest.mark.django_db(transaction=True)


def leave_partition(session: Session, sequence: int) -> Message:
    return session.messages.create(
        user_id=session.user_id,
        sequence=sequence,
        kind="partition",
        role="tool",
        tool_name="session_partition",
        created_at=START,
    )


def shown(messages: Iterable[Message | LoadedMessage]) -> list[tuple[int, str]]:
    return [(message.sequence, message.kind) for message in messages]


def test_without_a_boundary_the_newest_turns_are_returned_in_order(ada: UserProfile) -> None:
    loaded = load_session_messages(talk(ada, 9), 4)
    assert shown(loaded.messages) == [(n, "turn") for n in (5, 6, 7, 8)]
    assert not loaded.has_partition_event


def test_messages_start_at_the_latest_boundary(ada: UserProfile) -> None:
    session = talk(ada, 9)
    leave_partition(session, 3)
    leave_partition(session, 5)
    loaded = load_session_messages(session, 50)
    assert shown(loaded.messages) == [(5, "partition"), (6, "turn"), (7, "turn"), (8, "turn")]
    assert loaded.has_partition_event


def test_the_newer_of_two_boundaries_at_one_turn_is_returned(ada: UserProfile) -> None:
    session = talk(ada, 4)
    leave_partition(session, 3)
    newer = leave_partition(session, 3)
    assert [message.created_at for message in load_session_messages(session, 5).messages] == [newer.created_at]


def test_the_limit_keeps_the_newest_turns_after_the_boundary(ada: UserProfile) -> None:
    session = talk(ada, 9)
    leave_partition(session, 2)
    assert shown(load_session_messages(session, 2).messages) == [(2, "partition"), (7, "turn"), (8, "turn")]


def test_an_empty_session_loads_nothing(ada: UserProfile) -> None:
    assert load_session_messages(Session.objects.create(user=ada, session_id="s"), 5) == ([], False, None)


class TestOmitted:
    """Omitted turns after the boundary are always reported."""

    def test_turns_after_the_boundary_omitted_by_the_limit_are_reported(self, ada: UserProfile) -> None:
        session = talk(ada, 9)
        assert load_session_messages(session, 9).omitted is None
        assert load_session_messages(session, 8).omitted == Omitted(1, 0, 0)
        leave_partition(session, 2)
        assert load_session_messages(session, 6).omitted is None
        assert load_session_messages(session, 2).omitted == Omitted(4, 3, 6)

    def test_retracted_turns_are_not_counted(self, ada: UserProfile) -> None:
        session = talk(ada, 12)
        leave_partition(session, 2)
        session.messages.filter(sequence__in=[3, 5, 9]).update(retracted_at=START)
        Session.objects.update(retraction_count=1)
        session.refresh_from_db()
        loaded = load_session_messages(session, 2)
        assert shown(loaded.messages) == [(2, "partition"), (10, "turn"), (11, "turn")]
        assert loaded.omitted == Omitted(4, 4, 8)
        assert load_session_messages(session, 6).omitted is None

    def test_archived_turns_are_not_counted(self, ada: UserProfile) -> None:
        session = talk(ada, 9)
        session.messages.filter(sequence__lt=4).delete()
        session.kept_from_sequence = 4
        assert load_session_messages(session, 3).omitted == Omitted(2, 4, 5)

    def test_after_a_build_a_reload_returns_all_turns_not_in_moments(self, service: Api, ada: UserProfile) -> None:
        """Check the worked example: of 250 turns, 175 are in moments."""
        session = talk(ada, 250)
        assert build(session).result["last_sequence"] == 174
        live = service.get("sessions/s1/messages", user_id="ada").json()
        assert [message["sequence"] for message in live["messages"]] == [174, *range(175, 250)]
        assert live["omitted"] is None

    @pytest.mark.slow
    def test_before_the_next_build_a_reload_reports_omitted_turns_which_can_be_paged(
        self, service: Api, ada: UserProfile
    ) -> None:
        build(talk(ada, 250))
        talk(ada, 100)
        live = service.get("sessions/s1/messages", user_id="ada").json()
        assert [message["sequence"] for message in live["messages"]] == [174, *range(275, 350)]
        assert live["omitted"] == {"count": 100, "from_sequence": 175, "to_sequence": 274}
        rest = service.get("sessions/s1/messages", user_id="ada", view="all", after=174, limit=100).json()
        assert [message["sequence"] for message in rest["messages"]] == [*range(175, 275)]
        asked = service.get("sessions/s1/messages", user_id="ada", limit=1000).json()
        assert len(asked["messages"]) == 176 and asked["omitted"] is None
        few = service.get("sessions/s1/messages", user_id="ada", limit=10).json()
        assert few["omitted"] == {"count": 165, "from_sequence": 175, "to_sequence": 339}

    @given(
        conf=st.builds(
            MomentBuilderSettings,
            message_threshold=st.integers(2, 2_000),
            lag_messages=st.integers(0, 500),
            lag_percentage=st.floats(0.1, 0.5),
            load_max_messages=st.integers(1, 1_000),
        ),
        count=st.integers(0, 10_000),
        few=st.booleans(),
    )
    def test_a_reload_is_never_shorter_than_the_lag(self, conf: MomentBuilderSettings, count: int, few: bool) -> None:
        assert conf.reload_limit >= conf.lag(count, few_but_large=few)
        assert conf.reload_limit >= conf.load_max_messages


def test_loading_takes_one_statement(ada: UserProfile) -> None:
    session = talk(ada, 30)
    leave_partition(session, 9)
    with CaptureQueriesContext(connection) as queries:
        load_session_messages(session, 50)
    assert len(queries) == 1


@pytest.mark.slow
@pytest.mark.parametrize("as_request", [False, True])
def test_loading_reads_only_its_two_indexes(ada: UserProfile, as_request: bool) -> None:
    """Check that the planner never sorts all turns of a person, whatever selectivity it expects."""
    sessions = [talk(ada, 50)]
    sessions += [talk(UserProfile.objects.ensure(f"person-{number}"), 50) for number in range(40)]
    with connection.cursor() as cursor:
        cursor.execute(MORE_TURNS, [30_000, sessions[0].pk])
        cursor.execute("ANALYZE sessions_app_message")
    for session in sessions[:2]:
        with acting_for(session.user.user_id, application=DEFAULT) if as_request else nullcontext():
            with CaptureQueriesContext(connection) as queries:
                load_session_messages(session, 50)
            plan = explained(queries[0]["sql"])
        assert "Backward using message_partitions" in plan
        assert "Backward using message_turn_sequence_unique" in plan
        # Only the scans of turns: filtering the few moments is fine.
        for read in re.findall(r"Backward using message_\w+.*?(?=->|\Z)", plan, re.DOTALL):
            assert "Filter: (user_id" not in read and "Filter: (sequence" not in read


@pytest.mark.slow
def test_deleting_a_session_finds_its_messages_by_index(ada: UserProfile, bo: UserProfile) -> None:
    """Check the statements of the request and of the foreign key check, with many sessions."""
    session, other = talk(ada, 3), talk(bo, 50, session_id="other")
    with connection.cursor() as cursor:
        cursor.execute(MORE_TURNS, [20_000, other.pk])
        cursor.execute("ANALYZE sessions_app_message")
    plan = explained(f"SELECT 1 FROM ONLY sessions_app_message WHERE session_id = {session.pk} FOR KEY SHARE")
    assert "message_external_id_unique" in plan


def explained(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + sql)
        return "\n".join(row[0] for row in cursor)


def test_pages_cover_the_transcript_with_partition_events_in_both_directions(ada: UserProfile) -> None:
    session = talk(ada, 23)
    for sequence in (4, 9, 9, 22):
        leave_partition(session, sequence)
    everything = shown(list(session.messages.in_order()))
    forward, after, more = [], -1, True
    while more:
        page, more = page_of_messages(session, 5, after=after)
        forward += shown(page)
        after = page[-1].sequence
    backward: list[tuple[int, str]] = []
    before, more = 10**9, True
    while more:
        page, more = page_of_messages(session, 5, before=before)
        backward = shown(page) + backward
        before = page[0].sequence
    assert forward == backward == everything


@pytest.mark.parametrize("view", ["live", "all"])
def test_reading_takes_a_constant_number_of_queries(service: Api, ada: UserProfile, view: str) -> None:
    talk(ada, 5, session_id="short")
    talk(ada, 200, session_id="long")
    service.get("sessions/short", user_id="ada")  # records the last use of the key
    counts = []
    for session_id in ("short", "long"):
        with CaptureQueriesContext(connection) as queries:
            service.get(f"sessions/{session_id}/messages", user_id="ada", view=view, limit=200)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 7


def test_a_long_turn_is_shortened_on_request_at_its_middle(service: Api, ada: UserProfile) -> None:
    talk(ada, 1, text="start " + "x" * 20_000 + " end")
    whole, short = (
        service.get("sessions/s1/messages", user_id="ada", compress=c).json()["messages"][0] for c in (False, True)
    )
    assert len(whole["content"]) == 20_010
    assert len(short["content"]) < 4_500
    assert short["content"].startswith("start") and short["content"].endswith("end")
    assert "rem://sessions/s1/messages/0" in short["content"]
