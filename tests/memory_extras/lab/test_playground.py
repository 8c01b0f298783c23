"""The playground: a test person chats through the chat endpoint, and the page shows memory next to the chat."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import ContextReceipt, Job
from sessions_app.models import Event, Message, UserProfile
from tests.support import openai_server as behave
from tests.support.jobs import build
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, page, queries_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept_receipts")]

PLAYGROUND = reverse("admin:sessions_app_userprofile_playground")


@pytest.fixture
def tess(transactional_db: None) -> UserProfile:
    return UserProfile.objects.create(user_id="tess", is_test=True)


def url(name: str, person: UserProfile) -> str:
    return reverse(f"admin:sessions_app_userprofile_{name}", args=[person.pk])


def say(client: Client, person: UserProfile, text: str, session: str = "") -> Any:
    data = {"text": text, "model": "test-model", "session": session}
    return client.post(url("chat", person), data, follow=True)


def said(person: UserProfile) -> list[tuple[str, str]]:
    turns = Message.objects.turns().filter(user=person).order_by("session", "sequence")
    return list(turns.values_list("role", "content"))


@pytest.mark.slow
def test_messages_of_a_test_person_use_the_endpoint_and_answers_show_their_memory(
    root: Client, upstream: OpenAIServer
) -> None:
    answer = root.post(PLAYGROUND, {"name": "tess"}, follow=True)
    person = UserProfile.objects.get()
    assert (person.user_id, person.is_test) == ("tess", True) and "test person" in answer.content.decode()
    shown = say(root, person, "I keep bees.").content.decode()
    assert said(person) == [("user", "I keep bees."), ("assistant", "Noted.")]
    session = person.sessions.get()
    say(root, person, "How are my bees?", session.session_id)
    shown = page(root, url("chat", person))
    assert 'data-lights="0"' in shown and 'href="#turn-0"' in shown  # a line with the turn
    assert f'title="rem://sessions/{session.session_id}/messages/0">turn 0 of {session.session_id}</a>' in shown
    assert ContextReceipt.objects.filter(session=session).count() == 2
    asked = upstream.requests[-1]["messages"]
    assert "I keep bees." in str(asked) and asked[-1]["content"] == "How are my bees?"
    build(session)
    say(root, person, "What of the bees?")  # starts a new session
    shown = page(root, url("chat", person))
    assert f"turn 0 of {session.session_id}" in shown
    assert queries_of(root, url("chat", person)) <= MAX_QUERIES


@pytest.mark.slow
def test_a_failed_answer_shows_the_reason_and_keeps_the_message(
    root: Client, tess: UserProfile, upstream: OpenAIServer
) -> None:
    upstream.always(behave.error(500, detail="a secret of the upstream"))
    shown = say(root, tess, "Hello?").content.decode()
    assert "No answer: status 500." in shown and "a secret" not in shown
    assert said(tess) == [("user", "Hello?")]


@pytest.mark.slow
def test_the_page_reports_a_missing_upstream(root: Client, tess: UserProfile) -> None:
    assert "No chat model is configured" in page(root, PLAYGROUND)
    shown = page(root, url("chat", tess))
    assert "No chat model is configured" in shown and "Send" not in shown
    assert "status 503" in say(root, tess, "Hello?").content.decode()


def test_row_18_an_operator_cannot_chat_as_a_real_person(
    root: Client, ada: UserProfile, upstream: OpenAIServer
) -> None:
    assert "is a real person of the application" in root.post(PLAYGROUND, {"name": "ada"}).content.decode()
    posted = {"text": "x", "model": "x"}
    assert {root.post(url(name, ada), posted).status_code for name in ("chat", "remember", "forget")} == {404}
    assert said(ada) == [] and UserProfile.objects.filter(pk=ada.pk).exists()


def test_row_18_a_viewer_cannot_chat_or_erase(tess: UserProfile, upstream: OpenAIServer) -> None:
    viewer = operator(group="viewers")
    assert viewer.get(PLAYGROUND).status_code == 403
    assert {viewer.post(url(name, tess)).status_code for name in ("chat", "remember", "forget")} == {403}


@pytest.mark.slow
def test_an_editor_can_process_everything_or_erase_the_test_person_in_one_click(
    tess: UserProfile, upstream: OpenAIServer
) -> None:
    editor = operator(group="editors")
    say(editor, tess, "I keep bees.")
    editor.post(url("remember", tess))
    assert set(Job.objects.filter(user=tess, force=True).values_list("process", flat=True)) == {
        "build_moments",
        "form_memories",
    }
    assert "and all their messages" in editor.post(url("forget", tess), follow=True).content.decode()
    assert not UserProfile.objects.exists() and not Message.objects.exists()
    assert Event.objects.filter(type="user_erased", actor="operator:editors").exists()
