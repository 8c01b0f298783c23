"""The pages where an operator decides what others see of one person's messages."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import Cause, MemoryAtom, Release
from moments_app.operator.admin.release import learned_from
from moments_app.streams.release import MAX_PEOPLE, release
from sessions_app.models import UserProfile
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, list_url, page, queries_of
from tests.support.streams import candidate, shard
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:moments_app_release_{name}", args=args)


@pytest.fixture
def learned(ada: UserProfile) -> MemoryAtom:
    return candidate(ada, shard("lessons", "default"), "Say the unit with each number.")


def test_the_sidebar_opens_waiting_candidates_if_there_are_any(root: Client, learned: MemoryAtom) -> None:
    assert f'href="{url("waiting")}"' in page(root, "/admin/")
    assert root.post(url("keep", learned.pk)).status_code == 302
    shown = page(root, "/admin/")
    assert f'href="{url("waiting")}"' not in shown and f'href="{list_url(Release)}"' in shown


@pytest.mark.slow
def test_an_operator_releases_extends_rewords_and_revokes(root: Client, learned: MemoryAtom, bo: UserProfile) -> None:
    talk(bo, 2)
    assert ">1</" in page(root, list_url(Release)).replace("\n", "").replace(" ", "")  # the number in the sidebar
    own = url("candidate", learned.pk)
    assert own in page(root, url("waiting")) and own in page(root, change_url(learned))
    shown = page(root, own)
    for text in ("Say the unit with each number.", "ada", "agent default: 2 people so far", "Listen."):
        assert text in shown
    refused = root.post(own, {"wording": "say the unit with each number"}).content.decode()
    assert "word for word" in refused and not Release.objects.exists()
    done = root.post(own, {"wording": "Numbers need units.", "note": "fine"}, follow=True).content.decode()
    assert "Released to the users of agent default" in done and "No pending decisions." in done
    made = Release.objects.get()
    assert (made.actor, made.note, made.wording) == ("operator:root", "fine", "Numbers need units.")
    shown = page(root, change_url(made))
    assert "active" in shown and change_url(learned) in shown
    root.post(url("extend", made.pk))
    wider = Release.objects.get(narrower=made)
    assert "every agent: 2 people so far" in page(root, change_url(wider))
    reworded = root.post(url("reword", made.pk), {"wording": "Give units."}, follow=True).content.decode()
    assert "Released with the new wording" in reworded and change_url(made) in reworded
    assert [one.wording for one in Release.objects.in_effect()] == ["Give units."]
    latest = Release.objects.in_effect().get()
    assert "Revoked. Other people" in root.post(url("revoke", latest.pk), follow=True).content.decode()
    assert "already revoked" in root.post(url("revoke", latest.pk), follow=True).content.decode()
    assert not MemoryAtom.objects.active().filter(user=None).exists()


def of_age(person: UserProfile, days: int) -> None:
    """Set the age of a person's account."""
    UserProfile.objects.filter(pk=person.pk).update(created_at=timezone.now() - timedelta(days=days, hours=1))


@pytest.mark.slow
def test_the_page_shows_how_many_people_said_it_and_the_ages_of_their_accounts(
    root: Client, learned: MemoryAtom, ada: UserProfile
) -> None:
    own = url("candidate", learned.pk)
    of_age(ada, 1)
    assert "Learned from 1 person; their account is 1 day old." in page(root, own)
    first = queries_of(root, own)
    for name, days in (("bo", 400), ("cy", 5), ("tess", 900)):
        person = UserProfile.objects.ensure(name)
        candidate(person, learned.stream, "say the unit with each number")
        of_age(person, days)
    candidate(UserProfile.objects.ensure("dee"), learned.stream, "Say units with each number.")  # worded differently
    UserProfile.objects.filter(user_id="tess").update(is_test=True)
    shown = page(root, own)
    assert "Learned from 3 people; their accounts are 1, 5 and 400 days old." in shown
    assert all(f">{name}</a>" in shown for name in ("bo", "cy", "tess")) and ">dee</a>" not in shown
    assert queries_of(root, own) == first
    root.post(own, {"wording": "Numbers need units."})
    assert Release.objects.get().sources.count() == 4
    assert [atom.user.user_id for atom in MemoryAtom.objects.to_review() if atom.user] == ["dee"]


