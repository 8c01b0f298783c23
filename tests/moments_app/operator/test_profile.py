"""The page of a person, and edits of their profile."""

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import Entity, MemoryAtom
from moments_app.streams.edit import own_texts
from sessions_app.models import UserProfile
from tests.support.entities import new_entity
from tests.support.moments import remember
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, page, queries_of
from tests.support.streams import written

pytestmark = pytest.mark.django_db(transaction=True)


def form(user: UserProfile, **changed: str) -> dict[str, str]:
    """Return the data that the page's form sends."""
    own = own_texts(user)
    lists = {name: "\n".join(own[name]) for name in ("interests", "preferred_topics")}
    return {"summary": own["summary"], **lists, "timezone": user.timezone, "metadata": "{}", **changed}


class TestProfile:
    @pytest.mark.slow
    def test_the_page_links_to_what_is_stored_with_limited_counts(self, root: Client, ada: UserProfile) -> None:
        remember(ada, 3)
        Entity.objects.bulk_create(new_entity(ada, f"Task {n}") for n in range(101))
        shown = page(root, change_url(ada))
        assert "<strong>3</strong> Moments" in shown
        assert "<strong>100+</strong> Tasks and goals" in shown
        assert reverse("admin:moments_app_moment_chain", args=[ada.pk]) in shown

    def test_forbidden_kinds_are_not_counted(self, ada: UserProfile) -> None:
        shown = page(operator("view_userprofile", "view_session"), change_url(ada))
        assert "Sessions" in shown and "Retractions" not in shown and "Erase…" not in shown

    def test_items_with_commas_survive_another_edit(self, root: Client, ada: UserProfile) -> None:
        written(ada, interests=["Kilns, old and new", "Rent"])
        assert root.post(change_url(ada), form(ada, summary="Has a kiln.")).status_code == 302
        ada.refresh_from_db()
        assert (ada.summary, ada.interests) == ("Has a kiln.", ["Kilns, old and new", "Rent"])

    def test_an_edit_of_the_time_zone_adds_no_statement(self, root: Client, ada: UserProfile) -> None:
        details = reverse("admin:sessions_app_userprofile_details", args=[ada.pk])  # a script sends it there
        assert root.post(details, form(ada, timezone="Europe/Rome")).status_code == 302
        ada.refresh_from_db()
        assert ada.timezone == "Europe/Rome" and not MemoryAtom.objects.exists()

    def test_an_edit_replaces_earlier_text_and_keeps_it_as_history(self, root: Client, ada: UserProfile) -> None:
        written(ada, summary="Ada has a kiln.")
        assert root.post(change_url(ada), form(ada, summary="Ada sold a kiln.")).status_code == 302
        ada.refresh_from_db()
        assert ada.summary == "Ada sold a kiln."
        before, now = MemoryAtom.objects.order_by("pk")
        assert (before.content, before.state, before.ended_by) == ("Ada has a kiln.", "ended", "operator:root")
        assert (now.written_by, now.is_pinned) == ("operator:root", True)
        assert "Ada has a kiln." in page(root, change_url(ada))

    def test_row_18_a_viewer_cannot_edit_a_profile(self, ada: UserProfile) -> None:
        written(ada, summary="Ada has a kiln.")
        viewer = operator("view_")
        assert "Ada has a kiln." in page(viewer, change_url(ada))
        assert viewer.post(change_url(ada), form(ada, summary="x")).status_code == 403
        ada.refresh_from_db()
        assert ada.summary == "Ada has a kiln."

    @pytest.mark.slow
    def test_the_page_takes_a_constant_number_of_queries(self, root: Client, ada: UserProfile) -> None:
        few = queries_of(root, change_url(ada))
        remember(ada, 30)
        assert queries_of(root, change_url(ada)) == few <= MAX_QUERIES
