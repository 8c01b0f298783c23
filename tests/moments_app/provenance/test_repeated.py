"""Answers that repeat retracted text are retracted with it, and so is everything derived from them."""

import json
import zipfile
from functools import partial
from io import BytesIO
from threading import Thread
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from moments_app.context import receipts
from moments_app.models import MemoryAtom, MemoryStream, Moment, Release, Retraction
from moments_app.provenance.retract import consolidations, preview, retract
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.release import release
from sessions_app.database.sql import lock_rows
from sessions_app.models import ApiKey, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.export import export_user
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.concurrency import on_its_own_connection, wait_until_somebody_waits
from tests.support.jobs import work_off
from tests.support.kept_rows import KeptRows
from tests.support.operator import operator
from tests.support.planted_number import ANSWER, NUMBER, PLANTED, QUESTION, said
from tests.support.streams import fold, note, shard
from tests.support.transcript import retracted

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "kept_receipts")]


with_both_engines = pytest.mark.parametrize("engine", ["extractive", "model"], indirect=True)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest) -> str:
    """The engine that writes memory: the built-in rules, unless a test names another."""
    name = str(getattr(request, "param", "extractive"))
    if name == "model":
        request.getfixturevalue("model_server")
    return name


def context(service: Api, session: str, query: str = QUESTION) -> Any:
    """Request the context for a question, and write its receipt."""
    found = service.get("memory/context", user_id="ada", session_id=session, query=query)
    receipts.waiting.flush()
    return found.json()


def asked(service: Api, session: str, answer: str = ANSWER) -> None:
    """Create a session where the model had a context for its answer."""
    said(service, session, "Hello there.", "Hello.")
    told = context(service, session)
    assert NUMBER in json.dumps(told["context"])
    said(service, session, QUESTION, answer, context_id=told["context_id"])


def plant_and_ask() -> None:
    service = Api(ApiKey.objects.issue("earlier", scope="admin")[1])
    said(service, "planted", PLANTED, "I see.")
    asked(service, "asked")


@pytest.fixture
def answered(transactional_db: None, forming: None, engine: str, kept_rows: KeptRows) -> None:
    """A planted turn, and a session where it was in the context of the model's answer."""
    kept_rows.have(engine, plant_and_ask)


