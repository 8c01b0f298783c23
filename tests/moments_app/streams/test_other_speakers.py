"""Other people who speak in a user's session: their statements about themselves are about them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from moments_app.models import KnownPerson, MemoryAtom
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.streams import form

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

MARCH = datetime(2026, 3, 4, 8, tzinfo=UTC)
TALK = [
    ("user", "Nora", "I live in Oslo and I love kilns."),
    ("user", "Bo", "I live in Turin. I'm allergic to hazelnuts."),
    ("assistant", "", "I see."),
    ("user", "Nora", "My sister Anna is a nurse."),
]


def talk(user: UserProfile, said: list[tuple[str, str, str]], session_id: str = "s1") -> None:
    messages = [NewMessage(role, text, name=name, created_at=MARCH) for role, name, text in said]
    form(append(user, session_id, messages).session)


def summary(service: Api, path: str) -> str:
    return str(service.get(f"users/{path}").json()["summary"])


def keys(service: Api, user_id: str = "ada") -> set[str]:
    return {one["key"] for one in service.get(f"users/{user_id}/people").json()["people"]}


def test_row_9_statements_of_another_speaker_are_about_them_and_only_in_the_users_memory(
    service: Api, ada: UserProfile, bo: UserProfile
) -> None:
    talk(ada, TALK)
    own = summary(service, "ada")
    assert "Oslo" in own and "Anna" in own and "Turin" not in own and "hazelnuts" not in own
    assert keys(service) == {"bo", "anna"}
    assert "Turin" in summary(service, "ada/people/bo") and "hazelnuts" in summary(service, "ada/people/bo")
    assert "Oslo" not in summary(service, "ada/people/bo")
    about = MemoryAtom.objects.filter(about__key="bo")
    assert {*about.values_list("about_kind", "speaker", "user__user_id")} == {("person", "Bo", "ada")}
    assert keys(service, "bo") == set() and summary(service, "bo") == ""


@pytest.mark.parametrize("user_id", ["Bo", "bo"])
def test_another_speaker_who_is_a_user_of_the_application_is_related(ada: UserProfile, user_id: str) -> None:
    UserProfile.objects.ensure(user_id)
    talk(ada, TALK)
    related = dict(MemoryAtom.objects.values_list("content", "related_users"))
    assert related["Bo: I live in Turin."] == [user_id]
    assert related["Nora: I live in Oslo and I love kilns."] == []


def test_a_speaker_who_only_has_the_name_of_a_user_is_not_related(service: Api, ada: UserProfile) -> None:
    UserProfile.objects.ensure("Anna")
    talk(ada, [("user", "Nora", "My sister Anna is a nurse. My boss Anna is strict.")])
    talk(ada, [TALK[0], ("user", "Anna", "I live in Turin.")], "s2")
    assert keys(service) == {"anna", "anna-2", "anna-3"}
    assert list(MemoryAtom.objects.filter(about__key="anna-3").values_list("related_users", flat=True)) == [[]]


@pytest.mark.parametrize(
    ("user_id", "known_as"), [("Nora", ""), ("nora", ""), ("u1", "My name is Nora.")], ids=["same", "case", "told"]
)
def test_the_user_is_recognized_by_name_if_another_speaks_first(service: Api, user_id: str, known_as: str) -> None:
    user = UserProfile.objects.ensure(user_id)
    if known_as:
        talk(user, [("user", "", known_as)], "s0")
    talk(user, [TALK[1], TALK[0]])
    assert "Oslo" in summary(service, user_id) and "Turin" not in summary(service, user_id)
    assert keys(service, user_id) == {"bo"}


def test_a_speaker_without_a_name_and_the_only_named_speaker_are_the_user(service: Api, ada: UserProfile) -> None:
    talk(ada, [("user", "", "I live in Oslo."), ("user", "Nora", "I love kilns.")])
    assert "Oslo" in summary(service, "ada") and "kilns" in summary(service, "ada")
    assert not KnownPerson.objects.exists()


def test_the_first_speaker_is_the_user_in_later_appends_too(service: Api, ada: UserProfile) -> None:
    talk(ada, TALK[:1])
    talk(ada, TALK[1:2])
    assert "Turin" not in summary(service, "ada") and keys(service) == {"bo"}


@pytest.mark.parametrize(
    "said",
    [
        [("user", "Nora", "I live in Oslo."), ("assistant", "Bo", "I live in Turin and I love boats.")],
        [("user", "", "Nora: I live in Oslo."), ("assistant", "", "Bo: I live in Turin and I love boats.")],
    ],
    ids=["named", "in the text"],
)
def test_another_person_can_have_the_role_of_the_assistant(service: Api, ada: UserProfile, said: Any) -> None:
    talk(ada, said)
    assert "Turin" in summary(service, "ada/people/bo") and "Turin" not in summary(service, "ada")


def test_an_assistant_is_not_a_person(service: Api, ada: UserProfile) -> None:
    talk(ada, [("user", "", "I live in Oslo."), ("assistant", "default", "I live in the cloud and I love kilns.")])
    talk(ada, [("user", "", "I love boats."), ("assistant", "", "I live in the cloud and I love boats.")], "s2")
    assert not KnownPerson.objects.exists()


def test_general_statements_of_another_speaker_are_about_nobody(ada: UserProfile) -> None:
    talk(ada, [TALK[0], ("user", "Bo", "The kiln at the harbor burns at 1200 degrees every Friday.")])
    assert set(MemoryAtom.objects.filter(speaker="Bo").values_list("about", flat=True)) <= {None}


def test_an_introduced_speaker_is_the_same_person(service: Api, ada: UserProfile) -> None:
    talk(ada, [*TALK, ("user", "Nora", "My husband Bo is a cook.")])
    bo = service.get("users/ada/people/bo").json()
    assert (bo["relationship"], "cook" in bo["summary"], "Turin" in bo["summary"]) == ("husband", True, True)
