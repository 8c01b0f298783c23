"""Row 11: an erased person leaves no trace, and data of others stays."""

import json
import re
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, storages
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.context import assemble, receipts
from moments_app.context.receipts import StoredContext
from moments_app.jobs.runner import run_job
from moments_app.models import ContextReceipt, EngineCall, Job, MemoryAtom, MemoryStream, Moment, OwnText
from moments_app.models.job import TASK
from moments_app.moments.build import BuildMoments
from moments_app.provenance.retract import retract
from moments_app.recall.index_words import CountInput, count
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.form import FormMemories
from moments_app.streams.texts import undo
from moments_app.turns import platform_text
from sessions_app.models import ApiKey, Archive, Event, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import OnHold, RowsRemain, count_erasable_rows, erase_user
from sessions_app.people.provenance import declared
from tests.support.api import Api
from tests.support.commands import printed
from tests.support.concurrency import at_once, wait_until_somebody_waits
from tests.support.jobs import build, queued_job_ids, running, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.streams import fold, form, note, rewrite, shard
from tests.support.transcript import START, talk
from tests.support.waiting import TIMEOUT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "archive_folder")]


def dumped() -> dict[str, list[str]]:
    """Return every row of every table as text, with unpacked tasks and results of the queue."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT row_table::text FROM "{table}" row_table ORDER BY 1')
            found[table] = [row for (row,) in cursor.fetchall()]
    return found


def rows_of(user: UserProfile) -> dict[str, list[str]]:
    """Return every row with the key of a person, as text."""
    named = """
        SELECT table_name, column_name FROM information_schema.columns
        WHERE column_name ~ '^user_(id|pk)$' AND data_type = 'bigint' AND table_name ~ '^(sessions|moments)_app'
        UNION ALL VALUES ('sessions_app_userprofile', 'id')
    """
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(named)
        for table, column in cursor.fetchall():
            cursor.execute(f"SELECT t::text FROM {table} t WHERE {column} = %s ORDER BY 1", [user.pk])
            found[table] = [row for (row,) in cursor.fetchall()]
    return found


def traces(marker: str, folder: Path) -> list[str]:
    """Return where the marker is found: tables, the queue, files, the cache, buffered items."""
    places = [table for table, rows in dumped().items() if any(marker in row.lower() for row in rows)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    places += [str(path) for path in files if marker.encode() in path.read_bytes().lower()]
    kept = getattr(cache, "_cache", {})
    places += [f"cache {key}" for key, value in kept.items() if marker.encode() in value.lower()]
    return places


def plant(marker: str, service: Api, folder: Path) -> UserProfile:
    """Create a person with the marker in every text field, over the real interfaces where they exist."""
    name = f"user-{marker}"
    session = f"session-{marker}"
    text = {"metadata": {marker: [marker]}}
    service.post("sessions", user_id=name, session_id=session, source=marker[:60], title=marker, **text)
    said = [
        {"role": "assistant" if n % 2 else "user", "content": f"Kiln number {n} of {marker} is hot.", **text}
        | {"payload": {marker: marker}, "external_id": f"{marker}-{n}", "tool_name": marker}
        for n in range(40)
    ]
    assert service.post(f"sessions/{session}/messages", user_id=name, messages=said).status_code == 201
    for summary in (marker, f"Knows {marker}."):
        service.patch(f"users/{name}", summary=summary, interests=[marker], preferred_topics=[marker], **text)
    user, row = UserProfile.objects.get(user_id=name), Session.objects.get(session_id=session)
    work_off()
    build(row, lag=4)
    form(row)
    service.post("entities", user_id=name, kind="task", title=f"Task {marker}", body=marker, session_id=session)
    made = [service.post("entities", user_id=name, kind="goal", title=f"{marker} {n}").json() for n in range(2)]
    service.post(f"entities/{made[0]['entity_id']}/links", user_id=name, to=made[1]["entity_id"], relation="blocks")
    fold(MemoryStream.objects.get(user=user, stream_type="user", agent_id="default"))
    again = [*said[:1], {"role": "user", "content": marker}]
    service.post(f"sessions/{session}/messages", user_id=name, messages=again)
    work_off()
    asked = {"user_id": name, "session_id": session, "query": f"kiln {marker}"}
    context = service.get("memory/context", **asked).json()["context"]
    assert marker in context
    sent_back = [{"role": "user", "content": context}]
    service.post(f"sessions/{session}/messages", user_id=name, messages=sent_back)
    assert OwnText.objects.filter(user=user).exists()
    platform_text.line_buffer.flush()
    receipts.waiting.flush()
    assemble.waiting_accesses.flush()
    service.get("memory/context", **asked)  # and a receipt that is not written yet
    _key, text_of_key = ApiKey.objects.issue(marker, user=user, scope="admin")
    Api(text_of_key).patch(f"users/{name}", summary=f"Still {marker}.")
    work_off()
    plant_by_hand(marker, user, row, folder)
    return user


def plant_by_hand(marker: str, user: UserProfile, session: Session, folder: Path) -> None:
    """Add data that accidents, other hosts or other parts of the product would leave."""
    [login] = User.objects.all()
    for row in (user, session, MemoryAtom.objects.filter(user=user)[0], Moment.objects.filter(user=user)[0]):
        LogEntry.objects.log_actions(login.pk, [row], CHANGE, change_message=f"Changed {marker}.")
    Job.objects.filter(user=user).update(error=marker, params={marker: marker}, result={marker: marker})
    job = Job.objects.filter(user=user).first()
    assert job is not None
    EngineCall.objects.filter(job=job).update(error=marker)
    Event.objects.filter(user_pk=user.pk).update(payload={marker: marker})
    for name in ("kept.gz", "unreferenced.gz"):
        storages["archive"].save(f"{user.pk}/{session.pk}/{name}", ContentFile(marker.encode()))
    counts = {"first_sequence": 0, "last_sequence": 1, "turn_count": 2, "byte_count": 3}
    Archive.objects.create(
        session=session, user=user, month=START.date(), name=f"{user.pk}/{session.pk}/kept.gz", sha256=marker, **counts
    )


@pytest.mark.slow
def test_row_11_an_erased_person_leaves_no_trace(
    rolling: None,
    settings: Settings,
    service: Api,
    model_server: OpenAIServer,
    embeddings_server: OpenAIServer,
    archive_folder: Path,
) -> None:
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"receipt_days": 30})
    settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"turns": True})
    shard("kilns", extracts_facts=True)
    operator()
    bo = plant("zqbo", service, archive_folder)
    receipts.waiting.flush()
    platform_text.line_buffer.flush()
    assemble.waiting_accesses.flush()
    before = rows_of(bo)
    ada = plant("zqada", service, archive_folder)
    assert len(traces("zqada", archive_folder)) >= 18
    for noted in (receipts.waiting, assemble.waiting_accesses, platform_text.line_buffer):
        noted.flush()
    told = count_erasable_rows(ada)
    erased = erase_user(ada.user_id, application=DEFAULT, actor="operator:root")
    for noted in (receipts.waiting, assemble.waiting_accesses, platform_text.line_buffer):
        noted.flush()
    assert traces("zqada", archive_folder) == []
    assert rows_of(bo) == before
    assert traces("zqbo", archive_folder)
    assert not erased.has_files_left
    assert erased.rows == told
    assert set(erased.left.values()) == {0} and kinds_of_declared() <= erased.left.keys()
    assert {"events", "model calls"} <= erased.kept.keys()


def kinds_of_declared() -> set[str]:
    return {str(provenance.model._meta.verbose_name_plural) for provenance in declared()}


@pytest.mark.slow
def test_the_preview_counts_what_is_erased(ada: UserProfile, bo: UserProfile) -> None:
    session, of_bo = talk(ada, 60), talk(bo, 60)
    build(session), build(of_bo)
    work_off()
    lessons = shard("lessons")
    for theirs in (session, of_bo):
        said_by(theirs, lessons, f"Of {theirs.user}.")
        note(lessons, f"Of {theirs.user}, before it was noted who said it.", source_session=theirs)
        whose = {"user": theirs.user, "source_user": theirs.user, "is_candidate": True}
        lessons.atoms.create(atom_type="observation", content=f"By {theirs.user}.", **whose)
        with transaction.atomic():
            count(CountInput(None, theirs.user_id, None))
    told, before = count_erasable_rows(ada), dumped()
    assert {"words", "facts and observations of shared memory", "moments"} <= told.keys()
    erased = erase_user("ada", application=DEFAULT, actor="test")
    after = dumped()
    logs = {"sessions_app_event"}
    lost = {name: len(rows) - len(after[name]) for name, rows in before.items() if name not in logs}
    lost["moments_app_job"] += 1  # the removal of archived files was queued
    assert erased.rows == told
    assert sum(lost.values()) == told.total() + 1  # the profile is the additional row


# --- what agents learned ---


def said_by(session: Session, stream: MemoryStream, content: str, **fields: Any) -> MemoryAtom:
    """Add an atom to a shard that derives from a person's session."""
    return note(stream, content, source_session=session, source_user=session.user, **fields)


