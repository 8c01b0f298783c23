"""The page of a session."""

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from moments_app.models import Job, Moment
from sessions_app.models import Event, Session, UserProfile
from tests.support.operator import operator
from tests.support.pages import change_url, list_url, page
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


class TestSession:
    """The transcript."""

    def test_it_shows_the_newest_turns_the_boundary_and_the_live_window(self, root: Client, built: Session) -> None:
        shown = page(root, change_url(built))
        assert "Turn 119 is about" in shown
        assert "turns 20–119 of 120" in shown
        assert shown.index("partition") < shown.index("Live window")
        assert shown.index(f'id="turn-{built.last_moment_message_idx}"') < shown.index("Live window")
        for moment in Moment.objects.filter(source_session=built, last_sequence__gte=20):
            assert change_url(moment) in shown

    def test_one_can_page_back_and_forth(self, root: Client, built: Session) -> None:
        earlier = page(root, change_url(built), before=20)
        assert "Turn 0 is about" in earlier
        assert "Turn 20 is about" not in earlier
        assert "?after=19" in earlier
        assert "Turn 20 is about" in page(root, change_url(built), after=19)

    @pytest.mark.parametrize("asked", ["-1", "x", "9" * 30, "²", ""])
    def test_nonsense_in_the_address_shows_the_newest(self, root: Client, built: Session, asked: str) -> None:
        assert "Turn 119 is about" in page(root, change_url(built), before=asked)

    def test_a_build_can_be_asked_for_by_post_alone(self, root: Client, built: Session) -> None:
        url = reverse("admin:sessions_app_session_build", args=[built.pk])
        before = Job.objects.count()
        assert root.get(url).status_code == 405
        assert Job.objects.count() == before
        answer = root.post(url, follow=True)
        job = Job.objects.latest("id")
        assert answer.redirect_chain[-1][0] == change_url(job)
        assert (job.force, job.requested_by) == (True, "operator:root")
        assert LogEntry.objects.filter(object_id=str(built.pk), change_message__contains="built").exists()

    def test_a_form_of_another_site_is_refused(self, built: Session) -> None:
        client = operator()
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = client.cookies
        assert strict.post(reverse("admin:sessions_app_session_build", args=[built.pk])).status_code == 403

    def test_it_is_found_by_the_beginning_of_its_id_or_of_its_persons(self, root: Client, ada: UserProfile) -> None:
        talk(ada, 2, session_id="alpha")
        talk(ada, 2, session_id="beta")
        shown = page(root, list_url(Session), q="alp")
        assert "alpha" in shown and "beta" not in shown
        assert "beta" in page(root, list_url(Session), q="ad")
        assert "beta" not in page(root, list_url(Session), q="%_")
        assert root.get(list_url(Session), {"q": "a\0b"}).status_code == 200

    def test_its_legal_hold_is_set_by_hand_and_noted_and_no_counter_is_overwritten(
        self, root: Client, built: Session
    ) -> None:
        assert root.post(change_url(built), {"title": "Kiln", "legal_hold": "on"}).status_code == 302
        built.refresh_from_db()
        assert (built.title, built.legal_hold, built.message_count) == ("Kiln", True, 120)
        assert Event.objects.get(type="legal_hold_set").actor == "operator:root"
        assert root.post(change_url(built), {"title": "Kiln", "legal_hold": "on"}).status_code == 302
        assert root.post(change_url(built), {"title": "Kiln"}).status_code == 302
        assert Event.objects.filter(type__startswith="legal_hold").count() == 2

    def test_turns_that_are_archived_are_told_there_and_at_their_moments(self, root: Client, built: Session) -> None:
        built.messages.filter(sequence__lt=50).delete()
        Session.objects.update(kept_from_sequence=50)
        shown = page(root, change_url(built))
        assert "Turns before 50 are past their keep-by date" in shown
        assert "turns 50–119 of 120" in shown and "Earlier turns" not in shown
        first = Moment.objects.earliest("id")
        assert "Turns before 50 are past their keep-by date" in page(root, change_url(first))
        built.messages.all().delete()
        Session.objects.update(kept_from_sequence=120)
        assert "no turns" in page(root, change_url(built))
