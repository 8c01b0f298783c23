"""The page of a person and the history of their profile."""

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from moments_app.models import Entity, Job
from moments_app.operator.diff import DiffPart, list_diff
from moments_app.operator.profile_history import PAGE, history
from sessions_app.models import ApiKey, UserProfile
from tests.support.moments import remember
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, page, queries_of

pytestmark = pytest.mark.django_db(transaction=True)


def versions_url(user: UserProfile) -> str:
    return reverse("admin:sessions_app_userprofile_versions", args=[user.pk])


def restore_url(user: UserProfile, version: int) -> str:
    return reverse("admin:sessions_app_userprofile_restore", args=[user.pk, version])


def form(user: UserProfile, **changed: str) -> dict[str, str]:
    """What the page's form sends."""
    lists = {"interests": "\n".join(user.interests), "preferred_topics": "\n".join(user.preferred_topics)}
    return {"summary": user.summary, **lists, "timezone": user.timezone, "metadata": "{}", **changed}


class TestProfile:
    """The page."""

    def test_it_leads_to_what_is_kept_with_numbers_that_cost_little(self, root: Client, ada: UserProfile) -> None:
        remember(ada, 3)
        Entity.objects.bulk_create(Entity(user=ada, kind="task", title=f"Task {n}") for n in range(101))
        shown = page(root, change_url(ada))
        assert "<strong>3</strong> Moments" in shown
        assert "<strong>100+</strong> Tasks and goals" in shown
        assert reverse("admin:moments_app_moment_chain", args=[ada.pk]) in shown

    def test_what_one_may_not_see_is_not_counted(self, ada: UserProfile) -> None:
        shown = page(operator("view_userprofile", "view_session"), change_url(ada))
        assert "Sessions" in shown and "Retractions" not in shown and "Erase…" not in shown

    def test_items_with_commas_outlive_an_edit_of_something_else(self, root: Client, ada: UserProfile) -> None:
        UserProfile.objects.update(interests=["Kilns, old and new", "Rent"])
        ada.refresh_from_db()
        assert root.post(change_url(ada), form(ada, summary="Has a kiln.")).status_code == 302
        ada.refresh_from_db()
        assert (ada.summary, ada.interests) == ("Has a kiln.", ["Kilns, old and new", "Rent"])

    def test_an_edit_of_the_time_zone_makes_no_version(self, root: Client, ada: UserProfile) -> None:
        details = reverse(
            "admin:sessions_app_userprofile_details", args=[ada.pk]
        )  # to where a browser's script sends it
        assert root.post(details, form(ada, timezone="Europe/Rome")).status_code == 302
        ada.refresh_from_db()
        assert ada.timezone == "Europe/Rome" and not ada.versions.exists()

    @pytest.mark.slow
    def test_more_memory_asks_no_more_of_the_database(self, root: Client, ada: UserProfile) -> None:
        few = queries_of(root, change_url(ada))
        remember(ada, 30)
        assert queries_of(root, change_url(ada)) == few <= MAX_QUERIES


