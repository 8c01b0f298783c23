"""The log records which operators read data of which people."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from psycopg.types.json import Jsonb

from memoryproject.settings import CONF
from moments_app.models import Entity, Moment
from sessions_app.admin.links import change_url, list_url
from sessions_app.models import Event, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.models.event import NOTE_READING_SQL, READ_EVERY, USER_EXPORTED, USER_READ
from sessions_app.people.erase import erase_user
from tests.support.entities import make_entity
from tests.support.jobs import build
from tests.support.operator import operator
from tests.support.pages import page
from tests.support.streams import candidate, shard
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def eve(transactional_db: None) -> Client:
    """An operator with all view permissions."""
    return operator("view_", "read_userprofile", "preview_context", "export_userprofile")


@pytest.fixture
def session(ada: UserProfile) -> Session:
    """A conversation with moments."""
    talked = talk(ada, 60)
    build(talked)
    return talked


def read() -> list[tuple[str, str]]:
    """Return the reading events: the person and the page."""
    names: dict[int | None, str] = dict(UserProfile.objects.values_list("pk", "user_id"))
    events = Event.objects.filter(type=USER_READ).order_by("pk")
    return [(names[pk], payload["page"]) for pk, payload in events.values_list("user_pk", "payload")]


def tab_url(session: Session, tab: str) -> str:
    return reverse(f"admin:sessions_app_session_{tab}", args=[session.pk])


class TestPages:
    """Every page that shows data of a person."""

    @pytest.mark.slow
    def test_row_35_each_page_about_a_person_is_recorded(self, eve: Client, session: Session) -> None:
        moment = Moment.objects.earliest("pk")
        pages = {
            change_url(session.user): "person",
            change_url(session): "session: change",
            tab_url(session, "details"): "session: details",
            tab_url(session, "context"): "session: context",
            tab_url(session, "turns"): "session: turns",
            change_url(moment): "moment",
            f"{change_url(moment).removesuffix('change/')}history/": "moment: history",
            reverse("admin:moments_app_moment_reading", args=[moment.pk]): "moment: reading",
            reverse("admin:moments_app_moment_chain", args=[session.user_id]): "moment: chain",
        }
        if "lab" in CONF.extras:
            pages[f"{reverse('admin:moments_app_memoryatom_recall')}?user_id=ada&query=kiln"] = (
                "fact or observation: recall"
            )
        for url in pages:
            assert eve.get(url).status_code == 200
        assert read() == [("ada", page) for page in pages.values()]
        actors = set(Event.objects.filter(type=USER_READ).values_list("actor", flat=True))
        assert actors == {"operator:view_-read_userprofile-preview_context-export_userprofile"}

    def test_row_35_each_export_is_recorded(self, eve: Client, ada: UserProfile) -> None:
        url = reverse("admin:sessions_app_userprofile_export", args=[ada.pk])
        for _ in range(2):
            assert b"".join(eve.get(url))
        exported = Event.objects.filter(type=USER_EXPORTED)
        assert list(exported.values_list("user_pk", flat=True)) == [ada.pk, ada.pk]

    def test_row_35_a_list_of_candidates_is_recorded_for_each_person(self, eve: Client, session: Session) -> None:
        bo = UserProfile.objects.ensure("bo")
        stream = shard("repairs")
        for person in (session.user, bo):
            candidate(person, stream, f"Ask {person} before you order.")
        assert eve.get(reverse("admin:moments_app_release_waiting")).status_code == 200
        assert sorted(read()) == [("ada", "release: waiting"), ("bo", "release: waiting")]

    def test_refused_requests_are_not_recorded(self, session: Session) -> None:
        client = operator("view_session")
        assert client.get(tab_url(session, "context")).status_code == 403
        assert client.get(change_url(Moment.objects.earliest("pk"))).status_code == 403
        assert client.get(reverse("admin:sessions_app_session_change", args=[0])).status_code == 404
        assert read() == []


class TestLists:
    """Lists count as reading the people whose rows they show."""

    def test_row_35_a_list_is_recorded_for_the_people_whose_rows_it_shows(self, eve: Client, ada: UserProfile) -> None:
        bo = UserProfile.objects.ensure("bo")
        for person in (ada, bo):
            make_entity(person, f"Order felt for {person}")
        eve.get(list_url(Entity, q="ada"))
        assert read() == [("ada", "tasks and goals")]
        eve.get(list_url(Entity))
        assert sorted(read()) == [("ada", "tasks and goals"), ("bo", "tasks and goals")]

    def test_row_35_a_list_that_only_names_people_is_recorded_when_searched_for_one(
        self, eve: Client, session: Session
    ) -> None:
        url = reverse("admin:moments_app_job_changelist")
        eve.get(url)
        assert read() == []
        eve.get(url, {"q": "ada"})
        assert read() == [("ada", "jobs")]


class TestHowOften:
    """Reloading doesn't flood the log, and recording costs a page one statement."""

    @pytest.mark.slow
    def test_a_page_is_recorded_once_an_hour_per_operator_and_person(self, eve: Client, ada: UserProfile) -> None:
        other = operator("view_userprofile")
        for client in (eve, eve, other, eve, other):
            client.get(change_url(ada))
        assert len(read()) == 2
        Event.objects.update(created_at=timezone.now() - READ_EVERY - timedelta(seconds=1))
        eve.get(change_url(ada))
        assert len(read()) == 3

    @pytest.mark.slow
    def test_all_people_of_a_list_are_recorded_in_one_statement(self, eve: Client, ada: UserProfile) -> None:
        def statements() -> list[str]:
            with CaptureQueriesContext(connection) as captured:
                eve.get(list_url(Entity))
            return [query["sql"] for query in captured if "INSERT" in query["sql"]]

        for number in range(30):
            person = UserProfile.objects.ensure(f"person-{number}")
            make_entity(person, "Order felt")
        assert len(statements()) == 1 and len(read()) == 30
        assert len(statements()) == 1 and len(read()) == 30

    @pytest.mark.slow
    def test_readings_are_found_by_an_index(self, ada: UserProfile) -> None:
        """Plan each statement with many events of many people, one tenth of them readings."""
        Event.objects.bulk_create(
            Event(type=USER_READ if number % 10 == 0 else "append", user_pk=ada.pk + number // 100)
            for number in range(2_000)
        )
        noted: dict[str, Any] = {
            "people": [ada.pk],
            "actor": "",
            "payload": Jsonb({}),
            "now": timezone.now(),
            "since": timezone.now() - READ_EVERY,
        }
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE sessions_app_event")
            cursor.execute(f"EXPLAIN {NOTE_READING_SQL}", noted)
            assert "event_reading" in str(cursor.fetchall())
        assert "event_reading" in Event.objects.readings_of(ada)[:10].explain()


class TestThePersonsPage:
    """The access log on the page of a person."""

    @pytest.mark.slow
    def test_row_35_the_page_of_a_person_shows_who_read_and_exported(self, eve: Client, ada: UserProfile) -> None:
        shown = page(eve, change_url(ada))
        assert "No access recorded yet." in shown
        b"".join(eve.get(reverse("admin:sessions_app_userprofile_export", args=[ada.pk])))
        shown = page(operator("view_userprofile", "view_event"), change_url(ada))
        assert "exported all data" in shown and "operator view_-read_userprofile" in shown
        assert f'href="{change_url(ada)}"' in shown

    def test_the_access_log_is_hidden_without_permission_to_view_events(self, ada: UserProfile) -> None:
        assert "Access log" not in page(operator("view_userprofile"), change_url(ada))

    @pytest.mark.slow
    def test_an_erasure_removes_the_person_from_readings(self, eve: Client, ada: UserProfile) -> None:
        eve.get(change_url(ada))
        erase_user("ada", application=DEFAULT, actor="operator:eve")
        assert list(Event.objects.filter(type=USER_READ).values_list("user_pk", "payload")) == [(None, {})]
        Event.objects.note_reading([ada.pk], actor="operator:eve", page="profile", address="/admin/")
        assert Event.objects.filter(type=USER_READ).count() == 1
