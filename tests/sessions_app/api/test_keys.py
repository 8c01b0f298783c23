"""API keys and their scopes."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from sessions_app.api import authentication
from sessions_app.models import ApiKey, Session, UserProfile
from sessions_app.process_cache import VERIFIED
from tests.support.api import Api
from tests.support.transcript import messages, talk

pytestmark = pytest.mark.django_db(transaction=True)

GET_PATHS = ["sessions", "sessions/s1", "sessions/s1/messages", "users/ada", "moments", "moments/k", "jobs"]


@pytest.mark.parametrize("path", GET_PATHS)
def test_every_call_without_a_key_is_401(transactional_db: None, path: str) -> None:
    answer = Api().get(path)
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == "Bearer"
    assert answer.json()["errors"][0]["code"] == "not_authenticated"


@pytest.mark.parametrize("key", ["nonsense", "mem_000000000000_x", "mem__", "mem_\u00e9_x", "", "a b c"])
def test_a_wrong_key_is_401(transactional_db: None, key: str) -> None:
    api = Api()
    api.headers = {"Authorization": f"Bearer {key}"}
    assert api.get("sessions").status_code == 401


def test_a_key_without_its_prefix_is_401(transactional_db: None) -> None:
    _, text = ApiKey.objects.issue("k")
    assert Api(text).get("sessions", user_id="ada").status_code == 200
    assert Api(text.removeprefix("mem_")).get("sessions", user_id="ada").status_code == 401


def test_a_path_and_a_query_that_name_different_people_are_400(service: Api, ada: UserProfile) -> None:
    for method, path in (("get", "users/ada"), ("get", "users/ada/export"), ("delete", "users/ada")):
        answer = getattr(service, method)(f"{path}?user_id=bo")
        assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (400, "user_id")
    assert service.get("users/ada?user_id=ada").status_code == 200


def test_row_19_expired_revoked_wrong_and_unknown_keys_get_the_same_response(transactional_db: None) -> None:
    hour = timedelta(hours=1)
    _, expired = ApiKey.objects.issue("expired", expires_at=timezone.now() - hour)
    revoked_key, revoked = ApiKey.objects.issue("revoked")
    ApiKey.objects.filter(pk=revoked_key.pk).update(revoked_at=timezone.now())
    _, valid = ApiKey.objects.issue("valid", expires_at=timezone.now() + hour)
    assert Api(valid).get("sessions", user_id="ada").status_code == 200
    answers = {Api(key).get("sessions").content for key in (expired, revoked, valid + "x", "mem_0_0")}
    assert len(answers) == 1


CALLS: dict[str, Callable[[Api], Any]] = {
    "a read": lambda api: api.get("sessions/s1", user_id="ada"),
    "a write": lambda api: api.post("sessions/s1/messages", user_id="ada", messages=messages(1)),
    "a context": lambda api: api.get("memory/context", user_id="ada", session_id="s1", query="said"),
    "a search": lambda api: api.post("memory/search", user_id="ada", query="said"),
    "an export": lambda api: api.get("users/ada/export"),
    "a deletion": lambda api: api.delete("sessions/s1", user_id="ada"),
    "what asks nothing of the database": lambda api: api.post("memory/search", user_id="ada", query=1),
}


def revoke(key: ApiKey) -> None:
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())


def end(key: ApiKey) -> None:
    ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now())


def delete(key: ApiKey) -> None:
    ApiKey.objects.filter(pk=key.pk).delete()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("change", [revoke, end, delete])
def test_row_19_a_recently_valid_key_stops_working_at_once(
    ada: UserProfile, call: str, change: Callable[[ApiKey], None]
) -> None:
    talk(ada, 2)
    key, text = ApiKey.objects.issue("k", scope="admin")
    api = Api(text)
    assert api.get("sessions/s1", user_id="ada").status_code == 200
    change(key)
    answer = CALLS[call](api)
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert answer.json() == Api("mem_0_0").get("sessions").json()
    assert Session.objects.get().message_count == 2
    assert text not in VERIFIED
    assert CALLS[call](api).status_code == 401


@pytest.mark.slow
def test_checking_a_recently_valid_key_takes_no_extra_round_trip(ada: UserProfile) -> None:
    talk(ada, 2)
    service = Api(ApiKey.objects.issue("k", scope="admin")[1])
    for call in CALLS.values():
        asked: list[list[str]] = []
        authentication.CACHED_KEYS.clear()
        for _ in range(2):  # looked up, then remembered
            with CaptureQueriesContext(connection) as captured:
                call(service)
            asked.append([query["sql"] for query in captured.captured_queries])
        alone = [sum("FROM sessions_app_apikey" in sql for sql in statements) for statements in asked]
        assert alone == [1, 1]
        assert "1 / count(*)" in next(sql for sql in asked[1] if "FROM sessions_app_apikey" in sql)


def test_row_19_the_database_does_not_store_the_key(transactional_db: None) -> None:
    key, text = ApiKey.objects.issue("k")
    secret = text.split("_", 2)[2]
    key.refresh_from_db()
    assert not any(secret in str(value) for value in vars(key).values())


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [("read", {"get"}), ("write", {"get", "post", "patch"}), ("admin", {"get", "post", "patch", "delete"})],
)
def test_a_scope_allows_its_methods_and_those_of_lower_scopes(ada: UserProfile, scope: str, allowed: set[str]) -> None:
    talk(ada, 1)
    api = Api(ApiKey.objects.issue("k", scope=scope)[1])
    codes = {
        "get": api.get("sessions/s1", user_id="ada").status_code,
        "post": api.post("sessions/s1/messages", user_id="ada", messages=messages(1)).status_code,
        "patch": api.patch("sessions/s1", user_id="ada", title="t").status_code,
        "delete": api.delete("sessions/s1", user_id="ada").status_code,
    }
    assert {method for method, code in codes.items() if code < 300} == allowed
    assert {code for code in codes.values() if code >= 300} <= {403}


def test_a_missing_scope_is_named(ada: UserProfile) -> None:
    api = Api(ApiKey.objects.issue("k", scope="read")[1])
    error = api.post("sessions/s1/messages", user_id="ada", messages=messages(1)).json()["errors"][0]
    assert "scope write" in error["detail"]


def test_a_service_key_must_name_the_person(service: Api) -> None:
    answer = service.get("sessions")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["attr"] == "user_id"


def test_a_user_key_need_not_name_its_person(as_ada: Api, ada: UserProfile) -> None:
    talk(ada, 2)
    assert as_ada.get("sessions").json()["total"] == 1
    assert as_ada.post("sessions/s1/messages", messages=messages(1)).json()["user_id"] == "ada"


def test_the_last_use_is_recorded_at_most_once_a_minute(service: Api) -> None:
    service.get("sessions", user_id="ada")
    first = ApiKey.objects.get().last_used_at
    assert first is not None
    service.get("sessions", user_id="ada")
    assert ApiKey.objects.get().last_used_at == first
    ApiKey.objects.update(last_used_at=first - timedelta(minutes=2))
    authentication.CACHED_KEYS.clear()  # as after two minutes
    service.get("sessions", user_id="ada")
    last = ApiKey.objects.get().last_used_at
    assert last is not None and last > first


def test_a_call_over_the_rate_limit_is_429_with_retry_after(service: Api, settings: Settings) -> None:
    settings.API_RATE = 3
    answers = [service.get("sessions", user_id="ada") for _ in range(6)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 2
    assert int(refused[0]["Retry-After"]) >= 1
    assert refused[0].json()["errors"][0]["code"] == "throttled"


def test_row_9_a_user_key_that_names_another_user_finds_nothing(as_ada: Api, bo: UserProfile) -> None:
    talk(bo, 3)
    for path in ("sessions/s1", "sessions/s1/messages", "users/bo"):
        assert as_ada.get(path, **({} if path == "users/bo" else {"user_id": "bo"})).status_code == 404
    assert as_ada.get("sessions", user_id="bo").json()["total"] == 0
    assert as_ada.post("sessions/s1/messages", user_id="bo", messages=messages(1)).status_code == 404
    assert as_ada.post("sessions", user_id="new", session_id="x").status_code == 404
    assert as_ada.patch("sessions/s1", user_id="bo", title="t").status_code == 404
    assert as_ada.delete("sessions/s1", user_id="bo").status_code == 404
    assert Session.objects.get().message_count == 3
    assert not UserProfile.objects.filter(user_id="new").exists()
