"""The database roles of processes: a web process sees nothing until it names a person, and no process owns tables."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.utils import ProgrammingError
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from memoryproject.apps import own_logins
from memoryproject.schedules import schedules
from memoryproject.status.checks import readiness
from moments_app.models import EmbeddingModel, Job, Moment
from moments_app.models.embedding import KINDS
from moments_app.moments.build import BuildMoments
from sessions_app.database.database_roles import (
    ADMIN_ROLE,
    WEB_ROLE,
    WORKER_ROLE,
    administrators_sql,
    grant_privileges,
    missing_grants,
)
from sessions_app.database.transactions import ADMIN, using_role
from sessions_app.models import ApiKey, Message, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from tests.support.api import Api
from tests.support.concurrency import on_its_own_connection, wait_until_somebody_waits
from tests.support.furnished import furnish
from tests.support.jobs import work_off
from tests.support.operator import operator
from tests.support.other_database import new_server
from tests.support.roles import logged_in_as
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

# The tables that a web process reads before it names a person. They contain no text of a person.
SEEN_BY_WEB = {"sessions_app_apikey", "sessions_app_application", "sessions_app_dailylimit", "django_migrations"}


def tables() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [table for (table,) in cursor]


def number_of(table: str) -> int:
    """Return how many rows of the table are visible: 0 if it can't be read."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {table}")
            return int(cursor.fetchone()[0])
    except ProgrammingError:
        return 0


class TestWeb:
    """A web process, by its login or by the role that its transactions set."""

    @pytest.mark.slow
    def test_row_9_unfiltered_queries_find_no_personal_data_before_a_person_is_named(self) -> None:
        furnish()
        there = {table for table in tables() if number_of(table)}
        assert there >= {"sessions_app_message", "moments_app_moment", "moments_app_memoryatom", "auth_user"}
        with logged_in_as(WEB_ROLE):
            assert {table for table in there if number_of(table)} == SEEN_BY_WEB & there

    def test_row_9_only_the_profile_of_the_named_person_is_visible(self, ada: UserProfile, bo: UserProfile) -> None:
        with logged_in_as(WEB_ROLE):
            with acting_for("ada", application=DEFAULT) as user:
                assert user == ada and list(UserProfile.objects.all()) == [ada]
            with acting_for("unknown", application=DEFAULT) as nobody:
                assert nobody is None and not UserProfile.objects.exists()
            with acting_for("cleo", application=DEFAULT, create=True, for_write=True) as made:
                assert made and made.user_id == "cleo"
            assert not UserProfile.objects.exists()

    @pytest.mark.parametrize(
        "statement",
        [
            "SET ROLE {owner}",
            "ALTER TABLE sessions_app_message DISABLE ROW LEVEL SECURITY",
            "SET row_security = off; SELECT * FROM sessions_app_userprofile",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "DELETE FROM sessions_app_apikey",
            "UPDATE sessions_app_apikey SET scope = 'admin'",
            f"ALTER ROLE {WEB_ROLE} SUPERUSER",
        ],
    )
    def test_row_9_the_web_login_cannot_become_the_owner_or_change_row_security(self, statement: str) -> None:
        owner = connection.settings_dict["USER"]
        ApiKey.objects.issue("k")
        with logged_in_as(WEB_ROLE), pytest.raises(DatabaseError), connection.cursor() as cursor:
            cursor.execute(statement.format(owner=owner))
        assert ApiKey.objects.get().scope == "write"

    @pytest.mark.slow
    def test_the_web_login_can_serve_all_requests(self, service: Api, as_ada: Api, ada: UserProfile) -> None:
        said = [{"role": "user", "content": "I moved to Lisbon."}]
        root = operator()
        with logged_in_as(WEB_ROLE):
            assert service.post("sessions/s1/messages", user_id="ada", messages=said).status_code == 201
            assert service.post("sessions/s1/messages", user_id="new", messages=said).status_code == 201
            assert as_ada.get("sessions").json()["total"] == 1
            assert "Lisbon" in service.get("memory/context", user_id="ada", session_id="s1").json()["context"]
            made = service.post("retractions", user_id="ada", session_id="s1", reason="x")
            assert made.status_code == 201
            assert root.get(reverse("admin:sessions_app_userprofile_change", args=[ada.pk])).status_code == 200
            assert root.get(reverse("admin:index")).status_code == 200
            assert service.delete("users/new").status_code == 200
            assert Client().get("/metrics", headers=service.headers).status_code == 200
            with using_role(ADMIN):
                assert readiness() == []
        assert Message.objects.filter(user=ada).count() == 1

    def test_role_and_person_are_reset_after_a_request(self, service: Api, ada: UserProfile) -> None:
        root = operator()
        for answer in (service.get("sessions", user_id="ada"), root.get(reverse("admin:index"))):
            assert answer.status_code == 200
            with connection.cursor() as cursor:
                cursor.execute("SELECT current_user = session_user, current_setting('memory.named', true)")
                assert cursor.fetchone() in ((True, None), (True, ""))

    def test_a_page_of_an_operator_shows_all_people(self, ada: UserProfile, bo: UserProfile) -> None:
        with logged_in_as(WEB_ROLE), using_role(None):
            assert not UserProfile.objects.exists()
        shown = operator().get(reverse("admin:sessions_app_userprofile_changelist")).content.decode()
        assert "ada" in shown and "bo" in shown


