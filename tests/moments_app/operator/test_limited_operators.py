"""Operators limited to some applications see nothing of others, even if a page forgets to filter."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_otp.oath import totp
from django_q.models import Schedule

from memoryproject.database.verification import row_security_problems
from memoryproject.schedules import RUN_TASK
from memoryproject.settings import CONF
from moments_app.jobs.runner import run_job
from moments_app.models import (
    Circuit,
    ContextUsage,
    Entity,
    Job,
    MemoryAtom,
    MemoryStream,
    Moment,
    PromptResource,
    PromptVersion,
)
from moments_app.models.context_receipt import ContextTokens
from sessions_app.admin.links import change_url, list_url
from sessions_app.limited_operators import OPERATOR_ROLE, acting_as_limited_operator, unlimited
from sessions_app.models import ApiKey, Application, Event, LoginLimit, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.provenance import declared
from sessions_app.security.second_factor import UnconfirmedKey
from tests.support.entities import make_entity
from tests.support.every_page import every_address
from tests.support.furnished import furnish
from tests.support.jobs import build
from tests.support.kept_rows import KeptRows
from tests.support.operator import operator
from tests.support.pages import page
from tests.support.planted import plant
from tests.support.streams import note
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

MARK = b"planted"
RIGHTS = ("view_", "add_", "change_", "delete_", "read_userprofile", "preview_context", "export_userprofile")


@pytest.fixture
def other(transactional_db: None) -> Application:
    """The operator's only application."""
    return Application.objects.create(name="other")


@pytest.fixture
def eve(other: Application) -> Client:
    """An operator with all permissions in one application."""
    client = operator(*RIGHTS)
    LoginLimit.objects.create(login=User.objects.get(pk=client.session["_auth_user_id"]), application=other)
    return client


@pytest.fixture
def own(other: Application) -> Session:
    """A session in the operator's application, of a person whose name also exists in the other one."""
    session = talk(UserProfile.objects.ensure("ada", other.pk), 60)
    build(session)
    return session


def plant_in_the_first_application() -> None:
    """Mark all texts of the first application except prompts, which are global."""
    prompts = [*PromptResource.objects.all(), *PromptVersion.objects.all()]
    plant()
    for prompt in prompts:
        before = {field.attname: getattr(prompt, field.attname) for field in prompt._meta.concrete_fields}
        type(prompt)._base_manager.filter(pk=prompt.pk).update(**before)


def rows() -> dict[str, Any]:
    """Return how many rows each table has and its last transaction. Ignore logins and events of reading."""
    counted = {}
    with connection.cursor() as cursor:
        for model in apps.get_models():
            table = model._meta.db_table
            but = "WHERE type <> 'user_read'" if model is Event else ""
            if table != "django_session":
                cursor.execute(f"SELECT count(*), max(xmin::text::bigint) FROM {table} {but}")
                counted[table] = cursor.fetchone()
    return counted


def answered(answer: Any) -> bytes:
    return b"".join(answer) if answer.streaming else answer.content


def test_row_35_the_dashboard_counts_only_contexts_of_the_operators_application(
    other: Application, eve: Client
) -> None:
    today = timezone.now().date()
    ContextUsage.objects.add(
        {(DEFAULT, today): ContextTokens(1, 777, 9_000), (other.pk, today): ContextTokens(1, 1_500, 9_000)}
    )
    shown = page(eve, reverse("admin:index"))
    assert '<td class="rem-number">1,500</td>' in shown and ">777<" not in shown and ">2,277<" not in shown


@pytest.mark.slow
def test_row_35_no_page_shows_a_limited_operator_data_of_another_application(
    other: Application, kept_rows: KeptRows, request: pytest.FixtureRequest
) -> None:
    kept_rows.have("furnished", furnish)
    plant_in_the_first_application()
    own: Session = request.getfixturevalue("own")
    eve: Client = request.getfixturevalue("eve")
    addresses = every_address()
    cache.clear()
    shown = {address: eve.get(address.url) for address in addresses}
    assert [address.url for address, answer in shown.items() if MARK in answered(answer)] == []
    assert [address.url for address, answer in shown.items() if answer.status_code >= 500] == []
    for address in addresses:
        if address.name.endswith("_changelist"):
            assert MARK not in answered(eve.get(address.url, {"q": "ada"})), address.url
    assert MARK not in answered(eve.get(list_url(Session), {"q": "kiln"}))
    if "lab" in CONF.extras:
        recall = reverse("admin:moments_app_memoryatom_recall")
        assert MARK not in answered(eve.get(recall, {"user_id": "ada", "query": "kiln"}))
    assert change_url(own).encode() in answered(eve.get(list_url(Session)))


