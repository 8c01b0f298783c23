"""`append_many`, compared with `append`, concurrently, and under row security."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from memoryproject.conf import MomentBuilderSettings, RollingSummarySettings
from moments_app.models import Job, OwnText, Summary
from sessions_app.database import sql
from sessions_app.database.database_roles import WORKER_ROLE
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.session import NamedSession
from sessions_app.transcript.append import Batch, IdTaken, NewMessage, append, append_many, messages_appended
from tests.sessions_app.transcript.test_append import assert_counters_equal_rows
from tests.support.concurrency import at_once
from tests.support.roles import logged_in_as
from tests.support.transcript import turns

pytestmark = pytest.mark.django_db(transaction=True)

OWN = ("id", "session", "user", "arrived_at", "created_at", "last_arrived_at", "last_activity_at", "session_id")
ODD = [
    NewMessage("user", "The kiln\tran\nhot \\ at 1100 \\N degrees – größer", name="Ada", external_id="o1"),
    NewMessage("tool", "", tool_name="search", payload={"found": ["a\\b", None, "\t"]}, external_id="o2"),
    NewMessage("assistant", "", metadata={"model": "x"}),
]


def batch_of(
    user: UserProfile, session_id: str, messages: Sequence[NewMessage], title: str = "", **fields: str
) -> Batch:
    return Batch(NamedSession(user, session_id, **fields), messages, title)


def added_by(batches: Sequence[Batch]) -> list[int]:
    return [appended.added for appended in append_many(batches)]


def rows_of(user: UserProfile, model: type[Message] | type[Session]) -> list[dict[str, Any]]:
    """Return a person's rows without the columns that differ between people."""
    fields = [field.attname for field in model._meta.concrete_fields if not {field.name, field.attname} & {*OWN}]
    order = ("session__session_id", "sequence") if model is Message else ("session_id",)
    return list(model.objects.filter(user=user).order_by(*order).values(*fields))


def words_of(user: UserProfile) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT search_vector::text FROM sessions_app_message WHERE user_id = %s ORDER BY content, sequence",
            [user.pk],
        )
        return list(cursor.fetchall())


@pytest.mark.parametrize("role", ["", WORKER_ROLE])
def test_append_many_stores_what_append_stores_under_any_role(
    ada: UserProfile, bo: UserProfile, role: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "BATCH_SIZE", 20)  # so that several chunks are copied
    settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"message_threshold": 50})
    said = {"s1": ODD, "s2": turns(60), "s3": turns(2)}
    for session_id, messages in said.items():
        append(ada, session_id, messages, agent_id="helper", source="import")
    batches = [batch_of(bo, name, messages, agent_id="helper", source="import") for name, messages in said.items()]
    if role:  # row security applies to this role, so it can't COPY
        with logged_in_as(role):
            assert added_by(batches) == [3, 60, 2]
    else:
        assert added_by(batches) == [3, 60, 2]
    for model in (Message, Session):
        assert rows_of(bo, model) == rows_of(ada, model)
    assert words_of(bo) == words_of(ada)
    jobs = [list(Job.objects.filter(user=user).order_by("pk").values_list("process")) for user in (ada, bo)]
    assert jobs[0] == jobs[1] != []


def test_row_1_known_messages_are_not_added_again_within_or_across_batches(ada: UserProfile) -> None:
    assert added_by([batch_of(ada, "s1", ODD, title="Kiln"), batch_of(ada, "s1", ODD[:2] + turns(1))]) == [3, 1]
    assert added_by([batch_of(ada, "s1", ODD[:2], title="Other"), batch_of(ada, "s2", ODD[:1])]) == [0, 1]
    assert_counters_equal_rows(first := Session.objects.get(session_id="s1"))
    assert (first.title, first.message_count) == ("Kiln", 4)
    with pytest.raises(IdTaken):
        append_many(
            [batch_of(ada, "s3", turns(2)), batch_of(ada, "s1", [NewMessage("user", "else", external_id="o1")])]
        )
    assert not Session.objects.filter(session_id="s3").exists()


def test_row_1_an_archived_message_is_known_and_another_with_its_id_is_rejected(ada: UserProfile) -> None:
    append_many([batch_of(ada, "s1", ODD)])
    Message.objects.turns().archive()
    assert added_by([batch_of(ada, "s1", ODD[:2])]) == [0]
    others: list[dict[str, Any]] = [{"content": "else"}, {"payload": {"found": []}}]
    for other in others:
        with pytest.raises(IdTaken):
            append_many([batch_of(ada, "s1", [replace(ODD[1], **other)])])


def test_row_15_concurrent_append_many_and_append_keep_sequences_and_counters(
    ada: UserProfile, bo: UserProfile
) -> None:
    names = [(user, f"s{n}") for user in (ada, bo) for n in range(4)]

    def write(number: int) -> None:
        if number % 2:
            for user, session_id in names:
                append(user, session_id, turns(2))
        else:
            mine = names if number % 4 else names[::-1]
            append_many([batch_of(user, session_id, turns(3)) for user, session_id in mine])

    at_once(write, 8)
    assert {session.message_count for session in Session.objects.all()} == {4 * 2 + 4 * 3}
    for session in Session.objects.all():
        assert_counters_equal_rows(session)


def test_a_failing_listener_rolls_back_all_batches(ada: UserProfile) -> None:
    def fail(appended: Sequence[tuple[Session, Sequence[Message]]], **_: Any) -> list[Job]:
        if any(session.session_id == "s2" for session, _ in appended):
            raise RuntimeError("listener")
        return []

    messages_appended.connect(fail)
    try:
        with pytest.raises(RuntimeError):
            append_many([batch_of(ada, "s1", turns(1)), batch_of(ada, "s2", turns(1))])
    finally:
        messages_appended.disconnect(fail)
    assert not Session.objects.exists() and not Message.objects.exists()


def test_append_many_takes_a_constant_number_of_statements(ada: UserProfile, settings: Settings) -> None:
    settings.ROLLING_SUMMARY = RollingSummarySettings()
    settings.MOMENT_BUILDER = MomentBuilderSettings(message_threshold=4)

    def statements(count: int, name: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            append_many([batch_of(ada, f"{name}{n}", turns(8)) for n in range(count)])
        for process in ("roll_summary", "build_moments"):
            assert Job.objects.filter(process=process, session__session_id__startswith=name).count() == count
        return len(queries)

    assert statements(2, "few") == statements(40, "many")
    assert statements(2, "few") == statements(40, "many")  # the jobs are already open
    assert Summary.objects.processing().count() == 42
    assert not OwnText.objects.exists()
