"""Daily request limits of keys and applications."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from sessions_app.models import ApiKey, DailyLimit, DailyUsage, UserProfile
from sessions_app.models.application import DEFAULT, Application
from sessions_app.models.daily_limit import Amounts, Subject, SubjectKind, tomorrow, usage_writer
from sessions_app.people.erase import erase_user
from tests.support.api import Api
from tests.support.concurrency import at_once
from tests.support.daily_limits import begin_again, limit, next_day, used

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def key(service: Api) -> ApiKey:
    """The key of `service`."""
    return ApiKey.objects.get(name="service")


def say(api: Api, text: str = "ten bytes.", number: int = 1, **fields: Any) -> Any:
    """Append that many messages to a session of Ada."""
    said = [{"role": "user", "content": text}] * number
    return api.post("sessions/s1/messages", **{"user_id": "ada", "messages": said} | fields)


def error_of(answer: Any) -> str:
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["code"], error["attr"]) == (429, "daily_limit", None)
    wait = (tomorrow() - timezone.now()).total_seconds()
    assert wait <= int(answer["Retry-After"]) <= wait + 5
    return str(error["detail"])


class TestRequests:
    def test_requests_over_the_limit_are_429_and_not_counted(self, service: Api, key: ApiKey) -> None:
        limit(key, requests=3)
        assert [service.get("sessions", user_id="ada").status_code for _ in range(3)] == [200] * 3
        told = "The daily limit key-requests is reached: 3 requests a day for this key."
        assert error_of(service.get("sessions", user_id="ada")).startswith(told)
        assert used(key).requests == 3  # a refused request doesn't count

    def test_the_settings_set_limits_for_each_key_and_application(self, service: Api, settings: Settings) -> None:
        settings.DAILY_LIMITS = settings.DAILY_LIMITS.model_copy(update={"application_requests": 2})
        assert [say(service).status_code for _ in range(3)] == [201, 201, 429]
        begin_again()
        assert say(service).status_code == 429

    def test_own_limits_override_the_settings(self, service: Api, key: ApiKey, settings: Settings) -> None:
        settings.DAILY_LIMITS = settings.DAILY_LIMITS.model_copy(update={"key_requests": 1})
        limit(key, requests=2)
        codes = [service.get("sessions", user_id="ada").status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        limit(key, requests=0)  # unlimited
        assert service.get("sessions", user_id="ada").status_code == 200
        limit(key, requests=None, usd=5)
        assert service.get("sessions", user_id="ada").status_code == 429

    def test_limits_are_reset_every_day(self, service: Api, key: ApiKey) -> None:
        limit(key, requests=1)
        assert service.get("sessions", user_id="ada").status_code == 200
        assert service.get("sessions", user_id="ada").status_code == 429
        next_day()
        assert service.get("sessions", user_id="ada").status_code == 200
        assert service.get("sessions", user_id="ada").status_code == 429

    def test_another_process_counts_on_from_the_stored_usage(self, service: Api, key: ApiKey) -> None:
        limit(key, requests=2)
        service.get("sessions", user_id="ada")
        begin_again()
        codes = [service.get("sessions", user_id="ada").status_code for _ in range(2)]
        assert codes == [200, 429]

    def test_concurrent_requests_are_each_counted_once(self, key: ApiKey, service: Api) -> None:
        limit(key, requests=20)

        def call(number: int) -> list[int]:
            if number == 0:
                for _ in range(5):
                    usage_writer.flush()
                return []
            paths = ["sessions?user_id=ada", "sessions?user_id=bo", "usage"] * 3
            return [service.get(path).status_code for path in paths]

        codes = [code for answered in at_once(call, 6) for code in answered]
        assert codes.count(429) == 5 * 6 - 20
        assert used(key).requests == 20

    def test_adding_usage_does_not_wait_for_locked_rows(self, key: ApiKey) -> None:
        subject = Subject(SubjectKind.KEY, key.pk)
        DailyUsage.objects.add({subject: Amounts(requests=1)})

        def count(_: int) -> None:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '1ms'")
                DailyUsage.objects.add({subject: Amounts(requests=1)})

        with transaction.atomic():
            DailyUsage.objects.add({subject: Amounts(requests=1)})  # this transaction locks the row
            at_once(count, 4)
        assert used(key).requests == 6


class TestApplications:
    @pytest.fixture
    def other(self, transactional_db: None) -> Application:
        return Application.objects.create(name="other")

    @pytest.fixture
    def abroad(self, other: Application) -> Api:
        """A client with a service key of the other application."""
        return Api(ApiKey.objects.issue("abroad", application=other.pk, scope="admin")[1])

    def test_all_keys_of_an_application_share_its_limits(self, service: Api, as_ada: Api, abroad: Api) -> None:
        limit(Application.objects.get(pk=DEFAULT), requests=2)
        assert [say(service).status_code, say(as_ada).status_code] == [201, 201]
        told = "The daily limit application-requests is reached: 2 requests a day for this application."
        assert error_of(service.get("sessions", user_id="bo")).startswith(told)
        assert [say(abroad).status_code for _ in range(3)] == [201] * 3

    def test_row_9_a_user_key_does_not_see_the_usage_of_its_application(self, service: Api, as_ada: Api) -> None:
        limit(Application.objects.get(pk=DEFAULT), requests=100)
        assert as_ada.get("usage").json()["application"] is None
        assert "RateLimit" not in as_ada.get("sessions")
        assert service.get("usage").json()["application"]["requests"] == {"used": 1, "limit": 100}
        assert '"application-requests";q=100' in service.get("sessions", user_id="ada")["RateLimit-Policy"]


class TestWhatItCosts:
    def statements(self, api: Api) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            assert say(api).status_code == 201
        return [query["sql"] for query in captured.captured_queries]

    @pytest.mark.slow
    def test_limits_add_no_statements_to_an_append(self, service: Api, key: ApiKey) -> None:
        self.statements(service)
        without = self.statements(service)
        assert not any("count_usage" in sql for sql in without)
        limit(key, requests=100)
        looked_up = [sql for sql in self.statements(service) if "count_usage" in sql]
        assert len(looked_up) == 1  # one lookup for the key and its application, cached for two seconds
        assert len(self.statements(service)) == len(without)

    def test_the_meter_writes_all_usage_in_one_statement(self, service: Api, ada: UserProfile, bo: UserProfile) -> None:
        for name in ("ada", "bo"):
            service.get("sessions", user_id=name)
        with CaptureQueriesContext(connection) as captured:
            usage_writer.flush()
        assert len([query for query in captured.captured_queries if "count_usage" in query["sql"]]) == 1


class TestWhatIsTold:
    def test_headers_report_existing_limits(self, service: Api, key: ApiKey) -> None:
        assert "RateLimit" not in service.get("sessions", user_id="ada")
        limit(key, requests=10)
        limit(key.application, requests=100, model_calls=3)
        answer = say(service)
        policies = '"key-requests";q=10;w=86400, "application-requests";q=100;w=86400'
        assert answer["RateLimit-Policy"] == policies
        key_left, application_left = answer["RateLimit"].split(", ")
        assert key_left.startswith('"key-requests";r=8;t=')
        assert application_left.startswith('"application-requests";r=98;t=')
        assert int(key_left.rpartition("=")[2]) <= 86_400

    def test_a_refusal_reports_that_nothing_is_left(self, service: Api, key: ApiKey) -> None:
        limit(key, requests=1)
        assert ";r=0;" in service.get("sessions", user_id="ada")["RateLimit"]
        assert ";r=0;" in service.get("sessions", user_id="ada")["RateLimit"]

    def test_usage_can_be_read_when_the_limit_is_reached(self, service: Api, key: ApiKey) -> None:
        limit(key, requests=1, usd="0.5")
        say(service)
        assert say(service).status_code == 429
        answer = service.get("usage", user_id="ada")
        assert answer.status_code == 200
        told = answer.json()
        assert told["key"]["requests"] == {"used": 1, "limit": 1}
        assert told["key"]["usd"] == {"used": "0.000000", "limit": "0.500000"}
        assert told["application"]["requests"] == {"used": 1, "limit": None}
        assert {*told} == {"day", "ends_at", "key", "application"}


class TestTables:
    def test_a_row_has_exactly_one_subject(self, key: ApiKey) -> None:
        for model, more in ((DailyLimit, {}), (DailyUsage, {"day": timezone.now().date()})):
            for whose in ({}, {"key": key, "application": key.application}):
                with pytest.raises(IntegrityError, match="of_one"):
                    model.objects.create(**whose, **more)

    def test_a_subject_has_at_most_one_row_of_limits(self, key: ApiKey) -> None:
        for whose in ({"key": key}, {"application": key.application}):
            DailyLimit.objects.create(**whose)
            with pytest.raises(IntegrityError):
                DailyLimit.objects.create(**whose)

    def test_row_11_an_erasure_deletes_the_usage_of_the_persons_keys(self, as_ada: Api, ada: UserProfile) -> None:
        own = ApiKey.objects.get(user=ada)
        limit(own, requests=100)
        say(as_ada)
        usage_writer.flush()
        assert DailyUsage.objects.exclude(key=None).exists()
        erase_user("ada", application=DEFAULT, actor="operator:eve")
        as_ada.get("sessions")
        usage_writer.flush()
        assert not DailyUsage.objects.filter(application=None).exists()
        assert not DailyLimit.objects.exists()

    def test_no_usage_is_written_for_a_person_being_erased(self, as_ada: Api, ada: UserProfile) -> None:
        own = ApiKey.objects.get(user=ada)
        with transaction.atomic():
            UserProfile.objects.select_for_update().get(pk=ada.pk)

            def count(_: int) -> None:
                DailyUsage.objects.add({Subject(SubjectKind.KEY, own.pk): Amounts(requests=1)})

            at_once(count, 1)
        assert not DailyUsage.objects.exists()