class TestHistory:
    """States and what is between them."""

    def test_the_newest_change_is_shown_first_and_any_two_states_compared(self, root: Client, ada: UserProfile) -> None:
        for summary in ("Ada has a kiln.", "Ada has a gas kiln.", "Ada has a gas kiln in Turin."):
            ada.merge(summary=summary, interests=[summary], preferred_topics=[], actor="operator:eve")
        shown = page(root, versions_url(ada))
        assert "<ins> kiln in Turin.</ins>" in shown
        oldest = ada.versions.earliest("id")
        compared = page(root, versions_url(ada), **{"from": oldest.pk, "to": "now"})
        assert "<ins>Ada has a gas kiln in Turin.</ins>" in compared

    def test_each_state_says_who_made_it(self, ada: UserProfile) -> None:
        job = Job.objects.create(process="build_moments", user=ada, requested_by="test")
        ada.merge(summary="One.", interests=[], preferred_topics=[], actor=f"job:{job.job_id}")
        ada.merge(summary="Two.", interests=[], preferred_topics=[], actor="operator:eve")
        states = history(ada).states
        assert [(state.profile.summary, state.made_by, state.url) for state in states] == [
            ("Two.", "operator:eve", ""),
            ("One.", f"job:{job.job_id}", change_url(job)),
            ("", "", ""),
        ]
        assert states[-1].made_at == ada.created_at

    @pytest.mark.slow
    def test_a_key_that_wrote_a_line_or_ended_one_is_told_by_its_name(self, root: Client, ada: UserProfile) -> None:
        key, _ = ApiKey.objects.issue("the app")
        for summary in ("Ada lives in Oslo.", "Ada lives in Bergen."):
            ada.merge(summary=summary, interests=[], preferred_topics=[], actor=f"key:{key.prefix}")
        shown = root.get(reverse("admin:sessions_app_userprofile_lines", args=[ada.pk])).content.decode()
        assert shown.count("key “the app”") == 2 and key.prefix not in shown

    @pytest.mark.slow
    def test_pages_meet_every_state_once(self, root: Client, ada: UserProfile) -> None:
        for number in range(PAGE + 10):
            ada.merge(summary=f"State {number}.", interests=[], preferred_topics=[], actor="operator:eve")
        first = history(ada)
        assert first.older
        second = history(ada, older_than=first.older)
        summaries = [state.profile.summary for state in (*first.states, *second.states)]
        assert summaries == [*(f"State {number}." for number in reversed(range(PAGE + 10))), ""]
        assert second.older is None
        assert "State 0." in page(root, versions_url(ada), older=first.older)

    def test_a_former_state_is_restored_as_a_new_one(self, root: Client, ada: UserProfile) -> None:
        ada.merge(summary="Right.", interests=["kilns"], preferred_topics=["rent"], actor="job:1")
        ada.merge(summary="Wrong.", interests=["verbs"], preferred_topics=[], actor="job:2")
        right = ada.versions.latest("id")
        assert root.get(restore_url(ada, right.pk)).status_code == 405
        assert root.post(restore_url(ada, right.pk)).status_code == 302
        ada.refresh_from_db()
        assert (ada.summary, ada.interests, ada.preferred_topics) == ("Right.", ["kilns"], ["rent"])
        newest = ada.versions.latest("id")
        assert (newest.summary, newest.actor) == ("Wrong.", "operator:root")
        assert LogEntry.objects.filter(object_id=str(ada.pk), change_message__contains="Restored").exists()

    def test_a_version_of_somebody_else_is_not_found(self, root: Client, ada: UserProfile, bo: UserProfile) -> None:
        bo.merge(summary="Bo.", interests=[], preferred_topics=[], actor="job:1")
        assert root.post(restore_url(ada, bo.versions.get().pk)).status_code == 404

    def test_row_18_a_viewer_reads_and_restores_nothing(self, ada: UserProfile) -> None:
        ada.merge(summary="Ada.", interests=[], preferred_topics=[], actor="job:1")
        viewer = operator("view_")
        assert "Restore" not in page(viewer, versions_url(ada))
        assert viewer.post(restore_url(ada, ada.versions.get().pk)).status_code == 403
        assert operator("view_session").get(versions_url(ada)).status_code == 403

    @pytest.mark.slow
    def test_a_longer_history_asks_no_more_of_the_database(self, root: Client, ada: UserProfile) -> None:
        ada.merge(summary="Ada.", interests=[], preferred_topics=[], actor="operator:eve")
        few = queries_of(root, versions_url(ada))
        for number in range(30):
            ada.merge(summary=f"State {number}.", interests=[], preferred_topics=[], actor="operator:eve")
        assert queries_of(root, versions_url(ada)) == few <= MAX_QUERIES


class TestDiff:
    """What is between two lists."""

    def test_lists_show_what_went_first(self) -> None:
        parts = list_diff(["a", "b"], ["b", "c"])
        assert parts == [DiffPart("removed", "a"), DiffPart("same", "b"), DiffPart("added", "c")]