@pytest.mark.slow
def test_row_35_posts_of_a_limited_operator_do_not_change_another_application(
    other: Application, kept_rows: KeptRows, request: pytest.FixtureRequest
) -> None:
    kept_rows.have("furnished", furnish)
    eve: Client = request.getfixturevalue("eve")
    before = rows()
    wrong = {}
    for address in every_address():
        if address.name in ("login", "logout", "sessions_app_apikey_add", "moments_app_memorystream_add"):
            continue
        status = eve.post(address.url, {"post": "yes", "user_id": "ada", "content": "x", "after": "1"}).status_code
        if status >= 500:
            wrong[address.url] = status
    assert wrong == {}
    assert rows() == before


class TestOnesOwn:
    """Limited operators can work as usual in their applications."""

    def test_a_scheduled_task_shows_that_a_worker_is_running(self, eve: Client) -> None:
        assert "No worker is running" in page(eve, reverse("admin:index"))
        run_job(Job.objects.request_task("count_words", RUN_TASK, "count_words", requested_by="schedule").job_id)
        shown = page(eve, reverse("admin:index"))
        assert "No worker is running" not in shown and list_url(Schedule) not in shown

    @pytest.mark.slow
    def test_they_can_read_preview_export_and_search(self, eve: Client, own: Session) -> None:
        moment = Moment.objects.filter(source_session=own).earliest("pk")
        for url in (
            reverse("admin:index"),
            change_url(own),
            change_url(own.user),
            change_url(moment),
            reverse("admin:sessions_app_session_context", args=[own.pk]),
            reverse("admin:moments_app_moment_chain", args=[own.user_id]),
            f"{list_url(Session)}?q=kiln",
        ):
            assert eve.get(url).status_code == 200, url
        assert change_url(own) in page(eve, list_url(Session), q="point")
        export = eve.get(reverse("admin:sessions_app_userprofile_export", args=[own.user_id]))
        assert b"".join(export).startswith(b"PK")
        assert set(Event.objects.filter(type="user_read").values_list("user_pk", flat=True)) == {own.user_id}

    @pytest.mark.slow
    def test_they_can_correct_request_and_erase(self, eve: Client, own: Session, ada: UserProfile) -> None:
        stream = MemoryStream.objects.ensure_of_person(own.user, "default")
        atom = note(stream, "Throws pots.", "fact")
        eve.post(reverse("admin:moments_app_memoryatom_evict", args=[atom.pk]))
        assert MemoryAtom.objects.get().state == "evicted"
        eve.post(reverse("admin:sessions_app_session_build", args=[own.pk]), {"lag": "2"})
        assert Job.objects.filter(requested_by__startswith="operator:").exists()
        answer = eve.post(reverse("admin:sessions_app_userprofile_erase", args=[own.user_id]), {"user_id": "ada"})
        assert answer.status_code == 302
        assert list(UserProfile.objects.values_list("pk", flat=True)) == [ada.pk]

    def test_they_add_keys_only_to_their_application(self, eve: Client, other: Application) -> None:
        cache.clear()
        for application in (DEFAULT, other.pk):
            made = {"name": f"of {application}", "scope": "read", "application": application}
            assert eve.post(reverse("admin:sessions_app_apikey_add"), made).status_code == 200
        assert list(ApiKey.objects.values_list("name", "application")) == [(f"of {other.pk}", other.pk)]

    def test_pages_of_the_site_are_forbidden(self, eve: Client) -> None:
        closed = ("auth_user", "auth_group", "moments_app_circuit", "moments_app_embeddingmodel", "django_q_schedule")
        for name in closed:
            assert eve.get(reverse(f"admin:{name}_changelist")).status_code == 403
        prompt = PromptResource.objects.earliest("pk")
        add = reverse("admin:moments_app_promptresource_add_version", args=[prompt.pk])
        assert eve.post(add, {"content": "Theirs.", "after": "1"}).status_code == 403
        assert prompt.versions.count() == 1

    @pytest.mark.slow
    def test_row_35_a_held_job_names_its_circuit_but_the_circuit_with_others_people_is_forbidden(
        self, eve: Client, own: Session, ada: UserProfile
    ) -> None:
        circuit = Circuit.objects.create(engine="test-model", work="text", state="open", failing=[ada.pk, own.user_id])
        job = Job.objects.request("build_moments", own, requested_by="test")
        Job.objects.filter(pk=job.pk).update(circuit=circuit)
        shown = page(eve, change_url(job))
        assert str(circuit) in shown and change_url(circuit) not in shown
        assert change_url(circuit) in page(operator(), change_url(job))
        assert eve.get(change_url(circuit)).status_code == 403
        for route in ("try", "close"):
            url = reverse(f"admin:moments_app_circuit_{route}", args=[circuit.pk])
            assert eve.post(url).status_code == 403

    def test_their_account_pages_link_only_to_pages_that_they_may_open(self, eve: Client) -> None:
        for name in ("password_change", "auth_user_second_factor"):
            links = set(re.findall(r'href="(/admin/[^"#?]+)"', page(eve, reverse(f"admin:{name}"))))
            assert list_url(UserProfile) in links
            assert [link for link in links if eve.get(link).status_code == 403] == []

    @pytest.mark.slow
    def test_they_manage_their_own_password_and_second_factor(self, eve: Client) -> None:
        assert eve.get(reverse("admin:password_change")).status_code == 200
        own = reverse("admin:auth_user_second_factor")
        [signed] = re.findall(r'name="offer" value="([^"]+)"', page(eve, own))
        login = User.objects.get(pk=eve.session["_auth_user_id"])
        code = f"{totp(bytes.fromhex(UnconfirmedKey.from_form(login, signed).key)):06}"  # type: ignore[union-attr]
        assert b"Save these recovery codes" in eve.post(own, {"offer": signed, "code": code}).content
        assert b"This code is wrong" in eve.post(f"{own}off/", {"code": "wrong"}).content
        events = list(Event.objects.order_by("pk").values_list("type", flat=True))
        assert events == ["second_factor_set_up", "second_factor_refused"]


