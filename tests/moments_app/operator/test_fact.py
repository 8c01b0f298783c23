"""The operator's pages of facts in time: as of a day, corrections of everything that says the same, and searches."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import Contradiction, Correction, MemoryAtom, MemoryStream
from moments_app.provenance.correct import correct
from moments_app.provenance.correct import replacement_request as correcting_to
from moments_app.streams.edit import evict
from sessions_app.models import ApiKey, UserProfile
from tests.support.lives import BERGEN, CHILD, DATES, MAYA, OSLO, say, told_a_life
from tests.support.pages import MAX_QUERIES, change_url, page, queries_of
from tests.support.streams import note, written

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

RIGHT = {"do": "corrected", "content": "User's daughter is called Mia."}


def person_facts(person: UserProfile) -> str:
    return reverse("admin:sessions_app_userprofile_facts", args=[person.pk])


def replacement_request(content: str) -> str:
    return reverse("admin:moments_app_memoryatom_correct", args=[MemoryAtom.objects.get(content=content).pk])


def escaped(text: str) -> str:
    return text.replace("'", "&#x27;")


@pytest.mark.slow
def test_a_persons_page_links_to_facts_as_of_a_day(root: Client, ada: UserProfile) -> None:
    told_a_life(ada)
    assert person_facts(ada) in page(root, change_url(ada))
    everything = {text for texts in DATES.values() for text in texts}
    shown = page(root, f"{person_facts(ada)}?as_of=2025-06-01")
    assert {text for text in everything if escaped(text) in shown} == set(DATES["2025-06-01"])
    now = page(root, person_facts(ada))
    assert "until 2025-03-03" in now and escaped(BERGEN) in now and escaped(MAYA) not in now
    assert "Enter a valid date" in page(root, f"{person_facts(ada)}?as_of=soon")
    assert queries_of(root, person_facts(ada)) <= MAX_QUERIES


@pytest.mark.slow
def test_a_correction_is_previewed_confirmed_and_undone(root: Client, ada: UserProfile) -> None:
    say(ada, "s1", *CHILD[0])
    written(ada, summary=f"{MAYA} They like tea.")
    url = replacement_request(MAYA)
    assert url in page(root, change_url(MemoryAtom.objects.get(content=MAYA)))
    shown = page(root, f"{url}?do=corrected&content=User%27s+daughter+is+called+Mia.")
    assert "<del> Maya.</del><ins> Mia.</ins>" in shown and "Turns (marked, but not changed)" in shown
    assert not Correction.objects.exists()
    answer = root.post(url, RIGHT)
    made = Correction.objects.get()
    assert answer.status_code == 302 and answer["Location"] == change_url(made)
    ada.refresh_from_db()
    assert ada.summary.startswith(f"{MAYA.replace('Maya', 'Mia')} They like tea.\n") and "Maya" not in ada.summary
    assert "<del> Maya.</del><ins> Mia.</ins>" in page(root, change_url(made))
    root.post(reverse("admin:moments_app_correction_undo", args=[made.pk]))
    ada.refresh_from_db()
    assert ada.summary.startswith(f"{MAYA} They like tea.\n") and "Mia" not in ada.summary


def test_the_history_of_a_fact_links_to_the_correction_that_changed_it(root: Client, ada: UserProfile) -> None:
    say(ada, "s1", *CHILD[0])
    fact = MemoryAtom.objects.get()
    made = correct(fact, correcting_to(RIGHT["content"]), requested_by="operator:eve")
    shown = page(root, change_url(fact))
    assert change_url(made) in shown and made.reason not in shown


def test_the_list_of_corrections_names_the_requesting_key(root: Client, ada: UserProfile) -> None:
    say(ada, "s1", *CHILD[0])
    key, _ = ApiKey.objects.issue("the shop", scope="write")
    correct(MemoryAtom.objects.get(), correcting_to(RIGHT["content"]), requested_by=f"key:{key.prefix}")
    assert "the shop" in page(root, reverse("admin:moments_app_correction_changelist"))


def test_the_title_of_a_correction_of_a_long_fact_ends_with_an_ellipsis(root: Client, ada: UserProfile) -> None:
    fact = note(MemoryStream.objects.ensure_of_person(ada, "default"), f"Kilns {'are hot, ' * 20}all say.", "fact")
    made = correct(fact, correcting_to("Kilns are warm."), requested_by="operator:eve")
    assert re.search("corrected: Kilns [^<]{70,}…", page(root, change_url(made)))


def test_unticked_texts_stay(root: Client, ada: UserProfile) -> None:
    say(ada, "s1", *CHILD[0])
    written(ada, summary=f"{MAYA} They like tea.")
    own = MemoryAtom.objects.of_profile().get()
    root.post(replacement_request(MAYA), RIGHT | {"ref": [own.uri], "with": []})
    ada.refresh_from_db()
    assert ada.summary.startswith(own.content)
    assert MemoryAtom.objects.active().get(attribute="daughter").value == "Mia"


@pytest.mark.parametrize(
    "given", [{"do": "corrected", "content": ""}, {"do": "destroyed"}, {"do": "ended", "valid_until": "x"}]
)
def test_an_invalid_order_changes_nothing(root: Client, ada: UserProfile, given: dict[str, str]) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    assert root.post(replacement_request(OSLO), given).status_code == 200
    assert not Correction.objects.exists()


@pytest.mark.slow
def test_a_rejected_correction_is_explained_in_the_words_of_the_page(root: Client, ada: UserProfile) -> None:
    say(ada, "s1", *CHILD[0])
    url, fact = replacement_request(MAYA), MemoryAtom.objects.get(content=MAYA)
    note(fact.stream, RIGHT["content"], "fact")
    shown = root.post(url, RIGHT, follow=True).content.decode()
    assert "Another fact already says this. Remove this fact instead." in shown and "content: " not in shown
    evict(fact, requested_by="operator:eve")
    shown = root.post(url, RIGHT, follow=True).content.decode()
    assert escaped("The fact was already corrected or removed, so it can't be corrected.") in shown


@pytest.mark.slow
def test_a_contradiction_is_answered_and_the_answer_undone(root: Client, ada: UserProfile) -> None:
    say(ada, "s1", *CHILD[0])
    say(ada, "s2", "2025-02-05", "My daughter is called Mia.")
    question = Contradiction.objects.get()
    assert escaped(MAYA) in page(root, change_url(question))
    for verb, state in (("accept", "ended"), ("take_back", "active"), ("decline", "active")):
        root.post(reverse(f"admin:moments_app_contradiction_{verb}", args=[question.pk]))
        assert MemoryAtom.objects.get(content=MAYA).state == state
    again = root.post(reverse("admin:moments_app_contradiction_accept", args=[question.pk]), follow=True)
    assert "This question was already answered." in again.content.decode()
