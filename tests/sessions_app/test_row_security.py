"""Row 9, enforced by PostgreSQL: even without a filter in the code, a request sees one person only."""

import json
import re
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, models, transaction

from moments_app.models import EmbeddingModel, FactEmbedding, Job, MemoryAtom, MemoryStream, Moment
from moments_app.streams.edit import evict
from sessions_app import lexemes
from sessions_app.models import ApiKey, Event, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import ROLE, acting_for, allow_shared_changes
from tests.support.streams import fold, note, shard
from tests.support.transcript import START, talk

pytestmark = pytest.mark.django_db(transaction=True)

PERSONAL = [UserProfile, Session, Message, Event, Moment, Job]


def give_everything(user: UserProfile) -> None:
    session = talk(user, 3)
    Job.objects.create(process="build_moments", user=user, session=session, requested_by="test", status="completed")
    Event.objects.create(type="t", actor="test", user_pk=user.pk, session_pk=session.pk)
    Moment.objects.create(
        user=user,
        source_session=session,
        key="k",
        name="k",
        summary="s",
        starts_at=START,
        ends_at=START,
        first_sequence=0,
        last_sequence=2,
        engine="test",
    )


def owner(row: Any) -> Any:
    return row.pk if isinstance(row, UserProfile) else row.user_pk if isinstance(row, Event) else row.user_id


@pytest.mark.parametrize("model", PERSONAL)
def test_row_9_an_unfiltered_query_sees_only_own_rows(
    ada: UserProfile, bo: UserProfile, model: type[models.Model]
) -> None:
    give_everything(ada)
    give_everything(bo)
    for person in (ada, bo):
        with acting_for(person.user_id, application=DEFAULT):
            found = list(model._default_manager.all())
        assert found
        assert {owner(row) for row in found} == {person.pk}


@pytest.mark.parametrize("model", PERSONAL)
def test_row_9_a_request_without_a_person_sees_no_rows(ada: UserProfile, model: type[models.Model]) -> None:
    give_everything(ada)
    for name in (None, "unknown"):
        with acting_for(name, application=DEFAULT) as user:
            assert user is None
            assert not model._default_manager.exists()


@pytest.mark.parametrize("model", [Session, Message, Moment, Job])
def test_row_9_rows_of_another_person_cannot_be_changed_or_deleted(
    ada: UserProfile, bo: UserProfile, model: type[models.Model]
) -> None:
    give_everything(bo)
    with acting_for("ada", application=DEFAULT):
        assert model._default_manager.update(user=ada) == 0
        assert model._default_manager.all()._raw_delete("default") == 0
    assert model._default_manager.filter(user=bo).exists()


def test_row_9_rows_cannot_be_written_for_another_person(ada: UserProfile, bo: UserProfile) -> None:
    with pytest.raises(DatabaseError, match="row-level security"), acting_for("ada", application=DEFAULT):
        Session.objects.create(user=bo, session_id="planted")


@pytest.mark.parametrize("table", ["sessions_app_apikey", "auth_user", "django_session", "django_q_schedule"])
def test_row_19_requests_cannot_read_unrelated_tables(ada: UserProfile, table: str) -> None:
    with pytest.raises(DatabaseError, match="permission denied"), acting_for("ada", application=DEFAULT):
        connection.cursor().execute(f"SELECT * FROM {table}")


def test_the_profile_equals_the_one_that_a_query_returns(ada: UserProfile) -> None:
    UserProfile.objects.filter(pk=ada.pk).update(metadata={"x": [1]}, interests=["kilns"], summary="Ada.")
    with acting_for("ada", application=DEFAULT) as user:
        assert user is not None
        fields = UserProfile._meta.concrete_fields
        assert user.metadata == {"x": [1]} and not user._state.adding
        read = UserProfile.objects.get()
        assert [getattr(user, field.attname) for field in fields] == [getattr(read, field.attname) for field in fields]


def test_the_role_ends_with_the_block(ada: UserProfile) -> None:
    with acting_for("ada", application=DEFAULT):
        pass
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_setting('memory.user_pk', true)")
        role, user_pk = cursor.fetchone()
    assert role != ROLE
    assert not user_pk


def test_an_error_in_the_block_resets_the_role_and_rolls_back(ada: UserProfile) -> None:
    with pytest.raises(ZeroDivisionError), acting_for("ada", application=DEFAULT) as user:
        assert user
        Session.objects.create(user=user, session_id="s")
        1 / 0  # noqa: B018
    assert not Session.objects.exists()
    assert not ApiKey.objects.exists()


def test_a_person_cannot_be_set_inside_another_transaction(ada: UserProfile) -> None:
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic(), acting_for("ada", application=DEFAULT):
        pass