class TestSettingIt:
    """The limits on the page of a login."""

    @pytest.mark.slow
    def test_an_administrator_limits_a_login_that_is_not_a_superuser(self, other: Application) -> None:
        root = operator()
        for login in (User.objects.create_user("bob", is_staff=True), User.objects.get(username="root")):
            shown = page(root, change_url(login))
            assert "pplications that the login may see" in shown
            root.post(
                change_url(login),
                {
                    "username": login.username,
                    "is_staff": "on",
                    "is_active": "on",
                    "is_superuser": "on" if login.is_superuser else "",
                    "date_joined_0": "2026-03-02",
                    "date_joined_1": "09:30:00",
                    "limits-TOTAL_FORMS": "1",
                    "limits-INITIAL_FORMS": "0",
                    "limits-0-application": str(other.pk),
                },
            )
        assert list(LoginLimit.objects.values_list("login__username", "application")) == [("bob", other.pk)]


class TestTheLock:
    """The limits are enforced by PostgreSQL, without a filter in the code."""

    @pytest.fixture
    def limited(self, other: Application, own: Session, ada: UserProfile) -> Iterator[Application]:
        build(talk(ada, 60))
        make_entity(ada, "Order felt")
        with acting_as_limited_operator(1, [other.pk]):
            yield other

    @pytest.mark.slow
    @pytest.mark.parametrize("model", [UserProfile, Session, Message, Moment, Job, Event, Entity, ApiKey])
    def test_row_35_an_unfiltered_query_sees_only_rows_of_the_application(
        self, limited: Application, model: Any
    ) -> None:
        def owner(row: Any) -> int | None:
            person = row.pk if isinstance(row, UserProfile) else getattr(row, "user_id", None) or row.user_pk
            return UserProfile.objects.get(pk=person).application_id

        seen = {owner(row) for row in model._default_manager.all()}
        assert seen == (set() if model in (Entity, ApiKey) else {limited.pk})
        assert {owner(row) for row in model._default_manager.iterator(chunk_size=1)} == seen  # a server-side cursor
        with transaction.atomic():
            assert {owner(row) for row in model._default_manager.iterator(chunk_size=1)} == seen
        with unlimited():
            assert model._default_manager.exists() is (model is not ApiKey)

    def test_row_35_rows_of_another_application_cannot_be_written(self, limited: Application) -> None:
        with unlimited():
            ada = UserProfile.objects.get(application=DEFAULT)
        assert Session.objects.filter(user=ada).update(title="x") == 0
        with pytest.raises(DatabaseError, match="row-level security"):
            Session.objects.create(user=ada, session_id="planted")
        with pytest.raises(DatabaseError, match="row-level security"):
            UserProfile.objects.update(application=DEFAULT)
        with pytest.raises(DatabaseError, match="row-level security"):
            LoginLimit.objects.create(login_id=1, application=limited)

    def test_a_transaction_has_its_role_and_the_connection_does_not(self, limited: Application) -> None:
        def role() -> Any:
            with connection.cursor() as cursor:
                cursor.execute("SELECT current_user")
                return cursor.fetchone()[0]

        with transaction.atomic():
            assert role() == role() == OPERATOR_ROLE
            with pytest.raises(RuntimeError), unlimited():
                pass
        with unlimited():
            assert role() != OPERATOR_ROLE
        assert connection.connection.execute("SELECT current_user").fetchone()[0] != OPERATOR_ROLE

    def test_every_table_with_personal_data_has_a_policy_for_operators(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT tablename FROM pg_policies WHERE policyname = 'operators'")
            limited = {name for (name,) in cursor}
        personal = {provenance.model._meta.db_table for provenance in declared()}
        assert personal <= limited
        assert row_security_problems() == []


def test_histories_hide_entries_of_other_operators(eve: Client, own: Session) -> None:
    root = User.objects.create_superuser("root")
    LogEntry.objects.log_actions(root.pk, [own], 2, change_message="planted", single_object=True)
    assert "planted" not in page(eve, f"{change_url(own).removesuffix('change/')}history/")
