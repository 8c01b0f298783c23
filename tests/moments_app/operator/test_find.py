"""The page that searches everything."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import MemoryStream
from moments_app.models.stream import USER_DEFAULTS
from moments_app.operator.views.find import SHOWN
from sessions_app.models import Event, Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from sessions_app.transcript.search import MAX_SESSIONS
from tests.support.moments import remember
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, list_url, page, queries_of
from tests.support.streams import note

pytestmark = pytest.mark.django_db(transaction=True)

URL = reverse("admin:sessions_app_userprofile_find")


def said(user: UserProfile, text: str, session_id: str = "s1", role: str = "user") -> Session:
    append(user, session_id, [NewMessage(role, text)])
    return Session.objects.get(user=user, session_id=session_id)


def links(shown: str) -> list[str]:
    """Return the names of the sessions that a page links to, in its order."""
    return re.findall(r">([\w-]+ of \w+), turn \d", shown)


def flood(user: UserProfile, number: int = SHOWN) -> None:
    """Store sessions that have the word "harpsichord", and no other word in common."""
    for place in range(1, number + 1):
        said(user, f"Harpsichord {place}{place}.", f"s{place}")


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


def test_a_cut_text_has_ellipses_where_it_is_cut(root: Client, ada: UserProfile) -> None:
    said(ada, f"Opening. {'Much was said before. ' * 20}The harpsichord came from Lyon. {'And after. ' * 20}")
    assert re.search("<p>… [^…]*<mark>harpsichord</mark>[^…]*…</p>", page(root, URL, q="harpsichord"))
    assert re.search("<p>Opening. [^…]*…</p>", page(root, URL, q="s1"))


@pytest.mark.parametrize("name", ["caroline", "Caroline", "CAROL", "26 carol"])
def test_a_person_is_found_by_any_word_of_the_name_in_any_case(root: Client, name: str) -> None:
    wanted = UserProfile.objects.ensure("conv-26:Caroline_K")
    UserProfile.objects.ensure("conv-26-melanie")
    for shown in (page(root, URL, q=name), page(root, list_url(UserProfile), q=name)):
        assert change_url(wanted) in shown and "melanie" not in shown


class TestSimilarWords:
    """A person's sessions with similar words are one result: the source, with the others folded under it."""

    def test_sessions_with_similar_words_are_listed_under_the_source(self, root: Client, ada: UserProfile) -> None:
        source = said(ada, "Hello. My harpsichord came from Lyon. Do you play?")
        said(ada, "I lent the harpsichord to Bo.", "s2")
        echo = said(ada, "You told me that your harpsichord came from Lyon, in May.", "s3", "assistant")
        said(ada, "A harpsichord that came from Lyon needs tuning, like all from Lyon.", "s4")
        shown = page(root, URL, q="harpsichord")
        assert links(shown) == ["s1 of ada", "s4 of ada", "s3 of ada", "s2 of ada"]
        folded = shown[shown.index("<details") : shown.index("</details>")]
        assert "Similar words in 2 other sessions" in folded and links(folded) == ["s4 of ada", "s3 of ada"]
        assert f"{change_url(echo)}?at=0#turn-0" in folded and f"{change_url(source)}?at=0#turn-0" not in folded
        assert f"assistant, {timezone.now():%Y-%m-%d}" in folded

    def test_the_page_does_not_say_that_an_opposite_repeats_a_statement(self, root: Client, ada: UserProfile) -> None:
        said(ada, "I am allergic to nuts.")
        said(ada, "I am not allergic to nuts.", "s2")
        shown = page(root, URL, q="nuts")
        assert links(shown) == ["s1 of ada", "s2 of ada"]
        assert "Similar words in 1 other session<" in shown
        assert not re.search(r"\bagain\b|repeat|\bsame\b", shown[shown.index("<main") :])

    def test_statements_in_other_words_are_separate_results(self, root: Client, ada: UserProfile) -> None:
        said(ada, "Harpsichords from Lyon are fine ones.", "s1", "assistant")
        said(ada, "My harpsichord came from Lyon.", "s2")
        said(ada, "It was built in Lyon, your harpsichord.", "s3", "assistant")
        shown = page(root, URL, q="harpsichord")
        assert links(shown) == ["s3 of ada", "s2 of ada", "s1 of ada"] and "Similar words" not in shown

    def test_the_time_of_a_turn_counts_not_when_it_was_stored(self, root: Client, ada: UserProfile) -> None:
        said(ada, "My harpsichord came from Lyon.")
        earlier = NewMessage("user", "My harpsichord came from Lyon!", created_at=timezone.now() - timedelta(days=9))
        append(ada, "imported", [earlier])
        assert links(page(root, URL, q="harpsichord")) == ["imported of ada", "s1 of ada"]

    def test_turns_of_other_people_and_archived_turns_are_separate_results(
        self, root: Client, ada: UserProfile, bo: UserProfile
    ) -> None:
        for user in (ada, bo):
            said(user, "My harpsichord came from Lyon.")
        archived = said(ada, "My harpsichord came from Lyon.", "s2")
        archived.messages.update(kind="archived", content="")
        shown = page(root, URL, q="harpsichord")
        assert links(shown) == ["s2 of ada", "s1 of bo", "s1 of ada"] and "Similar words" not in shown

    def test_a_statement_of_the_query_alone_is_similar_only_to_itself(self, root: Client, ada: UserProfile) -> None:
        said(ada, "My harpsichord came from Lyon.")
        said(ada, "Harpsichords?", "s2")
        said(ada, "The harpsichord!", "s3")
        shown = page(root, URL, q="harpsichord")
        assert "Similar words in 1 other session<" in shown
        assert links(shown[shown.index("</details>") :]) == ["s1 of ada"]