def exported(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file in Ada's export."""
    file = BytesIO()
    export_user("ada", file, application=DEFAULT)
    with zipfile.ZipFile(file) as archive:
        return [json.loads(line) for line in archive.read(name).decode().splitlines()]


def order(**more: Any) -> dict[str, Any]:
    return {"user_id": "ada", "session_id": "planted", "sequences": [0], "reason": "planted"} | more


def assert_nowhere(service: Api, number: str = NUMBER) -> None:
    """Check that no search, context, fact or export contains it."""
    for query in (QUESTION, PLANTED, number):
        found = service.post("memory/search", user_id="ada", query=query, match_count=100).content.decode()
        assert number not in found.replace(query, "")
        for session in ("planted", "asked", "new"):
            told = context(service, session, query)
            assert number not in json.dumps(told).replace(query, "")
    facts = service.get("facts", user_id="ada", limit=100).json()["facts"]
    assert not [fact for fact in facts if number in fact["content"]]
    assert not [row for row in exported("atoms.jsonl") if row["state"] == "active" and number in row["content"]]


@pytest.mark.slow
@with_both_engines
@pytest.mark.usefixtures("answered")
def test_row_41_an_answer_of_another_session_is_previewed_and_retracted(service: Api, ada: UserProfile) -> None:
    preview = service.post("retractions", order(preview=True)).json()
    assert preview["answers"] == [{"ref": "rem://sessions/asked/messages/3", "content": ANSWER, "problem": ""}]
    assert preview["turns"] == 2 and retracted() == []
    made = service.post("retractions", order()).json()
    gone = Message.objects.exclude(retracted_at=None).order_by("pk")
    assert list(gone.values_list("content", flat=True)) == [PLANTED, ANSWER]
    work_off()
    assert_nowhere(service)
    [listed, first] = service.get("retractions", user_id="ada").json()["retractions"]
    assert (listed["cause_id"], first["retraction_id"]) == (made["retraction_id"], made["retraction_id"])


@pytest.mark.slow
def test_row_41_an_answer_in_the_same_live_window_is_retracted(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, f"I noted {NUMBER}.", "Thank you.", "You are welcome.")
    service.post("retractions", order())
    assert retracted() == [0, 1]
    work_off()
    assert_nowhere(service)


@pytest.mark.slow
def test_row_41_an_answer_without_a_number_is_retracted_if_the_text_was_in_its_context(
    service: Api, ada: UserProfile
) -> None:
    planted = "I am terribly allergic to walnuts and I carry adrenaline."
    said(service, "planted", planted, "I see.")
    said(service, "asked", "Hello there.", "Hello.")
    told = context(service, "asked", "Which cake is good for me?")
    answer = "No cake with walnuts, as you are allergic."
    said(service, "asked", "Which cake is good for me?", answer, context_id=told["context_id"])
    said(service, "other", "What grows in Georgia?", "People who are allergic to walnuts don't like Georgia.")
    preview = service.post("retractions", order(preview=True)).json()
    assert [found["ref"] for found in preview["answers"]] == ["rem://sessions/asked/messages/3"]


@pytest.mark.slow
@pytest.mark.usefixtures("answered")
def test_row_41_answers_to_answers_are_retracted(service: Api, ada: UserProfile) -> None:
    asked(service, "new", f"It is {NUMBER}, as I said.")
    service.post("retractions", order())
    assert Message.objects.exclude(retracted_at=None).count() == 3
    work_off()
    assert_nowhere(service)


@pytest.mark.slow
def test_an_answer_that_quotes_another_turn_is_not_retracted(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    said(service, "again", f"My landlord has the account {NUMBER}.", "I see.")
    asked(service, "asked")
    assert service.post("retractions", order(preview=True)).json()["answers"] == []


def test_an_answer_that_shares_only_a_sentence_of_one_word_is_not_retracted(service: Api, ada: UserProfile) -> None:
    said(service, "planted", "Hi.", "Gladly! The ferry sails at noon.", "And back?", "Gladly, at eight.")
    assert service.post("retractions", order(sequences=[1], preview=True)).json()["answers"] == []


@pytest.mark.slow
@pytest.mark.parametrize("before", ["in an earlier session", "in the same messages"])
def test_an_answer_is_not_retracted_if_an_earlier_answer_had_its_words(
    service: Api, ada: UserProfile, before: str
) -> None:
    offered = ["Hello there.", "Shall I look for flights to Lisbon?"]
    if before == "in an earlier session":
        said(service, "earlier", *offered)
        offered = ["Hello there.", "Hello."]
    said(service, "planted", *offered, "Yes, flights to Lisbon.", "The flights to Lisbon leave at noon.")
    assert service.post("retractions", order(sequences=[2], preview=True)).json()["answers"] == []


@pytest.mark.slow
def test_a_word_with_digits_or_a_short_number_does_not_match_an_answer_elsewhere(
    service: Api, ada: UserProfile
) -> None:
    planted = "The wooden door of my cellar needs python3, 10000 screws and the code 482913."
    said(service, "planted", planted, "I see.")
    said(service, "other", "Hello there.", "Use python3 for 10000 rows.", "Thanks.", "Ticket 482913 is closed.")
    said(service, "same", "Hello there.", "The code of the cellar door is 482913.")
    preview = service.post("retractions", order(preview=True)).json()
    assert [found["ref"] for found in preview["answers"]] == ["rem://sessions/same/messages/1"]


@pytest.mark.slow
def test_row_9_answers_to_other_people_stay(service: Api, ada: UserProfile, bo: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    messages = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": ANSWER}]
    service.post("sessions/asked/messages", user_id="bo", messages=messages)
    assert service.post("retractions", order(preview=True)).json()["answers"] == []
    service.post("retractions", order())
    assert not Message.objects.filter(user=bo).exclude(retracted_at=None).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("answered")
def test_an_answer_that_the_request_excludes_is_not_retracted(service: Api, ada: UserProfile) -> None:
    left = {"leave": ["rem://sessions/asked/messages/3"]}
    found = service.post("retractions", order(preview=True, **left)).json()
    assert found["turns"] == 1 and [answer["ref"] for answer in found["answers"]] == left["leave"]
    made = service.post("retractions", order(**left)).json()
    assert made["withdrawn"] == found["withdrawn"]
    assert Message.objects.get(retracted_at__isnull=False).content == PLANTED


@pytest.mark.slow
@pytest.mark.usefixtures("answered")
def test_an_undo_restores_the_answers_too(service: Api, ada: UserProfile) -> None:
    before = set(MemoryAtom.objects.active().values_list("content", flat=True))
    made = service.post("retractions", order()).json()
    follows = Retraction.objects.exclude(retraction_id=made["retraction_id"]).get()
    refused = service.post(f"retractions/{follows.retraction_id}/undo", user_id="ada")
    assert refused.status_code == 400 and made["retraction_id"] in refused.content.decode()
    assert service.post(f"retractions/{made['retraction_id']}/undo", user_id="ada").status_code == 200
    assert retracted() == [] and not Retraction.objects.in_effect().exists()
    assert set(MemoryAtom.objects.active().values_list("content", flat=True)) == before


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["session", "turns"])
def test_an_undo_skips_a_deleted_answer(service: Api, ada: UserProfile, gone: str) -> None:
    said(service, "planted", PLANTED, "I see.", "I like tea.")
    said(service, "asked", "Hello there.", ANSWER)
    older = service.post("retractions", order(sequences=[2])).json()["retraction_id"]
    made = service.post("retractions", order()).json()["retraction_id"]
    asked = ada.sessions.get(session_id="asked")
    follows = asked.retractions.get()
    if gone == "session":
        asked.delete()
    else:
        asked.messages.turns().archive()
    for each in (made, older):
        undone = service.post(f"retractions/{each}/undo", user_id="ada")
        assert undone.status_code == 200, undone.content
    assert Retraction.objects.in_effect().get() == follows
    assert not ada.sessions.get(session_id="planted").messages.exclude(retracted_at=None).exists()
    refused = service.post(f"retractions/{follows.retraction_id}/undo", user_id="ada")
    assert refused.status_code == 400 and gone in refused.content.decode()


@pytest.mark.slow
@pytest.mark.usefixtures("answered")
def test_an_archived_answer_is_reported_and_stays(service: Api, ada: UserProfile) -> None:
    Message.objects.turns().filter(session__session_id="asked").archive()
    preview = service.post("retractions", order(preview=True)).json()
    assert [found["problem"] for found in preview["answers"]] == ["It is archived. Restore the session first."]


@with_both_engines
@pytest.mark.slow
def test_row_41_answers_that_repeat_a_directly_written_item_are_retracted_with_it(
    service: Api, ada: UserProfile
) -> None:
    said(service, "planted", "Good morning.", "Good morning.")
    stream = ada.streams.get(stream_type="user")
    item = note(stream, f"The account of the landlord is {NUMBER}.", "fact", written_by="key:abc")
    asked(service, "asked")
    body = {"user_id": "ada", "atom_ids": [str(item.atom_id)], "reason": "planted"}
    preview = service.post("retractions", body | {"preview": True}).json()
    assert [found["ref"] for found in preview["answers"]] == ["rem://sessions/asked/messages/3"]
    of_answer = Moment.objects.get(source_session__session_id="asked", last_sequence=3)
    assert (preview["moment_keys"], preview["withdrawn"]["moments"]) == ([of_answer.key], 1)
    service.post("retractions", body)
    work_off()
    assert_nowhere(service)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["turn", "item"])
def test_an_answer_that_is_already_retracted_is_not_listed(service: Api, ada: UserProfile, what: str) -> None:
    said(service, "planted", PLANTED if what == "turn" else "Good morning.", "I see.")
    item = note(ada.streams.get(stream_type="user"), PLANTED, "fact", written_by="key:abc")
    said(service, "asked", "Hello there.", ANSWER)
    said(service, "new", "Hello there.", ANSWER)
    asked = ada.sessions.get(session_id="asked")
    body = order() if what == "turn" else {"user_id": "ada", "atom_ids": [str(item.atom_id)], "reason": "planted"}
    answers: list[Any] = []
    other = Thread(
        target=on_its_own_connection, args=(lambda: answers.append(service.post("retractions", body).status_code),)
    )
    with transaction.atomic():
        retract(asked, [1], reason="wrong", requested_by="test", leave=["rem://sessions/new/messages/1"])
        other.start()
        wait_until_somebody_waits()
    other.join()
    assert answers == [201]
    believed = Message.objects.turns().unretracted()
    assert not believed.filter(content=ANSWER).exists() and asked.retractions.get().requested_by == "test"


def formed_of(session: Session) -> dict[str, Any]:
    """Return the fields of an item that was formed from all turns of a session."""
    turns = list(session.messages.turns().values_list("pk", flat=True))
    return {"source_session": session, "source_message_ids": turns}


@pytest.mark.slow
@pytest.mark.parametrize("undoes", [False, True], ids=["order", "undo"])
def test_a_retraction_that_waits_for_a_shard_has_not_locked_a_later_one(ada: UserProfile, undoes: bool) -> None:
    first, second = shard("bees", "default"), shard("wax", "default")
    sessions = [append(ada, "planted", [NewMessage("user", PLANTED)]).session]
    sessions.append(append(ada, "asked", [NewMessage("assistant", ANSWER)]).session)
    shards = (first, second) if undoes else (second, first)  # undoing changes the answer's shard first
    for stream, sources in zip(shards, map(formed_of, sessions), strict=True):
        fields = {"user": ada, "source_user": ada, "is_candidate": True, "atom_type": "fact", "content": PLANTED}
        release(stream.atoms.create(**fields, **sources), "Some pay a rent.", actor="operator:root")
    retracting = partial(retract, sessions[0], [0], reason="planted", requested_by="test")
    if undoes:
        retracting = partial(undo_retraction, retracting(), requested_by="test")
    other = Thread(target=on_its_own_connection, args=(retracting,))
    with transaction.atomic():
        lock_rows(MemoryStream.objects.filter(pk=first.pk))
        other.start()
        wait_until_somebody_waits()
        MemoryStream.objects.select_for_update(no_key=True, nowait=True).get(pk=second.pk)
    other.join()
    assert Retraction.objects.count() == 2
    assert Release.objects.in_effect().exists() == Retraction.objects.filter(undone_at__isnull=False).exists() == undoes


@pytest.mark.slow
@pytest.mark.usefixtures("answered")
def test_a_row_derived_from_two_sessions_counts_once(service: Api, ada: UserProfile) -> None:
    stream = ada.streams.get(stream_type="user")
    for session in ada.sessions.order_by("pk"):
        note(stream, f"Ada spoke of the rent in the session {session.session_id}.", **formed_of(session))
    fold(stream)
    found = preview(ada.sessions.get(session_id="planted"), [0])
    lines = [line.pk for part in found.dependents for line in part.lines]
    assert len(lines) > len(set(lines)) == found.withdrawn["lines"]
    assert consolidations(found.dependents) == 1 < sum(len(part.since) for part in found.dependents)


class TestAdmin:
    """The page lists the answers with checkboxes."""

    def url(self) -> str:
        session = UserProfile.objects.get(user_id="ada").sessions.get(session_id="planted")
        return reverse("admin:sessions_app_session_retract", args=[session.pk])

    @pytest.mark.slow
    @pytest.mark.usefixtures("answered")
    def test_row_41_answers_are_listed_and_preselected(self, service: Api, ada: UserProfile) -> None:
        root, ref = operator(), "rem://sessions/asked/messages/3"
        shown = root.get(self.url(), {"sequences": "0"}).content.decode()
        assert f'name="answer" value="{ref}" checked' in shown and "asked, turn 3" in shown
        assert "2 turns and everything derived from them" in shown
        done = root.post(self.url(), {"sequences": "0", "reason": "planted", "answer": [ref]}, follow=True)
        assert "2 turns are retracted" in done.content.decode()
        work_off()
        assert_nowhere(service)

    @pytest.mark.slow
    @pytest.mark.usefixtures("answered")
    def test_an_unticked_answer_is_not_retracted(self, service: Api, ada: UserProfile) -> None:
        root, form = operator(), {"sequences": "0", "shown_answer": "rem://sessions/asked/messages/3"}
        shown = root.post(self.url(), form | {"preview": "1"}).content.decode()
        assert "1 turn and everything derived from it" in shown and "Retract 1 turn<" in shown
        assert "checked" not in shown and "This field is required" not in shown and retracted() == []
        root.post(self.url(), form | {"reason": "planted"})
        assert Message.objects.get(retracted_at__isnull=False).content == PLANTED