def test_every_table_with_personal_data_is_protected(transactional_db: None) -> None:
    personal = {
        model._meta.db_table
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if field.column in ("user_id", "user_pk") and model._meta.app_label in ("sessions_app", "moments_app")
    }
    # A key may belong to a person, but requests can't read keys at all.
    personal -= {ApiKey._meta.db_table}
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_policies WHERE policyname = 'acting_user'")
        protected = {row[0] for row in cursor}
        cursor.execute("SELECT tablename FROM pg_policies WHERE policyname = 'operators'")
        limited = {row[0] for row in cursor}
        cursor.execute("SELECT relname FROM pg_class WHERE relrowsecurity")
        enabled = {row[0] for row in cursor}
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND has_table_privilege(%s, oid, 'SELECT')",
            [list(limited - protected), ROLE],
        )
        read_by_requests = {row[0] for row in cursor}
    assert personal <= protected and enabled == protected | limited
    assert read_by_requests == set()  # a policy for operators only would hide the whole table from requests


@pytest.mark.parametrize("table", ["sessions_app_message", "moments_app_memoryatom", "moments_app_word"])
def test_policies_are_evaluated_once_per_statement_without_other_tables(ada: UserProfile, table: str) -> None:
    with acting_for("ada", application=DEFAULT), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (VERBOSE) SELECT * FROM {table}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    scanned = set(re.findall(r"on public\.(\w+)", plan))
    assert scanned == {table}
    if table != "moments_app_word":  # few rows of words are read, by key
        assert "InitPlan" in plan and plan.count("memory.user_pk") == 1


def test_functions_on_turns_return_only_what_their_caller_sees(ada: UserProfile, bo: UserProfile) -> None:
    session = talk(bo, 3)
    turns = list(session.messages.in_order())
    words = lexemes.whole_words(turns[0].content)[:1]

    def asked() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT first_words(%(person)s, %(session)s, 100),"
                " sequences_of_turns(%(person)s, %(session)s, %(ids)s),"
                " ARRAY(SELECT id FROM turns_with_words(ARRAY[%(person)s]::bigint[], %(words)s, 10) ORDER BY id)",
                {
                    "person": bo.pk,
                    "session": session.pk,
                    "ids": [turn.pk for turn in turns],
                    "words": json.dumps([word.stems for word in words]),
                },
            )
            return cursor.fetchone()

    first, sequences, found = asked()
    assert first == turns[0].content and sequences == [0, 1, 2] and turns[0].pk in found
    with acting_for("ada", application=DEFAULT):
        assert asked() == (None, [], [])
    with acting_for("bo", application=DEFAULT):
        assert asked() == (first, sequences, found)


class TestEverybodysRows:
    """Shared rows that belong to no person. A request of a person can read them but not change them."""

    TABLES = ("memorystream", "memoryatom", "factembedding", "job")

    @pytest.fixture
    def shared(self, ada: UserProfile) -> MemoryStream:
        """A shard with text, a waiting line, a vector and jobs."""
        stream = shard("kilns", "default")
        note(stream, "Kilns are hot.")
        fold(stream)
        model = EmbeddingModel.objects.create(name="m", dimensions=3)
        FactEmbedding.objects.create(
            source=note(stream, "Vents matter."), model=model, said_at=START, vector=[1.0, 0.0, 0.0]
        )
        Job.objects.create(process="embed", stream=stream, requested_by="test")
        return stream

    @pytest.mark.parametrize("table", TABLES)
    @pytest.mark.parametrize("person", ["ada", None])
    def test_row_24_a_request_of_a_person_can_read_shared_rows_but_not_change_them(
        self, shared: MemoryStream, table: str, person: str | None
    ) -> None:
        name = f"moments_app_{table}"
        with acting_for(person, application=DEFAULT), connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {name} WHERE user_id IS NULL")
            assert cursor.fetchone() > (0,)
            cursor.execute(f"UPDATE {name} SET id = id")
            assert cursor.rowcount == 0
            cursor.execute(f"DELETE FROM {name}")
            assert cursor.rowcount == 0

    def test_row_24_a_request_of_a_person_cannot_add_shared_rows_or_share_its_own(
        self, shared: MemoryStream, ada: UserProfile
    ) -> None:
        own = MemoryStream.objects.ensure_of_person(ada, "default")
        atom = note(own, "Ada's.")
        for change in (
            lambda: note(shared, "Planted."),
            lambda: MemoryAtom.objects.filter(pk=atom.pk).update(user=None, stream=shared),
            lambda: Job.objects.request("consolidate", stream=shared, requested_by="test"),
        ):
            Job.objects.filter(process="consolidate").delete()
            with pytest.raises(DatabaseError, match="row-level security"), acting_for("ada", application=DEFAULT):
                change()

    def test_an_authorized_service_can_change_shared_rows_until_its_transaction_ends(
        self, shared: MemoryStream, ada: UserProfile
    ) -> None:
        with acting_for("ada", application=DEFAULT):
            allow_shared_changes()
            assert MemoryStream.objects.update(name="renamed") == 1
        with acting_for("ada", application=DEFAULT):
            assert MemoryStream.objects.update(name="again") == 0

    def test_an_evicted_line_is_not_visible(self, shared: MemoryStream, ada: UserProfile) -> None:
        lines = shared.atoms.filter(position__isnull=False)
        with acting_for("ada", application=DEFAULT):
            assert lines.exists()
        evict(shared.atoms.lines()[0], requested_by="test")
        assert lines.exists()
        with acting_for("ada", application=DEFAULT):
            assert not lines.exists()