class TestShards:
    """An agent's shards, which all its users share."""

    @pytest.fixture
    def kilns(self, ada: UserProfile, bo: UserProfile) -> MemoryStream:
        """A shard with Bo's item consolidated first, then one of each person, then Bo's again. One of each waits."""
        stream, of_ada, of_bo = shard("kilns"), talk(ada, 2), talk(bo, 2)
        said_by(of_bo, stream, "Bo one.")
        fold(stream)
        said_by(of_ada, stream, "Ada one.")
        said_by(of_bo, stream, "Bo two.")
        fold(stream)
        said_by(of_bo, stream, "Bo three.")
        fold(stream)
        said_by(of_ada, stream, "Ada two.")
        said_by(of_bo, stream, "Bo four.")
        stream.refresh_from_db()
        return stream

    @pytest.mark.slow
    def test_row_11_a_text_with_an_item_of_the_erased_person_is_rebuilt_without_it(self, kilns: MemoryStream) -> None:
        assert "Ada one." in kilns.consolidated_content
        first = list(kilns.atoms.lines())[:1]
        erase_user("ada", application=DEFAULT, actor="test")
        kilns.refresh_from_db()
        assert [line.content for line in first] == [kilns.consolidated_content]
        assert list(kilns.atoms.lines()) == first
        waiting = kilns.atoms.active().in_order().values_list("content", flat=True)
        assert sorted(waiting) == ["Bo four.", "Bo three.", "Bo two."]
        work_off()
        kilns.refresh_from_db()
        assert [f"Bo {n}." in kilns.consolidated_content for n in ("one", "two", "three", "four")] == [True] * 4
        assert traced("ada one") == []

    @pytest.mark.slow
    def test_row_11_edits_of_a_text_with_an_item_of_the_erased_person_are_deleted(self, kilns: MemoryStream) -> None:
        rewrite(kilns, f"{kilns.consolidated_content}\nOf Ada, by hand.")
        erase_user("ada", application=DEFAULT, actor="test")
        kilns.refresh_from_db()
        assert "Bo one." in kilns.consolidated_content and traced("of ada") == []

    @pytest.mark.slow
    def test_a_text_without_the_persons_items_stays(self, kilns: MemoryStream, bo: UserProfile) -> None:
        lessons = shard("lessons")
        said_by(Session.objects.get(user=bo), lessons, "Bo's lesson.")
        fold(lessons)
        said_by(Session.objects.get(user__user_id="ada"), lessons, "Ada's lesson.")
        before = MemoryStream.objects.get(pk=lessons.pk).consolidated_content
        erase_user("ada", application=DEFAULT, actor="test")
        assert MemoryStream.objects.get(pk=lessons.pk).consolidated_content == before
        assert lessons.atoms.lines().count() == 1
        assert not Job.objects.open().filter(stream=lessons).exists()

    def test_row_11_an_undone_consolidation_leaves_no_text(self, ada: UserProfile) -> None:
        stream = shard("kilns")
        said_by(talk(ada, 2), stream, "Ada one.")
        fold(stream)
        undo(stream, requested_by="test")
        erase_user("ada", application=DEFAULT, actor="test")
        assert not stream.atoms.exists()

    @pytest.mark.slow
    def test_row_11_items_from_an_already_deleted_session_are_erased(
        self, service: Api, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        stream = shard("kilns")
        form(talk(ada, 6))
        assert stream.atoms.exists()
        assert service.delete("sessions/s1", user_id="ada").status_code == 204
        assert stream.atoms.exists()
        erase_user("ada", application=DEFAULT, actor="test")
        assert not stream.atoms.exists()

    @pytest.mark.slow
    def test_row_11_a_running_consolidation_does_not_store_erased_items(
        self, kilns: MemoryStream, model_server: OpenAIServer
    ) -> None:
        job = Job.objects.request(Consolidate.name, stream=kilns, requested_by="test", force=True)
        with running(model_server, job):
            erase_user("ada", application=DEFAULT, actor="test")
        work_off()
        assert traced("ada one") == traced("ada two") == []

    @pytest.mark.slow
    def test_contexts_of_other_users_are_rebuilt(self, kilns: MemoryStream, service: Api) -> None:
        asked = {"user_id": "bo", "session_id": "s1"}
        assert "Ada two." in service.get("memory/context", **asked).content.decode()
        erase_user("ada", application=DEFAULT, actor="test")
        assert "Ada" not in service.get("memory/context", **asked).content.decode()


def traced(text: str) -> list[str]:
    """Return the tables that contain this text."""
    return [table for table, rows in dumped().items() if any(text in row.lower() for row in rows)]


class TestMeanwhile:
    """Concurrent work of any kind."""

    @pytest.mark.slow
    @pytest.mark.parametrize("process", [BuildMoments.name, FormMemories.name])
    def test_row_11_a_job_that_waits_for_its_engine_stores_nothing(
        self, ada: UserProfile, model_server: OpenAIServer, process: str
    ) -> None:
        job = Job.objects.request(process, talk(ada, 30, text="zqada"), requested_by="test", force=True)
        with running(model_server, job):
            erase_user("ada", application=DEFAULT, actor="test")
        assert traced("zqada") == []
        assert not UserProfile.objects.exists()
        assert not Job.objects.exclude(process=TASK).exists()

    @pytest.mark.slow
    def test_row_11_concurrent_writes_and_erasures_get_responses_and_leave_nothing(
        self, service: Api, rolling: None, kept_receipts: None
    ) -> None:
        codes: list[int] = []

        def work(number: int) -> None:
            for turn in range(12):
                body = {"user_id": "ada", "messages": [{"role": "assistant", "content": f"zqada {turn}"}]}
                answers = [service.post(f"sessions/s{number % 3}/messages", **body)]
                if number == 0:
                    answers = [service.delete("users/ada")]
                elif number == 1:
                    answers.append(service.delete("sessions/s1", user_id="ada"))
                elif number == 2:
                    answers.append(service.get("memory/context", user_id="ada", session_id="s2", query="zqada"))
                    receipts.waiting.flush()
                elif number == 3:
                    answers.append(service.patch("users/ada", summary="zqada"))
                    answers.append(service.post("entities", user_id="ada", kind="task", title="zqada"))
                elif number == 4:
                    answers.append(service.post("moments/build", user_id="ada", session_id="s1", force=True))
                    Job.objects.filter(user__user_id="ada").first()
                    recover_one()
                codes.extend(answer.status_code for answer in answers)

        at_once(work, 6)
        assert {code for code in codes if code >= 400} <= {404}
        if UserProfile.objects.filter(user_id="ada").exists():
            erase_user("ada", application=DEFAULT, actor="test")
        receipts.waiting.flush()
        assert traced("zqada") == []

    def test_deleting_a_session_waits_for_a_concurrent_receipt(
        self, service: Api, ada: UserProfile, kept_receipts: None
    ) -> None:
        session = talk(ada, 2)
        receipt = ContextReceipt(
            context_id="00000000-0000-0000-0000-000000000001",
            user=ada,
            session=session,
            refs={},
            tokens={},
            trimmed=[],
            text_hash="",
        )
        written, answers = threading.Event(), []

        def write_slowly() -> None:
            with transaction.atomic():
                kept = StoredContext("", "xml", "query", 300, 0, False, [], "")
                receipts._write([receipts.ServedRecord(receipt, kept, ada.application_id, 0)])
                written.set()
                wait_until_somebody_waits()
            connection.close()

        def delete() -> None:
            assert written.wait(TIMEOUT)
            answers.append(service.delete("sessions/s1", user_id="ada").status_code)
            connection.close()

        at_once(lambda number: (write_slowly, delete)[number](), 2)
        assert answers == [204]
        assert not ContextReceipt.objects.exists()

    def test_row_11_buffered_items_of_an_erased_person_are_dropped(
        self, service: Api, ada: UserProfile, kept_receipts: None
    ) -> None:
        talk(ada, 2)
        assert service.get("memory/context", user_id="ada", session_id="s1").status_code == 200
        erase_user("ada", application=DEFAULT, actor="test")
        receipts.waiting.flush()
        assert not ContextReceipt.objects.exists()


def recover_one() -> None:
    """Run a due job as a worker does."""
    for job_id in queued_job_ids()[:1]:
        run_job(job_id)


# --- permissions and receipts ---


class TestAsking:
    """The interfaces for erasing a person."""

    @pytest.mark.slow
    def test_the_api_returns_the_numbers_of_erased_rows(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 3)
        answer = service.delete("users/ada")
        assert answer.status_code == 200
        assert answer.json()["rows"]["messages"] == 3
        [event] = Event.objects.filter(type="user_erased")
        assert event.payload == answer.json()
        assert (event.payload["left"]["messages"], event.payload["has_files_left"]) == (0, False)
        assert (event.user_pk, event.actor[:4]) == (None, "key:")
        assert service.delete("users/ada").status_code == 404

    @pytest.mark.slow
    def test_events_stay_without_names(self, service: Api, as_ada: Api, ada: UserProfile) -> None:
        talk(ada, 3)
        as_ada.delete("sessions/s1")
        assert as_ada.delete("users/ada").status_code == 200
        events = Event.objects.order_by("id").values_list("type", "user_pk", "session_pk", "actor")
        assert list(events) == [
            ("session_deleted", None, None, "key:(erased)"),
            ("user_erased", None, None, "key:(erased)"),
        ]
        assert as_ada.get("users/ada").status_code == 401

    @pytest.mark.slow
    def test_row_9_a_user_key_can_erase_only_its_person(self, as_ada: Api, bo: UserProfile) -> None:
        foreign, unknown = as_ada.delete("users/bo"), as_ada.delete("users/nobody")
        assert (foreign.status_code, foreign.content) == (404, unknown.content)
        assert UserProfile.objects.filter(user_id="bo").exists()
        assert as_ada.delete("users/ada").status_code == 200

    def test_the_api_requires_an_admin_key(self, ada: UserProfile) -> None:
        writer = Api(ApiKey.objects.issue("w", scope="write")[1])
        assert writer.delete("users/ada").status_code == 403

    def test_a_legal_hold_prevents_an_erasure(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 3)
        Session.objects.update(legal_hold=True)
        answer = service.delete("users/ada")
        assert answer.status_code == 409
        assert answer.json()["errors"][0]["code"] == "legal_hold"
        assert "1 sessions" in answer.json()["errors"][0]["detail"]
        with pytest.raises(OnHold):
            erase_user("ada", application=DEFAULT, actor="test")
        with pytest.raises(CommandError, match="legal hold"):
            call_command("erase_user", "ada", "--yes", stdout=StringIO())
        assert Message.objects.count() == 3

    @pytest.mark.slow
    def test_the_command_counts_asks_and_erases(self, ada: UserProfile, monkeypatch: pytest.MonkeyPatch) -> None:
        MemoryStream.objects.ensure_for(talk(ada, 3))
        note(MemoryStream.objects.filter(user=ada)[0], "Has a kiln.")
        told = printed("erase_user", "ada", "--dry-run")
        assert "messages: 3" in told and "facts and observations: 1" in told and "Nothing was erased" in told
        monkeypatch.setattr("sys.stdin", StringIO())  # no terminal, as in a script
        with pytest.raises(CommandError, match="use --yes"):
            printed("erase_user", "ada")
        assert UserProfile.objects.exists()
        monkeypatch.setattr("builtins.input", lambda _: "bo")
        with pytest.raises(CommandError, match="doesn't match"):
            printed("erase_user", "ada")
        assert UserProfile.objects.exists()
        monkeypatch.setattr("builtins.input", lambda _: "ada")
        told = printed("erase_user", "ada")
        assert "nothing is left" in told
        assert re.search(r"Searched \d+ kinds of data for the person again: 0 rows\.", told)
        with pytest.raises(CommandError, match="no user 'ada'"):
            printed("erase_user", "ada", "--yes")


class TestProof:
    """An erasure leaves nothing, or rolls everything back."""

    @pytest.mark.parametrize("deferred", ["", "DEFERRABLE INITIALLY DEFERRED"])
    def test_row_11_unknown_rows_roll_the_erasure_back(self, ada: UserProfile, deferred: str) -> None:
        talk(ada, 3)
        before = dumped()
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE unknown (person bigint REFERENCES sessions_app_userprofile {deferred});"
                f"INSERT INTO unknown VALUES ({ada.pk})"
            )
            try:
                with pytest.raises(RowsRemain, match="unknown"):
                    erase_user("ada", application=DEFAULT, actor="test")
            finally:
                cursor.execute("DROP TABLE unknown")
        assert dumped() == before

    def test_a_name_left_in_an_item_of_another_person_rolls_back_the_erasure(
        self, ada: UserProfile, bo: UserProfile
    ) -> None:
        stream = MemoryStream.objects.create(user=bo, stream_type="user", extraction_prompt="x")
        note(stream, "Ada has a kiln.", related_users=["ada"])
        assert count_erasable_rows(ada) == {"names in other people's items": 1}
        before = dumped()
        with connection.cursor() as cursor:
            cursor.execute("CREATE RULE kept AS ON UPDATE TO moments_app_memoryatom DO INSTEAD NOTHING")
            try:
                with pytest.raises(RowsRemain, match="names in other people's items"):
                    erase_user("ada", application=DEFAULT, actor="test")
            finally:
                cursor.execute("DROP RULE kept ON moments_app_memoryatom")
        assert dumped() == before

    @pytest.mark.slow
    def test_a_name_left_in_a_retracted_item_of_another_person_rolls_back_the_erasure(
        self, ada: UserProfile, bo: UserProfile
    ) -> None:
        session = talk(bo, 2)
        stream = MemoryStream.objects.create(user=bo, stream_type="user", extraction_prompt="x")
        sources = list(session.messages.turns().values_list("pk", flat=True))
        about: dict[str, Any] = {"source_session": session, "source_message_ids": sources}
        note(stream, "She has a kiln.", related_users=["ada"], **about)
        note(stream, "She has a cat.", related_users=["Ada"], **about)
        retraction = retract(session, [0], reason="Wrong.", requested_by="test")
        assert count_erasable_rows(ada) == {"names in other people's items": 1}
        before = dumped()
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE FUNCTION keep_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';"
                "CREATE TRIGGER kept BEFORE UPDATE ON moments_app_retracteditem FOR EACH ROW EXECUTE FUNCTION keep_it()"
            )
            try:
                with pytest.raises(RowsRemain, match="names in other people's items"):
                    erase_user("ada", application=DEFAULT, actor="test")
            finally:
                cursor.execute("DROP FUNCTION keep_it CASCADE")
        assert dumped() == before
        erase_user("ada", application=DEFAULT, actor="test")
        items = retraction.items.withdrawn(MemoryAtom)
        assert sorted(json.loads(item.data["related_users"]) for item in items) == [[], ["Ada"]]

    def test_the_admin_log_loses_entries_about_erased_people_and_deleted_rows(
        self, ada: UserProfile, bo: UserProfile
    ) -> None:
        operator()
        [login] = User.objects.all()
        gone = talk(bo, 1, session_id="zq-gone")
        LogEntry.objects.log_actions(login.pk, [ada], CHANGE, change_message="zq-ada")
        LogEntry.objects.log_actions(login.pk, [bo], CHANGE, change_message="bo")
        LogEntry.objects.log_actions(login.pk, [gone], CHANGE, change_message="zq-gone")
        gone.delete()
        erase_user("ada", application=DEFAULT, actor="test")
        entries = LogEntry.objects.order_by("id").values_list("object_repr", "change_message")
        assert list(entries) == [("(erased)", ""), ("bo", "bo"), ("(erased)", "")]

    def test_row_11_files_that_cannot_be_deleted_are_reported_and_deleted_later(
        self, ada: UserProfile, settings: Settings, archive_folder: Path
    ) -> None:
        storages["archive"].save(f"{ada.pk}/1/2026-03.gz", ContentFile(b"zq"))
        whole = settings.STORAGES
        broken = {"BACKEND": f"{__name__}.BrokenStorage", "OPTIONS": {"location": archive_folder}}
        settings.STORAGES = whole | {"archive": broken}
        with pytest.raises(CommandError, match="some archive files still exist"):
            call_command("erase_user", "ada", "--yes", stdout=StringIO())
        assert not UserProfile.objects.exists()
        [job] = Job.objects.filter(process=TASK)
        run_job(job.job_id)
        job.refresh_from_db()
        assert (job.status, job.attempts, job.held_by) == ("queued", 0, "backoff")
        assert Event.objects.get(type="user_erased").payload["has_files_left"]
        settings.STORAGES = whole
        Job.objects.filter(pk=job.pk).update(run_after=timezone.now())
        run_job(job.job_id)
        assert list(archive_folder.iterdir()) == []
        assert not Event.objects.get(type="user_erased").payload["has_files_left"]

    def test_files_that_the_storage_still_lists_are_not_called_removed(
        self, ada: UserProfile, settings: Settings, archive_folder: Path
    ) -> None:
        storages["archive"].save(f"{ada.pk}/1/2026-03.gz", ContentFile(b"zq"))
        broken = {"BACKEND": f"{__name__}.IdleStorage", "OPTIONS": {"location": archive_folder}}
        settings.STORAGES = settings.STORAGES | {"archive": broken}
        assert erase_user("ada", application=DEFAULT, actor="test").has_files_left


class IdleStorage(FileSystemStorage):
    """Accepts deletions without doing them."""

    def delete(self, name: str) -> None:
        pass


class BrokenStorage(FileSystemStorage):
    """Fails to delete."""

    def delete(self, name: str) -> None:
        raise OSError("read-only file system")
