"""`append`, called as a function and concurrently over HTTP."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Max, Sum
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.models import Job
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import TURN_COLUMNS, NewMessage, append, messages_appended
from tests.support.api import Api
from tests.support.concurrency import at_once
from tests.support.tables import rows_read
from tests.support.transcript import messages, talk, turns

pytestmark = pytest.mark.django_db(transaction=True)


def assert_counters_equal_rows(session: Session) -> None:
    session.refresh_from_db()
    rows = session.messages.turns().aggregate(
        count=Count("id"), tokens=Sum("tokens"), last=Max("sequence"), distinct=Count("sequence", distinct=True)
    )
    assert rows["count"] == rows["distinct"] == rows["last"] + 1 == session.message_count
    assert session.last_sequence == rows["last"]
    assert session.total_tokens == session.live_tokens == rows["tokens"]


def test_sequences_start_at_zero_without_gaps(ada: UserProfile) -> None:
    talk(ada, 3)
    session = talk(ada, 4)
    assert list(session.messages.in_order().values_list("sequence", flat=True)) == list(range(7))
    assert_counters_equal_rows(session)


def test_turns_are_stored_unchanged_in_one_statement_with_the_counters(ada: UserProfile) -> None:
    known = talk(ada, 1)
    payload = {"tool_calls": [{"id": "é%s", "function": None}]}
    said = NewMessage("assistant", "It's 100 %s;\\ 'so'", "oven", "Bo", payload, external_id="1", metadata={"a": "ü"})
    with CaptureQueriesContext(connection) as captured:
        [(stored, _), (plain, _)] = append(ada, "s1", [said, NewMessage("user", "Yes.")]).messages
    assert len([query for query in captured if "INSERT INTO sessions_app_message" in query["sql"]]) == 1
    found = {message.pk: message for message in known.messages.all()}
    for message in (stored, plain):
        for field in Message._meta.concrete_fields:
            if field.name != "search_vector":  # a column that is never read
                assert getattr(found[message.pk], field.attname) == getattr(message, field.attname), field.name
    assert {message.pk for message in Message.objects.matching("100")} == {stored.pk}
    assert found[plain.pk].payload is None and Message.objects.filter(payload__isnull=True).count() == 2
    left = {field.attname for field in Message._meta.concrete_fields if not field.generated} - {*TURN_COLUMNS}
    assert left == {"id", "moment_id", "retracted_at", "said_hash"}
    assert_counters_equal_rows(known)


@pytest.mark.slow
def test_row_15_sequences_are_gapless_and_counters_equal_rows_under_32_writers(ada: UserProfile) -> None:
    def write(number: int) -> None:
        for batch in range(6):
            append(ada, "s1", turns(1 + (number + batch) % 4))

    at_once(write, 32)
    session = Session.objects.get()
    assert session.message_count == sum(1 + (n + b) % 4 for n in range(32) for b in range(6))
    assert_counters_equal_rows(session)


@pytest.mark.slow
def test_row_1_a_batch_sent_20_times_by_16_clients_is_stored_once(service: Api) -> None:
    body = {"user_id": "ada", "messages": [m | {"external_id": f"id-{n}"} for n, m in enumerate(messages(5))]}

    def send(_: int) -> set[int]:
        return {service.post("sessions/s1/messages", body).status_code for _ in range(20)}

    codes = set.union(*at_once(send, 16))
    assert codes <= {200, 201}
    assert Message.objects.count() == 5
    assert_counters_equal_rows(Session.objects.get())


@pytest.mark.slow
def test_a_known_external_id_is_returned_with_its_own_sequence(service: Api) -> None:
    first = {"role": "user", "content": "one", "external_id": "a"}
    service.post("sessions/s1/messages", user_id="ada", messages=[first])
    answer = service.post(
        "sessions/s1/messages", user_id="ada", messages=[{"role": "user", "content": "two"}, first]
    ).json()
    assert [(m["sequence"], m["created"]) for m in answer["messages"]] == [(1, True), (0, False)]
    assert answer["message_count"] == 2


def test_an_external_id_repeated_in_a_batch_is_stored_once(ada: UserProfile) -> None:
    appended = append(ada, "s1", [NewMessage("user", "x", external_id="a"), NewMessage("user", "x", external_id="a")])
    assert [(m.sequence, created) for m, created in appended.messages] == [(0, True), (0, False)]
    assert appended.session.message_count == 1


@pytest.mark.parametrize(
    "other", [{"content": "two"}, {"role": "assistant"}, {"payload": {"a": 1}}, {"tool_name": "search"}]
)
def test_an_external_id_of_another_message_rejects_the_batch(service: Api, other: dict[str, Any]) -> None:
    first = {"role": "user", "content": "one", "external_id": "a"}
    service.post("sessions/s1/messages", user_id="ada", messages=[first])
    new = {"role": "user", "content": "new"}
    answer = service.post("sessions/s1/messages", user_id="ada", messages=[new, first | other])
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["code"]) == (409, "external_id_taken")
    assert "messages[1]" in error["detail"] and "message 0" in error["detail"]
    assert Message.objects.get().content == "one"


def test_row_1_an_external_id_of_another_archived_message_rejects_the_batch(service: Api) -> None:
    """The row of an archived message has no text, but a hash that a repeated message is compared by."""
    said: dict[str, Any] = {
        "role": "assistant",
        "content": "one",
        "payload": {"b": [0.5, None, "é\n"], "a": True},
        "external_id": "a",
    }
    plain: dict[str, Any] = {"role": "user", "content": "two", "external_id": "b"}
    service.post("sessions/s1/messages", user_id="ada", messages=[said, plain])
    Message.objects.turns().archive()
    same = service.post("sessions/s1/messages", user_id="ada", messages=[plain, said])
    assert same.status_code == 200 and not any(message["created"] for message in same.json()["messages"])
    others: list[dict[str, Any]] = [
        {"content": "else"},
        {"payload": {"a": True}},
        {"payload": None},
        {"role": "user"},
        {"tool_name": "x"},
    ]
    for other in [said | fields for fields in others] + [plain | {"content": "three"}, plain | {"payload": {"a": 1}}]:
        batch = [{"role": "user", "content": "new"}, other]
        answer = service.post("sessions/s1/messages", user_id="ada", messages=batch)
        assert answer.status_code == 409, other
        assert answer.json()["errors"][0]["code"] == "external_id_taken"
    assert Message.objects.count() == 2


def test_a_message_archived_without_a_hash_is_known_by_its_id(ada: UserProfile) -> None:
    append(ada, "s1", [NewMessage("user", "one", external_id="a")])
    Message.objects.turns().archive()
    Message.objects.update(said_hash=None)
    [(_message, created)] = append(ada, "s1", [NewMessage("user", "else", external_id="a")]).messages
    assert not created


def test_an_external_id_with_two_texts_in_a_batch_rejects_it(service: Api) -> None:
    two = [{"role": "user", "content": text, "external_id": "a"} for text in ("one", "two")]
    assert service.post("sessions/s1/messages", user_id="ada", messages=two).status_code == 409
    assert not Message.objects.exists()


def test_external_ids_are_unique_per_session(ada: UserProfile, bo: UserProfile) -> None:
    for user, session_id in ((ada, "s1"), (ada, "s2"), (bo, "s1")):
        assert append(user, session_id, [NewMessage("user", "x", external_id="a")]).messages[0][1]
    assert Message.objects.count() == 3


def test_looking_up_external_ids_reads_only_the_messages_that_have_them(ada: UserProfile) -> None:
    session = talk(ada, 300)
    session.messages.filter(sequence=1).update(external_id="m-1")
    with connection.cursor() as cursor:  # as in a new database before its first ANALYZE
        cursor.execute("DELETE FROM pg_statistic WHERE starelid = 'sessions_app_message'::regclass")
    with acting_for("ada", application=DEFAULT):
        before = rows_read(Message)
        assert not Message.objects.with_external_ids(ada.pk, [(session.pk, "unknown")])
        assert rows_read(Message) == before
        assert len(Message.objects.with_external_ids(ada.pk, [(session.pk, "m-1")])) == 1
        assert rows_read(Message) <= before + 2


def test_a_failing_listener_rolls_back_the_append(ada: UserProfile) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("listener")

    messages_appended.connect(fail)
    try:
        with pytest.raises(RuntimeError):
            talk(ada, 3)
    finally:
        messages_appended.disconnect(fail)
    assert not Message.objects.exists()
    assert not Session.objects.exists()


@pytest.mark.parametrize("count", [1, 100, 200])
def test_an_append_takes_six_queries_for_any_batch_size(service: Api, count: int) -> None:
    service.post("sessions/s1/messages", user_id="ada", messages=messages(1))
    batch = [m | {"external_id": f"id-{n}"} for n, m in enumerate(messages(count))]
    with CaptureQueriesContext(connection) as queries:
        assert service.post("sessions/s1/messages", user_id="ada", messages=batch).status_code == 201
    # including BEGIN and COMMIT
    assert len(queries) == 6, "\n".join(q["sql"][:120] for q in queries)


@pytest.mark.slow
def test_an_append_that_makes_a_build_due_takes_two_more_queries(service: Api) -> None:
    service.post("sessions/s1/messages", user_id="ada", messages=messages(1))
    batch = [m | {"external_id": f"id-{n}"} for n, m in enumerate(messages(500))]
    with CaptureQueriesContext(connection) as queries:
        assert service.post("sessions/s1/messages", user_id="ada", messages=batch).json()["jobs"]
    assert len(queries) == 8, "\n".join(q["sql"][:120] for q in queries)


@pytest.mark.slow
@pytest.mark.usefixtures("forming")
def test_an_append_finds_all_open_jobs_with_one_query_and_requests_others_with_another(
    service: Api, settings: Settings
) -> None:
    settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"provider": "openai"})

    def append() -> tuple[set[str], int]:
        with CaptureQueriesContext(connection) as queries:
            jobs = service.post("sessions/s1/messages", user_id="ada", messages=messages(500)).json()["jobs"]
        return {job["process"] for job in jobs}, len(queries)

    service.post("sessions/s1/messages", user_id="ada", messages=messages(1))
    due = {"build_moments", "embed", "form_memories"}
    assert append() == (due, 7)
    assert append() == (due, 6)
    assert Job.objects.count() == len(due)


def test_row_13_messages_with_shuffled_times_keep_their_order(service: Api) -> None:
    times = ["2026-03-02T10:00:00Z", "1970-01-01T00:00:00Z", "2099-12-31T23:59:59+14:00", "2026-03-02T10:00:00+05:30"]
    body = [{"role": "user", "content": str(n), "created_at": time} for n, time in enumerate(times)]
    assert service.post("sessions/s1/messages", user_id="ada", messages=body).status_code == 201
    for view in ("live", "all"):
        shown = service.get("sessions/s1/messages", user_id="ada", view=view).json()["messages"]
        assert [m["content"] for m in shown] == ["0", "1", "2", "3"]
        assert [m["created_at"] for m in shown][2:] == ["2099-12-31T09:59:59Z", "2026-03-02T04:30:00Z"]


def test_row_13_any_time_through_the_end_of_2100_is_accepted(service: Api) -> None:
    last, first = "2100-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z"
    accepted = [
        last,
        first,
        "2101-01-01T13:59:59.999999+14:00",
        "1969-12-31T23:00:00-01:00",
        "2100-02-28T12:00:00+01:00",
    ]
    body = [{"role": "user", "content": str(n), "created_at": time} for n, time in enumerate(accepted)]
    assert service.post("sessions/s1/messages", user_id="ada", messages=body).status_code == 201
    times = [last, first, last, first, "2100-02-28T11:00:00Z"]
    for view in ("live", "all"):
        shown = service.get("sessions/s1/messages", user_id="ada", view=view).json()["messages"]
        assert [(m["content"], m["created_at"]) for m in shown] == [(str(n), time) for n, time in enumerate(times)]
    for refused in ("2101-01-01T00:00:00Z", "2100-12-31T23:59:59-00:01"):
        answer = service.post("sessions/s1/messages", user_id="ada", messages=[body[0] | {"created_at": refused}])
        assert answer.status_code == 400 and "end of 2100" in answer.json()["errors"][0]["detail"]


def test_activity_is_never_in_the_future(service: Api) -> None:
    body = [{"role": "user", "content": "x", "created_at": "2099-01-01T00:00:00Z"}]
    service.post("sessions/s1/messages", user_id="ada", messages=body)
    assert Session.objects.get().last_activity_at.year < 2099


class TestConstraints:
    """Database constraints."""

    def broken(self, session: Session, **fields: Any) -> None:
        row = {"session": session, "user_id": session.user_id, "role": "user", "sequence": 0, **fields}
        with pytest.raises(IntegrityError), transaction.atomic():
            Message.objects.create(**row)

    def test_sequences_are_unique(self, ada: UserProfile) -> None:
        self.broken(talk(ada, 1), sequence=0)

    def test_sequences_are_not_negative(self, ada: UserProfile) -> None:
        self.broken(talk(ada, 1), sequence=-1)

    def test_external_ids_are_unique(self, ada: UserProfile) -> None:
        session = append(ada, "s1", [NewMessage("user", "x", external_id="a")]).session
        self.broken(session, sequence=1, external_id="a")

    def test_only_a_tool_turn_can_be_a_partition_event(self, ada: UserProfile) -> None:
        self.broken(talk(ada, 1), kind="partition", role="user")

    def test_session_ids_are_unique_per_user(self, ada: UserProfile) -> None:
        talk(ada, 1)
        with pytest.raises(IntegrityError), transaction.atomic():
            Session.objects.create(user=ada, session_id="s1")


def test_message_turn_equals_a_message_with_the_same_fields(ada: UserProfile) -> None:
    session = Session.objects.create(user=ada, session_id="s")
    now = timezone.now()
    fields: dict[str, Any] = {"sequence": 3, "role": "user", "content": "Kilns", "created_at": now, "arrived_at": now}
    turn, as_called = Message.turn(session, metadata={}, **fields), Message(session=session, user=ada, **fields)
    names = [field.attname for field in Message._meta.concrete_fields]
    assert [getattr(turn, name) for name in names] == [getattr(as_called, name) for name in names]
    assert turn.session is session and turn._state.adding
    turn.save()
    assert Message.objects.values().get()["sequence"] == 3
