"""After a retraction, a page searches the person's memory again and shows what still contains the retracted text."""

import html
import re

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.context import receipts
from moments_app.models import ContextReceipt, MemoryStream, Retraction
from moments_app.provenance.retract_items import ItemSelection, retract_items
from sessions_app.models import Session, UserProfile
from tests.support.api import Api
from tests.support.extras import needs
from tests.support.operator import operator
from tests.support.planted_number import ANSWER, NUMBER, PLANTED, QUESTION, said
from tests.support.streams import fold, note

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "kept_receipts")]


def retract(root: Client, sequences: str = "0", *, leave: bool = False) -> str:
    """Retract turns as an operator does, and return the page that follows."""
    session = UserProfile.objects.get(user_id="ada").sessions.get(session_id="planted")
    url = reverse("admin:sessions_app_session_retract", args=[session.pk])
    selected = re.findall(r'name="answer" value="([^"]+)"', root.get(url, {"sequences": sequences}).content.decode())
    form_data = {"sequences": sequences, "reason": "planted", "shown_answer": selected}
    form_data["answer"] = [] if leave else selected
    return root.post(url, form_data, follow=True).content.decode()


def questions(page: str) -> dict[str, str]:
    """Return the questions that were searched, each with its source."""
    return dict(re.findall(r'<li>([^<]*) <span class="rem-meta">(.*?)</span></li>', page))


def lines(page: str) -> list[str]:
    return re.findall(r'<span class="rem-content">(.*?)</span>', page)


@pytest.mark.slow
def test_row_41_the_page_confirms_that_the_text_is_no_longer_repeated(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, f"I noted {NUMBER}.", "Thank you.", "You are welcome.")
    assert "No longer repeated" in retract(operator())


@pytest.mark.slow
def test_a_question_whose_context_contained_the_text_is_asked_again(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    said(service, "asked", "Hello there.", "Hello.")
    found = service.get("memory/context", user_id="ada", session_id="asked", query=QUESTION).json()
    receipts.waiting.flush()
    kept = ContextReceipt.objects.count()
    said(service, "asked", QUESTION, ANSWER, context_id=found["context_id"])
    page = retract(operator())
    assert "No longer repeated" in page and questions(page)[QUESTION] == "Contexts that contained it"
    receipts.waiting.flush()
    assert ContextReceipt.objects.count() == kept


@needs("lab")
@pytest.mark.slow
def test_the_persons_probes_are_asked_again_however_many_turns_are_retracted(service: Api, ada: UserProfile) -> None:
    from memory_extras.lab.models import Probe

    texts = [f"My landlord number {n} has the account {NUMBER}{n}." for n in range(15)]
    said(service, "planted", *(text for each in texts for text in (each, "I see.")))
    Probe.objects.create(user=ada, question=QUESTION, expected=NUMBER, created_by="test")
    asked = questions(retract(operator(), ",".join(str(2 * n) for n in range(15))))
    assert asked[QUESTION] == "Probes" and texts[0] in asked


@pytest.mark.slow
def test_a_question_is_asked_again_in_the_session_in_which_it_was_asked(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    said(service, "asked", "Hello there.", "Hello.")
    found = service.get("memory/context", user_id="ada", session_id="asked", query=QUESTION).json()
    receipts.waiting.flush()
    said(service, "asked", QUESTION, ANSWER, context_id=found["context_id"])
    page = retract(operator(), leave=True)
    assert "Still repeated" in page and ANSWER in lines(page)


@pytest.mark.slow
def test_a_context_that_had_the_text_in_a_profile_is_found(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    said(service, "asked", "Hello there.", "Hello.")
    context = {"user_id": "ada", "session_id": "asked", "query": QUESTION}
    UserProfile.objects.filter(pk=ada.pk).update(summary=PLANTED)
    kept = service.get("memory/context", **context, layers="user").json()
    assert NUMBER in kept["context"]
    service.get("memory/context", **context | {"query": "Who am I?"}, layers="user,hot_turns")
    receipts.waiting.flush()
    assert QUESTION in questions(retract(operator()))


def test_memory_without_a_session_is_asked_in_a_new_one(ada: UserProfile) -> None:
    stream = MemoryStream.objects.create(user=ada, stream_type="user", extraction_prompt="x")
    first, again = (
        note(stream, f"{who} landlord's account is {NUMBER}.", written_by="key:abc") for who in ("My", "The")
    )
    made = retract_items(ada, ItemSelection([first.atom_id]), reason="planted", requested_by="test")
    page = operator().get(reverse("admin:moments_app_retraction_check", args=[made.pk])).content.decode()
    assert "Still repeated" in page and any(again.content in html.unescape(line) for line in lines(page))


@pytest.mark.slow
def test_a_remaining_answer_is_shown_with_its_turn(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, f"I noted {NUMBER}.", "Thank you.", "You are welcome.")
    page = retract(operator(), leave=True)
    assert "Still repeated" in page and f"I noted {NUMBER}." in lines(page)
    assert "1 turn is retracted." in page and ">Open the source</a>" in page
    session = UserProfile.objects.get(user_id="ada").sessions.get(session_id="planted")
    assert reverse("admin:sessions_app_session_change", args=[session.pk]) + "?at=1" in page


@pytest.mark.slow
def test_other_turns_in_which_the_person_said_it_are_shown(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    said(service, "again", f"My landlord has the account {NUMBER}.", "I see.")
    assert any(NUMBER in line for line in lines(retract(operator())))


@pytest.mark.slow
def test_row_9_messages_of_others_are_not_shown(service: Api, ada: UserProfile, bo: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    said(service, "theirs", PLANTED, "I see.", user_id="bo")
    assert "No longer repeated" in retract(operator())


@pytest.mark.slow
def test_other_sentences_with_the_same_words_are_not_shown(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    said(
        service, "other", "My landlord raised the rent of the flat.", "I see.", "I have an account at the bank.", "Ok."
    )
    assert "No longer repeated" in retract(operator())


@pytest.mark.slow
def test_the_check_requires_permission_to_preview_contexts(service: Api, ada: UserProfile) -> None:
    said(service, "planted", PLANTED, "I see.")
    root = operator()
    retract(root)
    check = reverse("admin:moments_app_retraction_check", args=[Retraction.objects.get().pk])
    assert operator("view_").get(check).status_code == 403
    undo = reverse("admin:moments_app_retraction_undo", args=[Retraction.objects.get().pk])
    assert root.get(check).status_code == 200
    root.post(undo)
    assert root.get(check).status_code == 404


def test_an_item_that_shared_a_text_with_the_retracted_one_is_not_shown(ada: UserProfile) -> None:
    stream = MemoryStream.objects.create(user=ada, stream_type="user", extraction_prompt="x")
    kept = "Ada plants a hedge of hazel behind the old barn."
    atom = note(stream, f"The account of the landlord is {NUMBER}.", written_by="key:abc")
    note(stream, kept, written_by="key:other")
    fold(stream)
    made = retract_items(ada, ItemSelection([atom.atom_id]), reason="planted", requested_by="test")
    fold(stream)
    Session.objects.create(user=ada, session_id="s1")
    check = reverse("admin:moments_app_retraction_check", args=[made.pk])
    page = operator().get(check).content.decode()
    assert "No longer repeated" in page and kept not in page
