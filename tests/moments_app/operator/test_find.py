"""The page that searches everything."""

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import MemoryStream
from moments_app.models.stream import USER_DEFAULTS
from sessions_app.models import Event, Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.moments import remember
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, list_url, page, queries_of
from tests.support.streams import note

pytestmark = pytest.mark.django_db(transaction=True)

URL = reverse("admin:sessions_app_userprofile_find")


def said(user: UserProfile, text: str, session_id: str = "s1") -> Session:
    append(user, session_id, [NewMessage("user", text)])
    return Session.objects.get(session_id=session_id)


def test_people_turns_moments_and_facts_are_found_with_marked_words(root: Client, ada: UserProfile) -> None:
    session = said(ada, "My harpsichords came from Lyon.")
    UserProfile.objects.update(summary="Ada plays the harpsichord.")
    [moment] = remember(ada, 1)
    moment.summary = "The harpsichord was tuned."
    moment.save()
    stream = MemoryStream.objects.create(stream_type="user", agent_id="default", user=ada, **vars(USER_DEFAULTS))
    fact = note(stream, "Owns a harpsichord.", "fact")
    shown = page(root, URL, q="harpsichord")
    assert "My <mark>harpsichords</mark> came from Lyon." in shown
    assert f"{change_url(session)}?at=0#turn-0" in shown
    for text in ("Ada plays the", "The", "Owns a"):
        assert f"{text} <mark>harpsichord</mark>" in shown
    assert all(change_url(row) in shown for row in (ada, moment, fact))


@pytest.mark.parametrize("name", ["caroline", "Caroline", "CAROL", "26 carol"])
def test_a_person_is_found_by_any_word_of_the_name_in_any_case(root: Client, name: str) -> None:
    wanted = UserProfile.objects.ensure("conv-26:Caroline_K")
    UserProfile.objects.ensure("conv-26-melanie")
    for shown in (page(root, URL, q=name), page(root, list_url(UserProfile), q=name)):
        assert change_url(wanted) in shown and "melanie" not in shown


def test_an_operator_finds_only_permitted_kinds_and_the_search_is_recorded(ada: UserProfile) -> None:
    said(ada, "The harpsichord.")
    UserProfile.objects.update(summary="Has a harpsichord.")
    shown = page(operator("view_userprofile"), URL, q="harpsichord")
    assert "Has a <mark>" in shown and "Sessions</h2>" not in shown
    [read] = Event.objects.filter(type="user_read")
    assert read.user_pk == ada.pk


def test_results_and_query_are_escaped(root: Client, ada: UserProfile) -> None:
    said(ada, f"A harpsichord {PLANTED}")
    shown = page(root, URL, q=f"harpsichord {PLANTED}")
    assert "harpsichord" in shown and PLANTED not in shown


@pytest.mark.slow
def test_a_search_takes_a_constant_number_of_queries(root: Client, ada: UserProfile) -> None:
    said(ada, "A kiln.")
    few = queries_of(root, f"{URL}?q=kiln")
    for number in range(12):
        said(ada, "A kiln.", f"more{number}")
    assert few == queries_of(root, f"{URL}?q=kiln") <= MAX_QUERIES
    assert f"{list_url(Session)}?q=kiln" in page(root, URL, q="kiln")


@pytest.mark.parametrize("asked", ["", "   ", "\0", "'", "- - -", "the", "x" * 5_000])
def test_any_query_gets_an_answer(root: Client, ada: UserProfile, asked: str) -> None:
    page(root, URL, q=asked)