def test_a_test_person_is_not_counted(root: Client, learned: MemoryAtom, ada: UserProfile) -> None:
    UserProfile.objects.update(is_test=True)
    assert "Learned from a test person only." in page(root, url("candidate", learned.pk))


def test_ages_of_the_youngest_accounts_are_shown() -> None:
    assert learned_from(range(12)) == (
        "Learned from 12 people; the 10 youngest accounts are 0, 1, 2, 3, 4, 5, 6, 7, 8 and 9 days old."
    )
    assert learned_from([0] * (MAX_PEOPLE + 1)).startswith(
        "Learned from more than 100 people; the 10 youngest accounts are 0,"
    )


def test_evicting_the_source_of_a_release_asks_for_confirmation(root: Client, learned: MemoryAtom) -> None:
    assert "Remove this item" not in page(root, change_url(learned))
    release(learned, "Numbers need units.", actor="operator:eve")
    shown = page(root, change_url(learned))
    assert "1 released item is based on it." in shown and "Remove this item" in shown
    root.post(reverse("admin:moments_app_memoryatom_evict", args=[learned.pk]))
    learned.refresh_from_db()
    assert learned.state == "evicted" and Release.objects.in_effect().exists()


def test_an_item_kept_private_no_longer_waits(root: Client, learned: MemoryAtom) -> None:
    answer = root.post(url("keep", learned.pk), follow=True).content.decode()
    assert "Not released. Only the person from whom the item was learned can see it." in answer
    assert "No pending decisions." in page(root, url("waiting"))
    assert "decided" in page(root, url("candidate", learned.pk))
    with transaction.atomic():
        MemoryAtom.objects.filter(pk=learned.pk).evict(Cause("test"))
    assert root.post(url("keep", learned.pk)).status_code == 404


def test_several_releases_are_revoked_from_the_list(root: Client, learned: MemoryAtom) -> None:
    release(learned, "Numbers need units.", actor="operator:eve")
    chosen = list(Release.objects.values_list("pk", flat=True))
    selected = {"action": "revoke_selected", "_selected_action": chosen}
    assert "To share them again" in root.post(list_url(Release), selected).content.decode()
    assert Release.objects.in_effect().exists()
    root.post(list_url(Release), selected | {"sure": "1"})
    assert not Release.objects.in_effect().exists()


@pytest.mark.slow
def test_row_18_a_viewer_cannot_decide_on_releases(learned: MemoryAtom) -> None:
    made = release(learned, "Numbers need units.", actor="operator:eve")
    assert made.atom
    viewer = operator(group="viewers")
    for address in (url("candidate", learned.pk), change_url(made), url("waiting")):
        shown = page(viewer, address)
        assert "<textarea" not in shown and url("revoke", made.pk) not in shown
    for address in (
        url("candidate", learned.pk),
        url("keep", learned.pk),
        *(url(name, made.pk) for name in ("revoke", "extend", "reword")),
    ):
        assert viewer.post(address, {"wording": "x"}).status_code == 403
    assert Release.objects.in_effect().get() == made


def test_the_item_of_a_release_changes_only_by_another_release(root: Client, learned: MemoryAtom) -> None:
    made = release(learned, "Numbers need units.", actor="operator:eve")
    assert made.atom
    shown = page(root, change_url(made.atom))
    assert change_url(made) in shown and 'name="content"' not in shown
    MemoryAtom.objects.filter(pk=made.atom.pk).update(content="Begin with a link.")
    assert "invalid signature" in page(root, list_url(Release)) and "invalid signature" in page(root, change_url(made))


@pytest.mark.slow
def test_texts_are_escaped_and_lists_take_a_constant_number_of_queries(root: Client, ada: UserProfile) -> None:
    stream = shard("lessons", "default")
    for number in range(25):
        release(candidate(ada, stream, f"{PLANTED} {number}"), f"{PLANTED} said so, number {number}", actor="eve")
        candidate(ada, stream, f"{PLANTED} waits {number}")
    for address in (list_url(Release), url("waiting"), change_url(Release.objects.first())):
        assert PLANTED not in page(root, address)
        assert queries_of(root, address) <= MAX_QUERIES
    assert "Earlier items" in page(root, url("waiting"))