class TestWorker:
    """A worker sees the rows of all people, but no logins, and can't alter tables."""

    def test_the_worker_login_can_run_jobs(self, ada: UserProfile) -> None:
        session = talk(ada, 40)
        Job.objects.request(BuildMoments.name, session, requested_by="test", force=True)
        with logged_in_as(WORKER_ROLE):
            work_off()
        assert Moment.objects.filter(user=ada).exists()
        assert not Job.objects.filter(status="failed").exists()

    @pytest.mark.slow
    @pytest.mark.usefixtures("archive_folder")
    def test_the_worker_login_can_run_all_schedules(self) -> None:
        furnish()
        EmbeddingModel.objects.all().delete()
        with logged_in_as(WORKER_ROLE):
            for scheduled in schedules().values():
                scheduled.run()
            model = EmbeddingModel.objects.ensure("another", 3)
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_indexes WHERE indexname ~ %s", [f"_nearest_{model.pk}$"])
            assert cursor.fetchone() == (len(KINDS),)

    def test_the_worker_login_sees_no_logins_and_cannot_alter_tables(self) -> None:
        operator()
        with logged_in_as(WORKER_ROLE):
            assert number_of("auth_user") == number_of("otp_totp_totpdevice") == 0
            for change in ("ALTER TABLE sessions_app_message DISABLE ROW LEVEL SECURITY", "DROP TABLE django_q_task"):
                with pytest.raises(ProgrammingError, match="must be owner"), connection.cursor() as cursor:
                    cursor.execute(change)
            with pytest.raises(ProgrammingError, match="permission denied"), connection.cursor() as cursor:
                cursor.execute(f"SET ROLE {ADMIN_ROLE}")


class TestGrants:
    """After `migrate`, the roles have their rights on every table."""

    def test_no_grants_are_missing_after_migrate(self) -> None:
        assert list(missing_grants()) == []

    def test_missing_grants_on_a_new_table_are_added(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE new_one (id bigint); ALTER TABLE new_one ENABLE ROW LEVEL SECURITY")
        try:
            assert {statement.split(" ON ")[1].split()[0] for statement in missing_grants()} == {"new_one"}
            grant_privileges()
            assert list(missing_grants()) == []
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO new_one VALUES (1)")
            with logged_in_as(WORKER_ROLE):
                assert number_of("new_one") == 1
            with logged_in_as(WEB_ROLE):
                assert number_of("new_one") == 0
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DROP TABLE new_one")

    @pytest.mark.slow(seconds=5)
    def test_two_databases_of_a_new_server_can_be_granted_concurrently(self) -> None:
        with new_server(), ThreadPoolExecutor(1) as another:
            with connection.cursor() as cursor:
                cursor.execute(administrators_sql("postgres"))
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"ALTER ROLE {WEB_ROLE} LOGIN; ALTER ROLE {WORKER_ROLE} LOGIN")
                seen_to = another.submit(on_its_own_connection, grant_privileges)
                wait_until_somebody_waits()
            seen_to.result()

    def test_a_web_process_that_logs_in_as_the_owner_gets_a_warning(self, settings: Settings) -> None:
        assert own_logins() == []
        settings.DATABASE_IS_EMBEDDED = False
        [warning] = own_logins()
        assert "WEB_DATABASE_URL" in warning.msg
        settings.WEB_HAS_LOGIN = True
        assert own_logins() == []

    def test_no_process_role_bypasses_row_security(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT bool_or(rolsuper OR rolbypassrls OR rolcreaterole OR rolinherit) FROM pg_roles "
                "WHERE rolname = ANY(%s)",
                [[WEB_ROLE, ADMIN_ROLE, WORKER_ROLE]],
            )
            assert cursor.fetchone() == (False,)
