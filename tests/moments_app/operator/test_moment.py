"""The pages of moments."""

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import Moment
from sessions_app.models import Event, Session, UserProfile
from sessions_app.models.event import MOMENT_DELETED
from tests.support.jobs import assert_chain_is_whole
from tests.support.moments import remember
from tests.support.pages import change_url, list_url, page

pytestmark = pytest.mark.django_db(transaction=True)


class TestMoment:
    """Moments with their chain and sources."""

    @pytest.mark.slow
    def test_a_moment_is_shown_with_its_source_turns_and_neighbors(self, built: Session, root: Client) -> None:
        first, second, third = Moment.objects.order_by("id")[:3]
        shown = page(root, change_url(second))
        assert change_url(first) in shown and change_url(third) in shown
        assert f'id="turn-{second.first_sequence}"' in shown and f'id="turn-{second.last_sequence}"' in shown
        assert f'id="turn-{second.last_sequence + 1}"' not in shown
        assert f"{change_url(built)}?moment={second.pk}#turn-{second.first_sequence}" in shown
        assert "first moment" in page(root, change_url(first))
        assert "latest moment" in page(root, change_url(Moment.objects.latest("id")))

    def test_the_list_shows_beginnings_of_summaries(self, root: Client, ada: UserProfile) -> None:
        [moment] = remember(ada, 1)
        Moment.objects.filter(pk=moment.pk).update(summary="She bought a kiln & glazes.")
        assert "She bought a kiln &amp; glazes." in page(root, list_url(Moment))

    def test_the_page_after_the_last_moment_does_not_say_that_there_are_none(
        self, root: Client, ada: UserProfile
    ) -> None:
        remember(ada, 1)
        shown = page(root, list_url(Moment), p=2)
        assert "No more rows" in shown and "Nothing here yet" not in shown

    def test_the_list_offers_to_select_all_moments_without_a_number(self, root: Client, ada: UserProfile) -> None:
        remember(ada, 1)
        shown = page(root, list_url(Moment))
        assert "Select all moments on all pages" in shown and "9999999999" not in shown

    def test_texts_can_be_corrected_but_sources_cannot(self, built: Session, root: Client) -> None:
        moment = Moment.objects.earliest("id")
        corrected = {
            "name": "corrected",
            "summary": "What really was.",
            "detail": "",
            "topic_tags": "kiln, and its glaze\r\n\r\nrent",
            "emotion_tags": "",
            "present_persons": "",
            "category": moment.category,
            "key": "forged",
            "first_sequence": "7",
        }
        assert root.post(change_url(moment), corrected).status_code == 302
        after = Moment.objects.get(pk=moment.pk)
        assert (after.name, after.summary, after.topic_tags) == (
            "corrected",
            "What really was.",
            ["kiln, and its glaze", "rent"],
        )
        assert (after.key, after.first_sequence) == (moment.key, moment.first_sequence)

    @pytest.mark.slow
    def test_the_chain_skips_deleted_moments(self, built: Session, root: Client, ada: UserProfile) -> None:
        doomed = list(Moment.objects.order_by("id").values_list("pk", flat=True)[1:3])
        data = {"action": "delete_selected", "_selected_action": doomed, "post": "yes"}
        assert root.post(list_url(Moment), data).status_code == 302
        assert not Moment.objects.filter(pk__in=doomed).exists()
        assert_chain_is_whole(ada)

    def test_a_moment_is_found_by_its_words(self, built: Session, root: Client) -> None:
        moment = Moment.objects.earliest("id")
        moment.detail = "An unmistakable porcupine."
        moment.save()
        shown = page(root, list_url(Moment), q="porcupines")
        assert moment.key in shown
        assert Moment.objects.latest("id").key not in shown

    def test_the_page_names_its_job_and_who_corrected_it(self, built: Session, root: Client) -> None:
        moment = Moment.objects.earliest("id")
        data = {"name": moment.name, "summary": "What really was.", "category": moment.category}
        assert root.post(change_url(moment), data).status_code == 302
        shown = page(root, change_url(moment))
        assert moment.job and moment.prompt_version
        assert change_url(moment.job) in shown
        assert f"{change_url(moment.prompt_version.resource)}?version={moment.prompt_version.number}" in shown
        assert "Changed Summary" in shown

    def test_deleting_asks_for_confirmation_with_what_goes_and_stays(self, built: Session, root: Client) -> None:
        moment = Moment.objects.earliest("id")
        url = reverse("admin:moments_app_moment_delete", args=[moment.pk])
        shown = page(root, url)
        assert f"Its turns, {moment.first_sequence}–{moment.last_sequence}, in the transcript." in shown
        assert reverse("admin:sessions_app_session_retract", args=[built.pk]) in shown
        assert root.post(url, {"post": "yes"}).status_code == 302
        assert not Moment.objects.filter(pk=moment.pk).exists()
        assert Event.objects.get(type=MOMENT_DELETED).payload["key"] == moment.key


class TestList:
    """Searching for moments."""

    @pytest.mark.parametrize(
        ("asked", "found"),
        [
            ({"user_id": "bo"}, ["s2-moment-0"]),
            ({"topic": "glaze", "user_id": "ada"}, ["s1-moment-1"]),
            ({"emotion": "calm"}, ["s1-moment-1", "s1-moment-2"]),
            ({"category": "nothing"}, []),
            ({"starts_at_from": "2026-03-03"}, ["s1-moment-2"]),
            ({"starts_at_to": "2026-03-02"}, ["s1-moment-0", "s1-moment-1", "s2-moment-0"]),
            ({"topic": "a\0b", "starts_at_from": "never"}, []),
        ],
    )
    def test_a_search_narrows_the_list(
        self, root: Client, ada: UserProfile, bo: UserProfile, asked: dict[str, str], found: list[str]
    ) -> None:
        remember(ada, 3)
        remember(bo, 1, session_id="s2")
        Moment.objects.filter(key="s1-moment-2").update(starts_at="2026-03-03T00:00Z", ends_at="2026-03-03T01:00Z")
        shown = page(root, list_url(Moment), **asked)
        assert [
            key for key in Moment.objects.order_by("key").values_list("key", flat=True) if f">{key}<" in shown
        ] == found

    @pytest.mark.parametrize("asked", [{}, {"user_id": "ada"}, {"user_id": ""}])
    def test_row_37_the_list_is_in_order_of_time(self, root: Client, ada: UserProfile, asked: dict[str, str]) -> None:
        moments = remember(ada, 4)
        moments[1].delete()
        moments[1].save(force_insert=True)  # recreated
        shown = page(root, list_url(Moment), **asked)
        keys = [moment.key for moment in moments]
        assert sorted(keys, key=lambda key: shown.index(f">{key}<")) == keys[::-1]
