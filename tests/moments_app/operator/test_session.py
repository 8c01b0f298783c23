"""The page of a session."""

import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import ContextReceipt, Job, MemoryStream, Moment, Summary
from moments_app.provenance.retract import retract
from sessions_app.models import ApiKey, Event, Message, Session, UserProfile
from sessions_app.retention.restore import restore_archive
from sessions_app.retention.retain import retain
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.jobs import build
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, list_url, page, queries_of
from tests.support.retention import covered_session
from tests.support.streams import note
from tests.support.transcript import talk, turns

pytestmark = pytest.mark.django_db(transaction=True)


class TestSession:
    """The transcript."""

    @pytest.mark.slow
    def test_the_newest_turns_the_boundary_and_the_live_window_are_shown(self, built: Session, root: Client) -> None:
        shown = page(root, change_url(built))
        assert "Turn 119 is about" in shown
        assert "turns 20–119 of 120" in shown
        assert shown.index("Moments built") < shown.index("Live turns start here")
        assert shown.index(f'id="turn-{built.last_moment_message_idx}"') < shown.index("Live turns start here")
        for moment in Moment.objects.filter(source_session=built, last_sequence__gte=20):
            assert change_url(moment) in shown

    @pytest.mark.slow
    def test_row_13_a_session_at_the_end_of_2100_is_remembered_and_shown(
        self, root: Client, ada: UserProfile, as_ada: Api
    ) -> None:
        last = datetime(2100, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
        said = [replace(turn, created_at=last) for turn in turns(30)]
        build(append(ada, "s1", said).session, lag=0)
        moments = list(Moment.objects.all())
        assert max(moment.ends_at for moment in moments) == last
        [session] = Session.objects.all()
        for model in (Moment, Session):
            assert page(root, list_url(model))
        assert "Turn 29 is about" in page(root, change_url(session))
        assert as_ada.get("moments").json()["moments"]
        assert as_ada.get("memory/context", session_id="s1", query="kiln").status_code == 200
        assert as_ada.get("facts", as_of="2100-12-31").status_code == 200

    def test_pages_can_be_turned_in_both_directions(self, built: Session, root: Client) -> None:
        earlier = page(root, change_url(built), before=20)
        assert "Turn 0 is about" in earlier
        assert "Turn 20 is about" not in earlier
        assert "?after=19" in earlier
        assert "Turn 20 is about" in page(root, change_url(built), after=19)

    @pytest.mark.parametrize("asked", ["-1", "x", "9" * 30, "²", ""])
    def test_an_invalid_parameter_shows_the_newest(self, built: Session, root: Client, asked: str) -> None:
        assert "Turn 119 is about" in page(root, change_url(built), before=asked)

    def test_a_build_can_only_be_requested_by_post(self, built: Session, root: Client) -> None:
        url = reverse("admin:sessions_app_session_build", args=[built.pk])
        before = Job.objects.count()
        assert root.get(url).status_code == 405
        assert Job.objects.count() == before
        answer = root.post(url, follow=True)
        job = Job.objects.latest("id")
        assert answer.redirect_chain[-1][0] == change_url(job)
        assert (job.force, job.requested_by) == (True, "operator:root")
        assert LogEntry.objects.filter(object_id=str(built.pk), change_message__contains="Queued a build").exists()

    def test_a_form_from_another_site_is_rejected(self, built: Session) -> None:
        client = operator()
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = client.cookies
        assert strict.post(reverse("admin:sessions_app_session_build", args=[built.pk])).status_code == 403

    @pytest.mark.slow
    def test_a_session_is_found_by_a_prefix_of_its_id_or_its_persons(self, root: Client, ada: UserProfile) -> None:
        talk(ada, 2, session_id="alpha")
        talk(ada, 2, session_id="beta")
        shown = page(root, list_url(Session), q="alp")
        assert "alpha" in shown and "beta" not in shown
        assert "beta" in page(root, list_url(Session), q="ad")
        assert "beta" not in page(root, list_url(Session), q="%_")
        assert root.get(list_url(Session), {"q": "a\0b"}).status_code == 200

    def test_a_legal_hold_is_recorded_and_overwrites_no_counter(self, built: Session, root: Client) -> None:
        assert root.post(change_url(built), {"title": "Kiln", "legal_hold": "on"}).status_code == 302
        built.refresh_from_db()
        assert (built.title, built.legal_hold, built.message_count) == ("Kiln", True, 120)
        assert Event.objects.get(type="legal_hold_set").actor == "operator:root"
        details = reverse("admin:sessions_app_session_details", args=[built.pk])  # a script sends it there
        assert root.post(details, {"title": "Kiln", "legal_hold": "on"}).status_code == 302
        assert root.post(change_url(built), {"title": "Kiln"}).status_code == 302
        assert Event.objects.filter(type__startswith="legal_hold").count() == 2

    @pytest.mark.slow
    def test_archived_turns_are_reported_there_and_at_their_moments(self, built: Session, root: Client) -> None:
        built.messages.filter(sequence__lt=50).delete()
        Session.objects.update(kept_from_sequence=50)
        shown = page(root, change_url(built))
        assert "Turns before 50 are past their retention period, and were deleted" in shown
        assert "turns 50–119 of 120" in shown and "Earlier turns" not in shown
        first = Moment.objects.earliest("id")
        assert "Turns before 50 are past their retention period" in page(root, change_url(first))
        built.messages.all().delete()
        Session.objects.update(kept_from_sequence=120)
        assert "no turns" in page(root, change_url(built))

    @pytest.mark.slow
    def test_archived_turns_are_read_from_files_and_found(
        self, root: Client, ada: UserProfile, archive_folder: Path
    ) -> None:
        session = covered_session(ada, 130, live=2)
        assert retain().archived_turns == 130
        shown = page(root, change_url(session))
        assert "live 1" in shown and "Turn 32 🏺" in shown and "Earlier turns" in shown
        assert "Turns before 130 are past their retention period, and were archived" in shown
        earlier = page(root, url(session, "turns"), before=32)
        assert "Turn 0 🏺" in earlier and "Turn 32 🏺" not in earlier and "Earlier turns" not in earlier
        assert earlier.count('<span class="rem-chip">archived</span>') == 32
        assert "Select turn" not in earlier and "save as probe" not in earlier  # only a restored turn can be retracted
        assert 'rem-marked" id="turn-7"' in page(root, change_url(session), at=7)
        assert "Turn 3 🏺" in page(root, change_url(Moment.objects.get()))
        found = page(root, list_url(Session), q="second line")
        assert f"{change_url(session)}?at=0#turn-0" in found and "archived; the transcript shows" in found
        assert queries_of(root, f"{change_url(session)}?at=60") <= MAX_QUERIES
        assert "Retract selected turns" in shown
        Message.objects.filter(session=session, sequence__gte=130).delete()
        Session.objects.update(last_sequence=129)
        assert "Retract selected turns" not in page(root, change_url(session))
        for name, told in (
            ("rebuild", "so there is nothing to rebuild. Turns before 130"),
            ("retract", "To restore archived turns, run"),
        ):
            shown = page(root, url(session, name))
            assert told in shown and "restore_archive" in shown and "turns of 0 moments" not in shown
        first, _later = session.archives.order_by("month")
        session.refresh_from_db()
        restore_archive(session, month=first.month, actor="test")
        shown = page(root, change_url(session), at=60)
        assert "Turn 64 🏺" in shown and "Turn 65 🏺" in shown
        assert "Select turn 64" in shown and "Select turn 65" not in shown
        for archive in session.archives.all():
            (archive_folder / archive.name).unlink()
        assert "text can&#x27;t be read right now" in page(root, change_url(session))


def url(session: Session, name: str) -> str:
    return reverse(f"admin:sessions_app_session_{name}", args=[session.pk])


TABS = ("summaries", "memory", "jobs", "contexts", "context", "details")


class TestTranscript:
    """Highlights and navigation in the transcript."""

    def test_turns_have_the_color_and_name_of_their_moment(self, built: Session, root: Client) -> None:
        moment = Moment.objects.get(source_session=built, first_sequence__lte=40, last_sequence__gte=40)
        shown = page(root, change_url(built), at=40)
        line = shown[shown.index('id="turn-40"') - 200 : shown.index('id="turn-40"')]
        assert f"rem-hue-{moment.pk % 8}" in line
        assert f"turns {moment.first_sequence}–{moment.last_sequence}" in shown

    @pytest.mark.slow
    def test_the_end_of_the_next_build_is_marked(self, built: Session, root: Client) -> None:
        talk(built.user, 30)
        shown = page(root, change_url(built))
        assert build(built).status == Job.Status.COMPLETED
        built.refresh_from_db()
        assert shown.index("Live turns start here") < shown.index("stay live after the next build")
        assert shown.index(f'id="turn-{built.live_from_sequence - 1}"') < shown.index("stay live after the next build")
        assert shown.index("stay live after the next build") < shown.index(f'id="turn-{built.live_from_sequence}"')

    @pytest.mark.slow
    def test_a_turn_can_be_opened_by_number(self, built: Session, root: Client) -> None:
        answer = root.get(change_url(built), {"jump": "30"})
        assert answer.headers["Location"] == f"{change_url(built)}?at=30#turn-30"
        shown = page(root, change_url(built), at=30)
        assert 'rem-marked" id="turn-30"' in shown and shown.count("rem-marked") == 1
        middle = page(root, change_url(built), at=60)
        assert 'id="turn-10"' in middle and 'id="turn-9"' not in middle
        assert 'id="turn-119"' in page(root, change_url(built), at=10**12)

    @pytest.mark.slow
    def test_turns_of_a_moment_are_highlighted(self, built: Session, root: Client) -> None:
        moment = Moment.objects.filter(source_session=built).order_by("first_sequence")[1]
        shown = page(root, change_url(built), moment=moment.pk)
        assert shown.count("rem-marked") == moment.last_sequence - moment.first_sequence + 1
        assert "rem-marked" not in page(root, change_url(built), moment=10**12)

    @pytest.mark.slow
    def test_more_turns_are_a_fragment_of_a_page(self, built: Session, root: Client) -> None:
        earlier = page(root, url(built, "turns"), before=20)
        assert earlier.count('id="turn-') == 20
        assert "<html" not in earlier and "Later turns" not in earlier and "Earlier turns" not in earlier
        later = page(root, url(built, "turns"), after=9)
        assert 'id="turn-10"' in later and "Later turns" in later and "Earlier turns" not in later

    @pytest.mark.slow
    def test_a_session_without_turns_says_so(self, root: Client, ada: UserProfile) -> None:
        session = Session.objects.create(user=ada, session_id="empty")
        assert "No turns here." in page(root, change_url(session))
        for name in (*TABS, "rebuild", "retract"):
            page(root, url(session, name))

    def test_an_unknown_session_is_not_found(self, root: Client, ada: UserProfile) -> None:
        for name in ("change", "turns", "rebuild", *TABS):
            assert root.get(reverse(f"admin:sessions_app_session_{name}", args=[10**15])).status_code == 404
        assert root.get("/admin/sessions_app/session/x/change/").status_code == 302


class TestTabs:
    """The tabs of a session, each with its own URL."""

    @pytest.mark.slow
    def test_each_tab_links_to_what_it_lists(self, built: Session, root: Client) -> None:
        summary = Summary.objects.create(
            session=built, user=built.user, start_sequence=0, end_sequence=5, text="In short.", status="completed"
        )
        MemoryStream.objects.ensure_for(built)
        stream = MemoryStream.objects.get(session=built)
        atom = note(stream, "Has a kiln.", "fact", source_session=built)
        receipt = ContextReceipt.objects.create(
            context_id=uuid.uuid4(), user=built.user, session=built, refs={}, tokens={"user": 7, "now": 5}, trimmed=[]
        )
        assert "In short." in page(root, url(built, "summaries"))
        assert change_url(summary) in page(root, url(built, "summaries"))
        shown = page(root, url(built, "memory"))
        assert change_url(stream) in shown and change_url(atom) in shown
        assert change_url(Job.objects.earliest("id")) in page(root, url(built, "jobs"))
        shown = page(root, url(built, "contexts"))
        assert change_url(receipt) in shown and ">12<" in shown

    def test_a_job_names_its_key_to_operators_who_can_see_keys(self, built: Session, root: Client) -> None:
        key, _ = ApiKey.objects.issue("my-app")
        Job.objects.update(requested_by=key.actor)
        assert "key “my-app”" in page(root, url(built, "jobs"))
        shown = page(operator(group="viewers"), url(built, "jobs"))
        assert "my-app" not in shown and f"key {key.prefix}" in shown

    def test_older_rows_are_on_later_pages(self, built: Session, root: Client) -> None:
        Job.objects.bulk_create(
            Job(process="embed", session=built, user=built.user, status="completed", requested_by="t")
            for _ in range(30)
        )
        oldest, newest = Job.objects.earliest("id"), Job.objects.latest("id")
        first = page(root, url(built, "jobs"))
        assert change_url(newest) in first and change_url(oldest) not in first
        before = re.findall(r'href="\?before=(\d+)"', first)
        second = page(root, url(built, "jobs"), before=before[0])
        assert change_url(oldest) in second and "Older ones" not in second

    @pytest.mark.slow
    def test_a_tab_requires_the_right_for_its_rows(self, built: Session) -> None:
        client = operator("view_session")
        assert client.get(change_url(built)).status_code == 200
        for name in ("summaries", "memory", "jobs", "contexts"):
            assert client.get(url(built, name)).status_code == 403
            assert url(built, name) not in page(client, change_url(built))

    @pytest.mark.slow
    def test_row_18_planted_scripts_stay_text_in_every_tab(self, root: Client, ada: UserProfile) -> None:
        texts = [NewMessage("user", f"{PLANTED} {number}") for number in range(60)]
        session = append(ada, PLANTED, texts).session
        build(session)
        Moment.objects.update(name=PLANTED, summary=PLANTED)
        Session.objects.update(title=PLANTED, source=PLANTED[:64], agent_id=PLANTED)
        Job.objects.update(error=PLANTED, requested_by=PLANTED)
        MemoryStream.objects.ensure_for(session)
        MemoryStream.objects.update(consolidated_content=PLANTED, pinned_content=PLANTED)
        note(MemoryStream.objects.get(session=session), PLANTED, "fact", source_session=session)
        Summary.objects.create(
            session=session, user=ada, start_sequence=0, end_sequence=5, text=PLANTED, error=PLANTED, status="completed"
        )
        retracted = retract(session, [3], reason=PLANTED, requested_by=PLANTED)
        urls = [change_url(retracted), *(url(session, name) for name in ("change", "rebuild", *TABS))]
        shown = [page(root, one) for one in urls] + [page(root, url(session, "retract"), sequences="5")]
        shown.append(page(root, list_url(Session), q="planted"))
        assert not [text for text in shown if PLANTED in text or "planted" not in text]

    @pytest.mark.slow
    def test_tabs_take_a_constant_number_of_queries(self, root: Client, ada: UserProfile) -> None:
        def asked(session: Session) -> dict[str, int]:
            return {name: queries_of(root, url(session, name)) for name in ("change", "turns", "rebuild", *TABS)}

        small, large = talk(ada, 60, session_id="small"), talk(ada, 300, session_id="large")
        for session in (small, large):
            assert build(session, lag=10).status == Job.Status.COMPLETED
            MemoryStream.objects.ensure_for(session)
        stream = MemoryStream.objects.get(session=large)
        Job.objects.bulk_create(
            Job(process="embed", session=large, user=ada, status="completed", requested_by="t") for _ in range(300)
        )
        note(MemoryStream.objects.get(session=small), "A fact", "fact", source_session=small)
        for number in range(40):
            note(stream, f"Fact {number}", "fact", source_session=large)
        few, many = asked(small), asked(large)
        # Addresses are looked up with a query per kind, and the budget decides which kinds a context contains.
        assert many.pop("context") <= few.pop("context") <= MAX_QUERIES
        assert few == many
        assert max(many.values()) <= MAX_QUERIES


class TestActions:
    """Actions of an operator."""

    ACTIONS = ("build", "digest", "settle", "hold", "rebuild")

    @pytest.mark.parametrize(
        ("action", "process"),
        [
            ("build", "build_moments"),
            ("digest", "digest_session"),
            ("settle", "settle"),
            ("rebuild", "rebuild_moments"),
        ],
    )
    def test_each_action_requests_a_job_and_redirects_to_it(
        self, built: Session, root: Client, action: str, process: str
    ) -> None:
        answer = root.post(url(built, action), follow=True)
        job = Job.objects.latest("id")
        assert answer.redirect_chain[-1][0] == change_url(job)
        assert (job.process, job.force, job.requested_by) == (process, True, "operator:root")
        assert LogEntry.objects.filter(object_id=str(built.pk), change_message__contains=str(job.job_id)).exists()

    @pytest.mark.slow
    def test_a_build_takes_a_lag(self, built: Session, root: Client) -> None:
        root.post(url(built, "build"), {"lag": "0"})
        assert Job.objects.latest("id").params == {"lag": 0}
        before = Job.objects.count()
        for wrong in ("-1", "x", "1000001"):
            shown = root.post(url(built, "build"), {"lag": wrong}, follow=True).content.decode()
            assert "Turns to keep live: " in shown
        assert Job.objects.count() == before

    @pytest.mark.slow
    def test_a_legal_hold_is_set_and_released(self, built: Session, root: Client) -> None:
        assert "is under legal hold" in root.post(url(built, "hold"), {"held": "yes"}, follow=True).content.decode()
        root.post(url(built, "hold"), {"held": "yes"})
        assert "on hold" in page(root, change_url(built))
        root.post(url(built, "hold"), {"held": ""})
        built.refresh_from_db()
        assert not built.legal_hold
        told = Event.objects.filter(type__startswith="legal_hold").order_by("id")
        assert [event.type for event in told] == ["legal_hold_set", "legal_hold_ended"]

    def test_row_18_a_viewer_cannot_queue_jobs(self, built: Session) -> None:
        viewer = operator("view_")
        before = Job.objects.count()
        assert {viewer.post(url(built, name)).status_code for name in (*self.ACTIONS, "retract")} == {403}
        assert Job.objects.count() == before
        shown = page(viewer, change_url(built))
        assert not [name for name in (*self.ACTIONS, "retract") if url(built, name) in shown]
        assert 'type="checkbox"' not in shown

    def test_a_rebuild_asks_for_confirmation_with_its_extent(self, built: Session, root: Client) -> None:
        count = built.moments.count()
        shown = page(root, url(built, "rebuild"))
        assert f"Rebuild {count} moments" in shown and "about 1 model call" in shown
        assert change_url(Moment.objects.earliest("id")) in shown


class TestList:
    """Searching for sessions."""

    def test_a_session_is_found_by_words_with_the_place(self, root: Client, ada: UserProfile) -> None:
        append(ada, "alpha", [NewMessage("user", "Hello."), NewMessage("user", "The harpsichord came from Lyon.")])
        talk(ada, 2, session_id="beta")
        shown = page(root, list_url(Session), q="harpsichords")
        assert "alpha" in shown and "beta" not in shown
        assert "The <mark>harpsichord</mark> came from Lyon." in shown and "?at=1#turn-1" in shown

    def test_words_are_marked_in_any_form(self, root: Client, ada: UserProfile) -> None:
        append(ada, "alpha", [NewMessage("user", "Harpsichords & <i>kilns</i>.")])
        assert "<mark>Harpsichords</mark> &amp; &lt;i&gt;" in page(root, list_url(Session), q="harpsichord")

    def test_a_session_is_listed_with_its_title_or_its_first_valid_words(self, root: Client, ada: UserProfile) -> None:
        append(ada, "alpha", [NewMessage("assistant", "Hello."), NewMessage("user", "The kiln broke.")])
        append(ada, "beta", [NewMessage("user", "Planted."), NewMessage("user", "The shop opens.")])
        Message.objects.filter(content="Planted.").update(retracted_at=timezone.now())
        append(ada, "gamma", [NewMessage("user", "Unseen words.")])
        Session.objects.filter(session_id="gamma").update(title="About glazes")
        shown = page(root, list_url(Session))
        assert all(words in shown for words in ("The kiln broke.", "The shop opens.", "About glazes"))
        assert "Planted." not in shown and "Unseen words." not in shown

    def test_filters_apply_to_a_search(self, root: Client, ada: UserProfile, bo: UserProfile) -> None:
        for user in (ada, bo):
            append(user, f"of-{user}", [NewMessage("user", "The harpsichord.")])
        Session.objects.filter(user=bo).update(source="discord", agent_id="butler", status="cleared")
        for name, value in (
            ("source__icontains", "disc"),
            ("agent_id__icontains", "but"),
            ("status__exact", "cleared"),
        ):
            shown = page(root, list_url(Session), q="harpsichord", **{name: value})
            assert "of-bo" in shown and "of-ada" not in shown

    def test_a_date_range_includes_both_ends(self, root: Client, ada: UserProfile) -> None:
        for day in (1, 2, 3, 4):
            talk(ada, 1, session_id=f"day-{day}")
            at = datetime(2026, 3, day, 23, 30, tzinfo=UTC)
            Session.objects.filter(session_id=f"day-{day}").update(last_activity_at=at)
        asked = {"last_activity_at_from": "2026-03-02", "last_activity_at_to": "2026-03-03"}
        shown = page(root, list_url(Session), **asked)
        assert [day for day in (1, 2, 3, 4) if f"day-{day}" in shown] == [2, 3]
        assert "day-4" in page(root, list_url(Session), last_activity_at_from="no day")

    @pytest.mark.slow
    def test_a_search_takes_a_constant_number_of_queries(self, root: Client, ada: UserProfile) -> None:
        def asked() -> int:
            return queries_of(root, f"{list_url(Session)}?q=kiln")

        talk(ada, 2, session_id="s")
        few = asked()
        for number in range(30):
            talk(ada, 2, session_id=f"s{number}")
        assert few == asked() <= MAX_QUERIES