class TestTheOrderOfSessions:
    """Sessions found by id or title come first, then the results with the most recent sessions."""

    def test_the_newest_sessions_of_all_people_come_before_a_persons_older_ones(
        self, root: Client, ada: UserProfile, bo: UserProfile
    ) -> None:
        said(bo, "My harpsichord is for sale.", "b0")
        flood(ada)
        said(bo, "My harpsichord needs strings.", "b1")
        said(ada, "My harpsichord came from Lyon.", "newest")
        shown = links(page(root, URL, q="harpsichord"))
        assert shown[:3] == ["newest of ada", "b1 of bo", f"s{SHOWN} of ada"] and len(shown) == SHOWN

    def test_a_result_with_a_new_session_comes_first_however_old_its_source_is(
        self, root: Client, ada: UserProfile
    ) -> None:
        said(ada, "My harpsichord came from Lyon.", "source")
        flood(ada)
        said(ada, "Your harpsichord came from Lyon.", "echo", "assistant")
        shown = links(page(root, URL, q="harpsichord"))
        assert shown[:3] == ["source of ada", "echo of ada", f"s{SHOWN} of ada"]

    def test_a_session_found_by_its_id_or_title_comes_first_and_is_not_folded(
        self, root: Client, ada: UserProfile
    ) -> None:
        said(ada, "My harpsichord came from Lyon.", "source")
        said(ada, "Your harpsichord came from Lyon.", "harpsichord-1", "assistant")
        said(ada, "Hello.", "harpsichord-2")
        titled = said(ada, "Hello.", "titled")
        Session.objects.filter(pk=titled.pk).update(title="The Harpsichord of Lyon")
        flood(ada)
        shown = page(root, URL, q="harpsichord")
        assert re.findall(r">([\w-]+) of ada[,<]", shown)[:3] == ["titled", "harpsichord-2", "harpsichord-1"]
        assert "<details" not in shown

    @pytest.mark.slow
    def test_an_id_is_found_however_many_newer_sessions_have_the_words(self, root: Client, ada: UserProfile) -> None:
        said(ada, "Hello.", "harpsichord-1")
        flood(ada, MAX_SESSIONS)
        assert ">harpsichord-1 of ada<" in page(root, URL, q="harpsichord")


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
