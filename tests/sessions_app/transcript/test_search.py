"""Finding sessions by their text."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from sessions_app.transcript.search import PEOPLE_PER_LOOKUP, find_sessions

pytestmark = pytest.mark.django_db(transaction=True)


def say(user: UserProfile, session_id: str, *texts: str) -> Session:
    return append(user, session_id, [NewMessage("user", text) for text in texts]).session


def test_a_session_is_found_if_one_turn_has_all_words_in_any_form(ada: UserProfile, bo: UserProfile) -> None:
    kiln = say(ada, "a", "Hello.", "The kiln has cracked again.", "A cracked kiln is no good.", "Bye.")
    other = say(bo, "b", "My kilns crack all the time.")
    say(bo, "c", "A kiln.", "It cracked.")
    found = find_sessions(Session.objects.all(), "cracks in the kiln")
    assert set(found) == {kiln.pk, other.pk}
    said = found[kiln.pk]
    assert said is not None
    assert (said.sequence, said.others) == (1, 1), "the user's turn, not the reply that repeats it"
    assert said.excerpt == "The kiln has cracked again."


def test_the_first_turn_of_the_person_precedes_those_of_others(ada: UserProfile) -> None:
    said = [("assistant", "Your kiln?"), ("user", "The kiln."), ("assistant", "A kiln."), ("user", "My kiln.")]
    session = append(ada, "a", [NewMessage(role, text) for role, text in said]).session
    found = find_sessions(Session.objects.all(), "kiln")[session.pk]
    assert found is not None
    assert (found.role, found.sequence, found.others, found.content) == ("user", 1, 3, "The kiln.")


def test_the_excerpt_of_a_long_turn_surrounds_the_words(ada: UserProfile) -> None:
    session = say(ada, "a", f"{'Much was said before. ' * 40}The harpsichord came from Lyon. {'And after. ' * 40}")
    said = find_sessions(Session.objects.all(), "harpsichord")[session.pk]
    assert said is not None
    assert "harpsichord came from Lyon" in said.excerpt and len(said.excerpt) < 300


def test_a_session_is_found_by_its_title(ada: UserProfile) -> None:
    session = say(ada, "a", "Hello.")
    Session.objects.update(title="The Kiln of Bologna")
    assert find_sessions(Session.objects.all(), "kiln of b") == {session.pk: None}


def test_only_the_given_sessions_are_searched(ada: UserProfile, bo: UserProfile) -> None:
    say(ada, "a", "The harpsichord.")
    mine = say(bo, "b", "The harpsichord.")
    assert list(find_sessions(Session.objects.for_user(bo), "harpsichord")) == [mine.pk]


@pytest.mark.slow
def test_sessions_of_more_people_than_the_first_query_covers_are_found(transactional_db: None) -> None:
    for number in range(PEOPLE_PER_LOOKUP + 3):
        say(UserProfile.objects.ensure(f"person-{number}"), "s", f"The harpsichord of {number}, from Lyon.")
    assert len(find_sessions(Session.objects.all(), "harpsichords Lyon")) == PEOPLE_PER_LOOKUP + 3


@pytest.mark.parametrize("text", ["the of and", "'", "\\ ' :*", "%", "x" * 5_000])
def test_a_query_without_words_finds_nothing(ada: UserProfile, text: str) -> None:
    say(ada, "a", "The kiln is of no use, and cold.")
    assert find_sessions(Session.objects.all(), text) == {}


def test_retracted_turns_are_found(ada: UserProfile) -> None:
    session = say(ada, "a", "Planted nonsense.")
    session.messages.update(retracted_at=timezone.now())
    assert list(find_sessions(Session.objects.all(), "nonsense")) == [session.pk]


def test_a_search_takes_two_queries_for_any_number_of_sessions(ada: UserProfile) -> None:
    for number in range(30):
        say(ada, f"s{number}", "The kiln.")
    with CaptureQueriesContext(connection) as captured:
        assert len(find_sessions(Session.objects.all(), "kiln")) == 30
    assert len(captured) == 2
