"""The item store: which items a key can access, and how they are stored, read, listed and deleted."""

import json
import re
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.runner import run_claimed, run_job
from moments_app.migrations._vector_search import EXACT
from moments_app.models import EmbeddingModel, ItemEmbedding, Job, StoredItem
from moments_app.models.stored_item import HIDDEN, KEY_MAX, LABELS_MAX, NAMESPACE_MAX, namespace_range, stored
from moments_app.recall.embed import resend_rejected
from moments_app.recall.index_words import index_words
from moments_app.recall.request import Vector
from moments_app.recall.search_items import list_namespaces, search_items
from moments_app.reports.housekeeping import prune_items
from sessions_app import lexemes
from sessions_app.models import ApiKey, Application, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.import_user import NotAnExport, import_user
from sessions_app.row_security import acting_for
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import before_its_commit, on_its_own_connection, wait_until_somebody_waits, waiting
from tests.support.jobs import work_off
from tests.support.openai_server import OpenAIServer
from tests.support.tables import rows_read
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
TABLE = StoredItem._meta.db_table

TRIPS, TURIN = ["trips", "2026"], {"namespace": ["trips", "2026"], "key": "turin"}


@pytest.fixture
def other(transactional_db: None) -> Application:
    return Application.objects.create(name="other")


@pytest.fixture
def other_service(other: Application) -> Api:
    """A client with a service key of the second application."""
    return Api(ApiKey.objects.issue("other", application=other.pk, scope="admin")[1])


def put(api: Api, key: str = "turin", namespace: list[str] = TRIPS, user_id: str | None = None, **value: Any) -> None:
    whose = {"user_id": user_id} if user_id else {}
    item = {"namespace": namespace, "key": key, "value": value or {"text": "I restore kilns."}}
    answer = api.post("items", {"items": [item], **whose})
    assert (answer.status_code, answer.json()) == (200, {"stored": 1}), answer.content


def got(api: Api, *addresses: dict[str, Any], **whose: str) -> list[dict[str, Any]]:
    answer = api.post("items/get", {"items": list(addresses or [TURIN]), **whose})
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def values(api: Api, **whose: str) -> list[dict[str, Any]]:
    return [item["value"] for item in got(api, **whose)]


def keys(api: Api, **asked: Any) -> list[str]:
    answer = api.post("items/search", asked)
    assert answer.status_code == 200, answer.content
    return [item["key"] for item in answer.json()["items"]]


def namespaces(api: Api, **asked: Any) -> list[list[str]]:
    answer = api.post("items/namespaces", asked)
    assert answer.status_code == 200, answer.content
    found: list[list[str]] = answer.json()["namespaces"]
    return found


def errors(answer: Any) -> dict[str, str]:
    assert answer.status_code == 400, answer.content
    return {error["attr"]: error["code"] for error in answer.json()["errors"]}


class TestWhose:
    """A key can access the items of its application only, and of one person or of no person."""

    def test_row_24_an_application_cannot_access_the_items_of_another(
        self, service: Api, other_service: Api, ada: UserProfile, other: Application
    ) -> None:
        UserProfile.objects.ensure("ada", other.pk)
        for whose in ({}, {"user_id": "ada"}):
            put(service, said="here", **whose)  # type: ignore[arg-type]
            assert got(other_service, **whose) == [] and keys(other_service, **whose) == []
            assert namespaces(other_service, **whose) == []
            answer = other_service.post("items/delete", {"items": [TURIN], **whose})
            assert answer.json() == {"deleted": 0}
            put(other_service, said="there", **whose)  # type: ignore[arg-type]
            assert values(service, **whose) == [{"said": "here"}]
            assert values(other_service, **whose) == [{"said": "there"}]

    def test_row_9_a_user_cannot_access_the_items_of_another(self, service: Api, as_ada: Api) -> None:
        put(service, said="nobody's")
        put(service, said="bo's", user_id="bo")
        for whose in ({}, {"user_id": "ada"}, {"user_id": "bo"}, {"user_id": "unknown"}):
            assert got(as_ada, **whose) == [] and keys(as_ada, **whose) == [] and namespaces(as_ada, **whose) == []
            answer = as_ada.post("items/delete", {"items": [TURIN], **whose})
            assert answer.json() == {"deleted": 0}
        for whose in ({"user_id": "bo"}, {"user_id": "unknown"}):
            item = {**TURIN, "value": {}}
            assert as_ada.post("items", {"items": [item], **whose}).status_code == 404
        put(as_ada, said="ada's")
        assert values(service) == [{"said": "nobody's"}]
        assert values(service, user_id="ada") == [{"said": "ada's"}]
        assert values(service, user_id="bo") == [{"said": "bo's"}]
        assert got(service, user_id="unknown") == []

    def test_row_9_postgresql_hides_and_protects_the_items_of_others(
        self, ada: UserProfile, bo: UserProfile, other: Application
    ) -> None:
        owners: list[tuple[UserProfile | None, int]] = [
            (ada, DEFAULT),
            (bo, DEFAULT),
            (None, DEFAULT),
            (None, other.pk),
        ]
        for user, application in owners:
            StoredItem.objects.create(user=user, application_id=application, namespace="n\x1f", key="k")
        for user, application in owners:
            with acting_for(user.user_id if user else None, application=application):
                found = list(StoredItem.objects.values_list("user_id", "application_id"))
                assert found == [(user.pk if user else None, application)]
                assert StoredItem.objects.update(value={"x": 1}) == 1
        for user, application in ((bo, DEFAULT), (None, DEFAULT), (ada, other.pk)):
            with pytest.raises(DatabaseError, match="row-level security"), acting_for("ada", application=DEFAULT):
                StoredItem.objects.create(user=user, application_id=application, namespace="n\x1f", key="planted")

    def test_a_read_key_cannot_change_items(self, service: Api) -> None:
        put(service)
        reader = Api(ApiKey.objects.issue("reader", scope="read")[1])
        assert [item["key"] for item in got(reader)] == keys(reader) == ["turin"]
        assert namespaces(reader) == [TRIPS]
        assert reader.post("items", {"items": [{**TURIN, "value": {}}]}).status_code == 403
        assert reader.post("items/delete", {"items": [TURIN]}).status_code == 403


class TestItems:
    """Items are stored, replaced, read and deleted."""

    def test_an_item_is_stored_replaced_and_deleted(self, service: Api) -> None:
        put(service, days=3)
        [first] = got(service)
        assert (first["namespace"], first["key"], first["value"]) == (TRIPS, "turin", {"days": 3})
        put(service, days=4)
        [second] = got(service)
        assert second["value"] == {"days": 4}
        assert second["created_at"] == first["created_at"] and second["updated_at"] > first["updated_at"]
        assert service.post("items/delete", {"items": [TURIN, TURIN]}).json() == {"deleted": 1}
        assert got(service) == []

    def test_several_items_can_be_sent_in_one_request(self, service: Api) -> None:
        items = [{"namespace": TRIPS, "key": f"k{number}", "value": {"n": number}} for number in range(100)]
        assert service.post("items", {"items": [*items[:99], items[0] | {"value": {"n": -1}}]}).status_code == 200
        wanted = [{"namespace": TRIPS, "key": key} for key in ("k7", "none", "k0", "k7")]
        assert [item["value"]["n"] for item in got(service, *wanted)] == [7, -1]
        assert errors(service.post("items", {"items": [*items, items[0]]})) == {"items.non_field_errors": "max_length"}

    def test_any_text_can_be_a_name(self, service: Api) -> None:
        namespace, key = ["个人资料和偏好设置" * 10, "a/b.c%", "🏺 "], "旅行计划" * 60
        put(service, key, namespace)
        assert got(service, {"namespace": namespace, "key": key})[0]["namespace"] == namespace
        assert keys(service, namespace=namespace[:1]) == [key] and namespaces(service) == [namespace]

    @pytest.mark.parametrize("character", ["x", "旅", "🏺"])
    def test_the_longest_names_fit_the_index(self, service: Api, character: str) -> None:
        put(service, character * KEY_MAX, [character * NAMESPACE_MAX])
        put(service, character * KEY_MAX, [character * 12] * LABELS_MAX)

    @pytest.mark.parametrize(
        ("wrong", "error"),
        [
            ({"key": "k" * 256}, {"items.0.key": "max_length"}),
            ({"key": ""}, {"items.0.key": "blank"}),
            ({"namespace": []}, {"items.0.namespace": "min_length"}),
            ({"namespace": ["n" * 200, "m" * 56]}, {"items.0.namespace": "contradictory"}),
            ({"namespace": ["a"] * 21}, {"items.0.namespace": "max_length"}),
            ({"namespace": ["a", "b\x1fc"]}, {"items.0.namespace.1": "end"}),
            ({"namespace": ["a", ""]}, {"items.0.namespace.1": "blank"}),
            ({"value": [1]}, {"items.0.value": "object"}),
            ({"value": {"x": "\0"}}, {"items.0.value": "text"}),
            ({"text": "t" * 50_001}, {"items.0.text": "max_length"}),
            ({"ttl": 0}, {"items.0.ttl": "min_value"}),
            ({"ttl": 1e300}, {"items.0.ttl": "max_value"}),
            ({"ttl": 10**400}, {"items.0.ttl": "overflow"}),
            ({"ttl": "5"}, {"items.0.ttl": "invalid"}),
        ],
    )
    def test_an_error_names_the_field(self, service: Api, wrong: dict[str, Any], error: dict[str, str]) -> None:
        answer = service.post("items", {"items": [{**TURIN, "value": {}, **wrong}]})
        assert errors(answer) == error
        assert not StoredItem.objects.exists()


class TestTtl:
    """Items expire some time after the latest write or read."""

    def put(self, api: Api, key: str = "turin", ttl: float | None = 60, **whose: str) -> None:
        item = {"namespace": TRIPS, "key": key, "value": {"text": "Kilns"}, "ttl": ttl}
        assert api.post("items", {"items": [item], **whose}).status_code == 200

    def put_forward(self, minutes: float) -> None:
        """Let time pass for all items."""
        StoredItem.objects.update(expires_at=F("expires_at") - timedelta(minutes=minutes))

    def minutes_left(self) -> float:
        expires_at = StoredItem.objects.get(key="turin").expires_at
        assert expires_at
        return (expires_at - timezone.now()) / timedelta(minutes=1)

    @pytest.mark.parametrize("whose", [{}, {"user_id": "ada"}])
    def test_an_expired_item_is_not_returned_and_the_next_one_is_new(self, service: Api, whose: dict[str, Any]) -> None:
        self.put(service, **whose)
        put(service, "oslo", ["other"], **whose)
        [before] = got(service, **whose)
        assert before["ttl"] == 60
        self.put_forward(61)
        assert got(service, **whose) == []
        assert keys(service, **whose) == ["oslo"] and keys(service, query="kilns", **whose) == ["oslo"]
        assert namespaces(service, **whose) == namespaces(service, suffix=["*"], **whose) == [["other"]]
        assert service.post("items/delete", {"items": [TURIN], **whose}).json() == {"deleted": 0}
        self.put(service, ttl=None, **whose)
        [after] = got(service, **whose)
        assert after["ttl"] is None and after["created_at"] == after["updated_at"] > before["updated_at"]

    @pytest.mark.parametrize("read", ["items/get", "items/search", "items/search of kilns"])
    def test_a_read_and_a_write_restart_the_expiry(self, service: Api, read: str) -> None:
        path, _of, query = read.partition(" of ")
        asked: dict[str, Any] = {"items": [TURIN]} if path == "items/get" else {"namespace": TRIPS}
        asked |= {"query": query} if query else {}
        self.put(service)
        self.put_forward(50)
        assert len(service.post(path, {**asked, "refresh_ttl": False}).json()["items"]) == 1
        assert 9 < self.minutes_left() < 10
        assert len(service.post(path, asked).json()["items"]) == 1
        assert 59 < self.minutes_left() <= 60
        self.put(service, ttl=0.5)
        assert self.minutes_left() <= 0.5
        put(service)
        assert StoredItem.objects.get().expires_at is None

    def test_a_read_does_not_wait_for_a_write(self, service: Api) -> None:
        self.put(service)
        with ThreadPoolExecutor(1) as pool, transaction.atomic():
            StoredItem.objects.select_for_update().get()
            found = pool.submit(on_its_own_connection, lambda: values(service)).result(TIMEOUT)
        assert found == [{"text": "Kilns"}]

    def test_reads_take_the_same_number_of_statements_for_many_items(self, service: Api) -> None:
        counts = []
        for number in (1, 50):
            for key in range(number):
                self.put(service, f"k{key}")
            with CaptureQueriesContext(connection) as statements:
                assert len(keys(service, limit=100)) == number
            counts.append(len(statements))
        assert counts[0] == counts[1]

    def test_a_schedule_deletes_expired_items(self, service: Api, other_service: Api) -> None:
        self.put(service)
        self.put(other_service, "adas", user_id="ada")
        self.put(service, "later", ttl=600)
        put(service, "kept")
        self.put_forward(61)
        assert str(prune_items(dry_run=True)) == "deleted: 2" and StoredItem.objects.count() == 4
        call_command("run_schedule", "prune_items")
        assert set(StoredItem.objects.values_list("key", flat=True)) == {"later", "kept"}

    def test_an_import_restores_when_items_expire(self, service: Api, tmp_path: Path) -> None:
        self.put(service, user_id="ada")
        self.put(service, "gone", 1, user_id="ada")
        self.put_forward(30)
        archive = tmp_path / "ada.zip"
        archive.write_bytes(b"".join(service.get("users/ada/export").streaming_content))
        assert import_user(archive, application=DEFAULT, user_id="eve")["items"] == 1
        own, restored = StoredItem.objects.filter(key="turin").order_by("pk").values_list("ttl", "expires_at")
        assert own == restored


class TestPerson:
    """The items of a user are erased with the user, and restored by an import."""

    @pytest.mark.slow
    def test_row_11_an_erasure_removes_the_items_of_a_user(self, service: Api) -> None:
        for whose in ("ada", "bo", None):
            put(service, user_id=whose)
        erased = service.delete("users/ada").json()
        assert erased["rows"]["stored items"] == 1
        assert got(service, user_id="ada") == [] and len(got(service, user_id="bo")) == len(got(service)) == 1

    def test_an_export_has_the_items_of_a_user_and_an_import_restores_them(
        self, service: Api, other: Application, tmp_path: Path
    ) -> None:
        put(service, user_id="ada", text="Kilns in Turin.", days=3)
        put(service, "other", text="Kilns in Oslo.")
        [before] = got(service, user_id="ada")
        archive = tmp_path / "ada.zip"
        archive.write_bytes(b"".join(service.get("users/ada/export").streaming_content))
        [line] = zipfile.ZipFile(archive).read("items.jsonl").splitlines()
        exported = json.loads(line)
        assert {name: exported[name] for name in ("namespace", "key", "value")} == {**TURIN, "value": before["value"]}
        for application, user_id in ((DEFAULT, "eve"), (other.pk, "ada")):
            for number in (1, 0):
                counts = import_user(archive, application=application, user_id=user_id)
                assert counts["items"] == number
            restored = StoredItem.objects.get(user__user_id=user_id, application=application)
            assert (restored.labels, restored.key, restored.value) == (TRIPS, "turin", before["value"])
            assert restored.created_at.isoformat().replace("+00:00", "Z") == before["created_at"]
        assert [item["value"] for item in got(service, user_id="eve")] == [before["value"]]
        assert keys(service, user_id="eve", query="kilns") == ["turin"]

    @pytest.mark.parametrize(
        ("changed", "told"),
        [
            ({"namespace": []}, "namespace"),
            ({"namespace": ["a\x1fb"]}, "namespace"),
            ({"namespace": ["n" * 200, "n" * 56]}, "more than 255 characters in total"),
            ({"key": ""}, "key"),
            ({"value": []}, "value"),
        ],
    )
    def test_an_import_rejects_what_a_request_rejects(
        self, service: Api, tmp_path: Path, changed: dict[str, Any], told: str
    ) -> None:
        put(service, user_id="ada")
        whole, wrong = tmp_path / "ada.zip", tmp_path / "wrong.zip"
        whole.write_bytes(b"".join(service.get("users/ada/export").streaming_content))
        with zipfile.ZipFile(whole) as read, zipfile.ZipFile(wrong, "w") as write:
            for name in read.namelist():
                content = read.read(name)
                if name == "items.jsonl":
                    content = json.dumps(json.loads(content) | changed).encode() + b"\n"
                write.writestr(name, content)
        with pytest.raises(NotAnExport, match=told):
            import_user(wrong, application=DEFAULT, user_id="eve")
        assert not UserProfile.objects.filter(user_id="eve").exists()

    def test_items_without_words_can_be_indexed(self, service: Api) -> None:
        put(service, text="Kilns in Turin.")
        put(service, user_id="ada", text="Kilns in Oslo.")
        StoredItem.objects.update(text="Glass")
        assert keys(service, query="glass") == keys(service, query="glass", user_id="ada") == []
        assert index_words().rows == 2
        assert keys(service, query="glass") == keys(service, query="glass", user_id="ada") == ["turin"]
        assert not Job.objects.exists()


class TestLists:
    """Items are listed by namespace and value, and namespaces by their labels."""

    @pytest.fixture
    def furnished(self, service: Api) -> Api:
        """Items in four namespaces. Two of the namespaces start with the same characters."""
        for namespace in (["trips", "2026"], ["trips", "2025"], ["trips2"], ["a", "trips", "2026"]):
            for number in range(3):
                put(service, f"k{number}", namespace, days=number, at={"town": "turin" if number else "oslo"})
        return service

    def test_only_items_of_the_namespace_are_listed(self, furnished: Api) -> None:
        assert len(keys(furnished)) == 12
        assert len(keys(furnished, namespace=["trips"])) == 6
        assert keys(furnished, namespace=TRIPS) == ["k0", "k1", "k2"]
        assert keys(furnished, namespace=["trip"]) == keys(furnished, namespace=[*TRIPS, "x"]) == []

    def test_pages_continue_without_gaps(self, furnished: Api) -> None:
        whole = furnished.post("items/search", {}).json()
        assert whole["has_more"] is False
        found: list[Any] = []
        asked: dict[str, Any] = {"limit": 5}
        while True:
            page = furnished.post("items/search", asked).json()
            found += page["items"]
            if not page["has_more"]:
                break
            asked["after"] = {name: found[-1][name] for name in ("namespace", "key")}
        assert found == whole["items"]
        assert keys(furnished, limit=2, offset=10) == ["k1", "k2"]
        answer = furnished.post("items/search", {"after": TURIN, "offset": 1})
        assert errors(answer) == {"offset": "contradictory"}

    def test_hidden_items_are_returned_only_to_requests_that_name_their_first_label(self, service: Api) -> None:
        hidden = [f"{HIDDEN}checkpoints", "a"]
        put(service, "hidden", hidden)
        put(service, "shown", ["\U0010fffe"])
        assert keys(service) == keys(service, query="kilns") == ["shown"]
        assert namespaces(service) == namespaces(service, prefix=["*"]) == [["\U0010fffe"]]
        assert namespaces(service, suffix=["a"]) == []
        for prefix in (hidden, hidden[:1]):
            assert keys(service, namespace=prefix) == keys(service, namespace=prefix, query="kilns") == ["hidden"]
            assert namespaces(service, prefix=prefix) == [hidden]
        assert len(got(service, {"namespace": hidden, "key": "hidden"})) == 1

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ({"days": 1}, ["k1"]),
            ({"days": {"$eq": 1}}, ["k1"]),
            ({"days": {"$ne": 1}}, ["k0", "k2"]),
            ({"days": {"$gt": 1}}, ["k2"]),
            ({"days": {"$gte": 1, "$lt": 2}}, ["k1"]),
            ({"days": {"$lte": 1.0}}, ["k0", "k1"]),
            ({"days": {"$gt": "0"}}, []),
            ({"at": {"town": "oslo"}}, ["k0"]),
            ({"at": {"town": {"$gt": "oslo"}}, "days": {"$lt": 2}}, ["k1"]),
            ({"missing": None}, ["k0", "k1", "k2"]),
            ({"missing": {"$gt": 1}}, []),
        ],
    )
    def test_a_filter_compares_fields_of_the_value(
        self, furnished: Api, wanted: dict[str, Any], found: list[str]
    ) -> None:
        assert keys(furnished, namespace=TRIPS, filter=wanted) == found

    def test_unknown_comparisons_and_too_many_conditions_are_rejected(self, service: Api) -> None:
        near = service.post("items/search", {"filter": {"trip": {"days": {"$near": 1}}}})
        assert errors(near) == {"filter": "contradictory"}
        assert "trip.days: unknown comparison $near." in near.json()["errors"][0]["detail"]
        conditions = {f"field{number}": number for number in range(21)}
        many = service.post("items/search", {"filter": conditions})
        assert "more than 20 conditions" in many.json()["errors"][0]["detail"]
        conditions.popitem()
        assert service.post("items/search", {"filter": conditions}).status_code == 200

    def test_a_repeated_address_is_stored_and_counted_once(self, service: Api) -> None:
        items = [{**TURIN, "value": {"n": number}} for number in range(3)]
        assert service.post("items", {"items": items}).json() == {"stored": 1}
        assert values(service) == [{"n": 2}]

    def test_large_texts_are_indexed_later(self, service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("moments_app.models.stored_item.WORDS_MAX_BYTES", 30)
        items = [{"namespace": ["n"], "key": str(number), "value": {"text": "Kilns are hot."}} for number in range(4)]
        service.post("items", {"items": items})
        assert keys(service, query="kilns") == ["1", "0"]
        index_words()
        assert sorted(keys(service, query="kilns")) == ["0", "1", "2", "3"]

    def test_reading_does_not_lock_the_user(self, as_ada: Api, ada: UserProfile) -> None:
        put(as_ada)
        with ThreadPoolExecutor(1) as pool, transaction.atomic():
            UserProfile.objects.select_for_update().get(pk=ada.pk)
            reads = lambda: (values(as_ada), keys(as_ada), namespaces(as_ada))  # noqa: E731
            found = pool.submit(on_its_own_connection, reads).result(TIMEOUT)
        assert found == ([{"text": "I restore kilns."}], ["turin"], [TRIPS])

    def test_namespaces_are_cut_to_a_depth_and_matched(self, furnished: Api) -> None:
        assert namespaces(furnished) == [["a", "trips", "2026"], ["trips", "2025"], ["trips", "2026"], ["trips2"]]
        assert namespaces(furnished, max_depth=1) == [["a"], ["trips"], ["trips2"]]
        assert namespaces(furnished, prefix=["trips"]) == [["trips", "2025"], ["trips", "2026"]]
        assert namespaces(furnished, prefix=["trips"], max_depth=1) == [["trips"]]
        assert namespaces(furnished, suffix=["trips", "2026"]) == [["a", "trips", "2026"], ["trips", "2026"]]
        assert namespaces(furnished, suffix=["2"]) == []
        assert namespaces(furnished, prefix=["*", "2026"]) == [["trips", "2026"]]
        assert namespaces(furnished, suffix=["*", "2025"]) == [["trips", "2025"]]
        assert namespaces(furnished, limit=1, offset=1) == [["trips", "2025"]]

    @pytest.mark.parametrize("label", ["a.b", "(", "*a", "\\d", "a\nb", "50%_"])
    def test_a_label_is_not_a_pattern(self, service: Api, label: str) -> None:
        put(service, namespace=[label, "x", label])
        put(service, namespace=["axb", "x", "axb"])
        assert namespaces(service, prefix=[label, "*"], suffix=["*", label]) == [[label, "x", label]]


@pytest.mark.slow
def test_lists_read_the_index(ada: UserProfile) -> None:
    """Under row-level security, only some conditions can limit the range of an index."""
    rows = [
        StoredItem(user=user, application_id=DEFAULT, namespace=stored(["n", str(number % 50)]), key=str(number))
        for user in (ada, None)
        for number in range(2_000)
    ]
    StoredItem.objects.bulk_create(rows)
    connection.cursor().execute("ANALYZE moments_app_storeditem")
    for user in (ada, None):
        with acting_for(user.user_id if user else None, application=DEFAULT):
            own = StoredItem.objects.owned_by(user, DEFAULT)
            listed = own.within(["n", "7"]).after(["n", "7"], "107").in_order()[:10].explain(analyze=True)
            fetched = own.at([(["n", "7"], "7"), (["n", "8"], "8")]).explain(analyze=True)
        assert "item_unique_address" in listed and "Sort" not in listed, listed
        assert re.search(r"Index Cond: .*namespace\)::text >= ", listed), listed
        assert "item_unique_address" in fetched and "Seq Scan" not in fetched, fetched
        with acting_for(user.user_id if user else None, application=DEFAULT):
            before = rows_read(StoredItem)
            assert list_namespaces(user, DEFAULT, max_depth=1, most=10) == [stored(["n"])]
            assert rows_read(StoredItem) - before < 5
            assert len(list_namespaces(user, DEFAULT, suffix=["7"], most=10)) == 1
            assert rows_read(StoredItem) - before < 70  # one item of each of 50 namespaces


class TestSearch:
    """Items are found by the words of their text, within a namespace."""

    def test_items_of_other_namespaces_do_not_count_towards_the_limit(self, service: Api) -> None:
        items = [{"namespace": ["notes"], "key": f"k{n}", "value": {"text": "Glass, kilns"}} for n in range(100)]
        service.post("items", {"items": items})
        put(service, "bergen", ["profile"], text="I fired glass in Bergen, where there are kilns.")
        assert keys(service, namespace=["profile"], query="glass kilns") == ["bergen"]
        assert keys(service, namespace=["notes", "x"], query="glass") == []
        assert len(keys(service, query="glass", limit=200)) == 101

    def test_an_overwritten_value_is_not_found(self, service: Api) -> None:
        put(service, text="I fired glass in Oslo.")
        put(service, text="I threw pots in Bergen.")
        assert keys(service, query="glass oslo") == [] and keys(service, query="pots") == ["turin"]
        service.post("items/delete", {"items": [TURIN]})
        assert keys(service, query="pots") == []

    def test_the_best_item_is_first(self, service: Api) -> None:
        put(service, "one", text="Kilns are hot, and so is the summer in the hills.")
        put(service, "both", text="Kilns in Turin are hot.")
        put(service, "none", text="Felt wears out.")
        found = service.post("items/search", {"query": "Which kilns are in Turin?"}).json()
        assert [item["key"] for item in found["items"]] == ["both", "one"] and not found["has_more"]
        assert found["items"][0]["score"] > found["items"][1]["score"] > 0
        assert keys(service, query="kilns turin", limit=1, offset=1) == ["one"]
        assert service.post("items/search", {}).json()["items"][0]["score"] is None

    @pytest.mark.parametrize(
        ("value", "query"),
        [
            ({"a": {"b": ["They walked", "to the kilns"]}}, "walking kiln"),
            ({"text": "Ich habe die Öfen repariert."}, "Öfen"),
            ({"text": "我在都灵修复窑炉"}, "窑炉"),
        ],
    )
    def test_all_texts_of_a_value_are_searched_in_their_language(
        self, service: Api, value: dict[str, Any], query: str
    ) -> None:
        put(service, **value)
        assert keys(service, query=query) == ["turin"]

    def test_indexed_text_replaces_the_value_in_a_search(self, service: Api) -> None:
        items = [
            {"namespace": ["n"], "key": key, "value": {"name": "glass"}, "text": text}
            for key, text in (("told", "Pots."), ("silent", ""))
        ]
        service.post("items", {"items": items})
        assert keys(service, query="glass") == [] and keys(service, query="pots") == ["told"]
        assert keys(service, namespace=["n"]) == ["silent", "told"]

    def test_a_filter_applies_to_a_search(self, service: Api) -> None:
        for number in range(20):
            put(service, f"k{number}", text="Kilns" if number else "Kilns, and so many other things", n=number)
        assert keys(service, query="kilns", filter={"n": 0}, limit=1) == ["k0"]
        assert keys(service, query="kilns", filter={"n": {"$gt": 30}}) == []

    def test_row_9_a_search_finds_no_items_of_others(
        self, service: Api, other_service: Api, as_ada: Api, bo: UserProfile
    ) -> None:
        put(service, "nobodys", text="Kilns")
        put(service, "adas", text="Kilns", user_id="ada")
        put(other_service, "others", text="Kilns")
        put(other_service, "other adas", text="Kilns", user_id="ada")
        assert keys(service, query="kilns") == ["nobodys"] and keys(other_service, query="kilns") == ["others"]
        assert keys(service, query="kilns", user_id="ada") == keys(as_ada, query="kilns") == ["adas"]
        assert keys(service, query="kilns", user_id="bo") == keys(service, query="kilns", user_id="unknown") == []
        assert keys(as_ada, query="kilns", user_id="bo") == []

    def test_row_9_the_search_function_returns_only_items_that_the_request_may_see(
        self, service: Api, ada: UserProfile, bo: UserProfile, other: Application
    ) -> None:
        put(service, "nobodys", text="Kilns")
        put(service, "adas", text="Kilns", user_id="ada")
        adas = StoredItem.objects.get(user=ada).pk
        for user, application in ((ada, DEFAULT), (bo, DEFAULT), (None, DEFAULT), (None, other.pk)):
            with acting_for("ada", application=DEFAULT):
                assert list(search_items(user, application, [], "kilns", most=10)) == [adas]
            with acting_for("bo", application=DEFAULT):
                assert not search_items(user, application, [], "kilns", most=10)
            with acting_for(None, application=other.pk):
                assert not search_items(user, application, [], "kilns", most=10)

    def test_stop_words_find_nothing(self, service: Api) -> None:
        put(service)
        assert keys(service, query="?!") == []
        assert errors(service.post("items/search", {"query": " "})) == {"query": "blank"}
        answer = service.post("items/search", {"query": "kilns", "after": TURIN})
        assert errors(answer) == {"after": "contradictory"}
        assert errors(service.post("items/search", {"query": "kilns", "offset": 501})) == {"offset": "contradictory"}


def test_an_item_that_is_stored_again_during_pruning_is_kept(service: Api, transactional_db: None) -> None:
    item = {"namespace": ["n"], "key": "k", "value": {"text": "Kilns"}, "ttl": 5}
    service.post("items", {"items": [item]})
    StoredItem.objects.update(expires_at=timezone.now())
    again = StoredItem(application_id=DEFAULT, namespace=stored(["n"]), key="k", value={}, text="")
    with transaction.atomic():
        StoredItem.objects.put([again])
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(on_its_own_connection, prune_items).result(TIMEOUT).rows == 0
    prune_items()
    assert StoredItem.objects.get().value == {}


def put_all(api: Api, *keys: str, **whose: str) -> int:
    items = [{"namespace": TRIPS, "key": key, "value": {"text": key}} for key in keys]
    status: int = api.post("items", {"items": items, **whose}).status_code
    return status


def delete_all(api: Api, *keys: str) -> int:
    status: int = api.post("items/delete", {"items": [{"namespace": TRIPS, "key": key} for key in keys]}).status_code
    return status


@pytest.mark.parametrize("change", [put_all, delete_all])
def test_changes_of_the_same_items_in_opposite_order_do_not_deadlock(
    service: Api, patient: None, change: Callable[..., int]
) -> None:
    put_all(service, "a", "b", "c")
    with ThreadPoolExecutor(2) as pool:
        with transaction.atomic():
            StoredItem.objects.select_for_update().get(key="b")  # stops both in the middle
            first = pool.submit(on_its_own_connection, put_all, service, "a", "b", "c")
            wait_until_somebody_waits()
            second = pool.submit(on_its_own_connection, change, service, "c", "b", "a")
            wait_until_somebody_waits(2)
        assert [first.result(TIMEOUT), second.result(TIMEOUT)] == [200, 200]


class TestMeaning:
    """With an embeddings endpoint, items are also found by meaning. Vectors are made in the background."""

    pytestmark = pytest.mark.usefixtures("embeddings_server")

    def search(self, api: Api, query: str, **asked: Any) -> tuple[list[str], bool]:
        answer = api.post("items/search", {"query": query, **asked}).json()
        return [item["key"] for item in answer["items"]], answer["degraded"]

    @pytest.mark.slow
    def test_row_9_a_search_by_meaning_finds_no_items_of_others(
        self, service: Api, other_service: Api, as_ada: Api, bo: UserProfile
    ) -> None:
        put(service, "nobodys", text="Kilns")
        put(service, "adas", text="Kilns", user_id="ada")
        put(other_service, "others", text="Kilns")
        put(other_service, "other adas", text="Kilns", user_id="ada")
        work_off()
        assert ItemEmbedding.objects.filter(vector__isnull=False).count() == 2
        assert self.search(other_service, "kilnsmen", user_id="ada") == (["other adas"], False)
        for answer in (self.search(service, "kilnsmen", user_id="ada"), self.search(as_ada, "kilnsmen")):
            assert answer == (["adas"], False)
        for user_id in ("bo", "unknown"):
            assert self.search(service, "kilnsmen", user_id=user_id) == ([], False)
        assert self.search(as_ada, "kilnsmen", user_id="bo") == ([], False)

    def test_row_9_requests_see_only_the_vectors_of_their_items(
        self, service: Api, ada: UserProfile, bo: UserProfile, other: Application
    ) -> None:
        put(service, "nobodys", text="Kilns")
        put(service, "adas", text="Kilns", user_id="ada")
        work_off()
        adas = StoredItem.objects.get(user=ada).pk
        vector = Vector(EmbeddingModel.objects.get().pk, 64, [1.0] * 64)
        for user, application in ((ada, DEFAULT), (bo, DEFAULT), (None, DEFAULT), (None, other.pk)):
            with acting_for("ada", application=DEFAULT):
                assert list(search_items(user, application, [], "x", vector=vector, most=10)) == [adas]
                assert list(ItemEmbedding.objects.values_list("source", flat=True)) == [adas]
            for acting, acting_in in (("bo", DEFAULT), (None, other.pk)):
                with acting_for(acting, application=acting_in):
                    assert not search_items(user, application, [], "x", vector=vector, most=10)
                    assert not ItemEmbedding.objects.exists() and not ItemEmbedding.objects.all().delete()[0]

    def test_without_vectors_a_search_is_by_words_and_says_so(self, service: Api, settings: Settings) -> None:
        put(service, text="Kilns in Turin")
        settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"provider": "none"})
        assert self.search(service, "kilns") == (["turin"], True)
        assert self.search(service, "kilnsmen") == ([], True)
        assert service.post("items/search", {}).json()["degraded"] is False

    def test_items_that_match_by_words_and_by_meaning_come_first(self, service: Api) -> None:
        put(service, "felt", text="Felt wears out.", user_id="ada")
        put(service, "both", text="Kilns in Turin", user_id="ada")
        put(service, "other", ["other"], text="Kilns in Turin", user_id="ada")
        work_off()
        assert Job.objects.filter(process="embed", status="completed").count() == 1
        asked = {"namespace": TRIPS, "user_id": "ada"}
        assert self.search(service, "kilns in Turin", **asked) == (["both", "felt"], False)
        assert self.search(service, "kilns in Turin", **asked, limit=1, offset=1) == (["felt"], False)
        assert self.search(service, "kilns", **asked, filter={"text": "Felt wears out."}) == (["felt"], False)
        assert self.search(service, "kilns", **asked | {"namespace": ["x"]}) == ([], False)

    @pytest.mark.slow
    def test_a_new_text_replaces_the_vector_and_the_same_text_keeps_it(
        self, service: Api, embeddings_server: OpenAIServer
    ) -> None:
        put(service, text="Kilns", n=1, user_id="ada")
        work_off()
        [before] = ItemEmbedding.objects.values_list("pk", flat=True)
        put(service, text="Kilns", n=2, user_id="ada")
        work_off()
        assert list(ItemEmbedding.objects.values_list("pk", flat=True)) == [before]
        sent = len(embeddings_server.requests)
        put(service, text="Felt", n=2, user_id="ada")
        assert not ItemEmbedding.objects.exists()
        work_off()
        assert embeddings_server.requests[sent]["input"] == ["Felt"] and ItemEmbedding.objects.count() == 1
        assert service.post("items/delete", {"items": [TURIN], "user_id": "ada"}).json() == {"deleted": 1}
        assert not ItemEmbedding.objects.exists()

    def test_items_of_no_user_are_searched_by_words_only(self, service: Api, embeddings_server: OpenAIServer) -> None:
        put(service, text="Kilns in Turin")
        assert not Job.objects.exists()
        assert self.search(service, "kilns") == (["turin"], True)
        assert self.search(service, "kilnsmen") == ([], True)
        assert not embeddings_server.requests

    def test_blank_texts_leave_room_for_others(self, service: Api) -> None:
        blank = [{"namespace": ["n"], "key": f"k{number}", "value": {"a": "", "b": ""}} for number in range(100)]
        service.post("items", {"user_id": "ada", "items": blank})
        put(service, text="Kilns", user_id="ada")
        work_off()
        assert ItemEmbedding.objects.count() == 1

    def test_imported_items_are_embedded(self, service: Api, tmp_path: Path) -> None:
        put(service, text="Kilns", user_id="ada")
        archive = tmp_path / "ada.zip"
        archive.write_bytes(b"".join(service.get("users/ada/export").streaming_content))
        Job.objects.all().delete()
        import_user(archive, application=DEFAULT, user_id="eve")
        work_off()
        assert ItemEmbedding.objects.get().user.user_id == "eve"  # type: ignore[union-attr]

    def test_expired_items_and_items_without_text_are_not_embedded(self, service: Api) -> None:
        item = {"namespace": ["n"], "key": "silent", "value": {}, "text": ""}
        service.post("items", {"user_id": "ada", "items": [item]})
        assert not Job.objects.exists()
        service.post("items", {"user_id": "ada", "items": [item | {"text": "Kilns", "ttl": 5}]})
        StoredItem.objects.update(expires_at=timezone.now())
        work_off()
        assert not ItemEmbedding.objects.exists()

    def test_expired_items_are_not_found_by_meaning(self, service: Api) -> None:
        item = {"namespace": ["n"], "key": "kiln", "value": {"text": "Kilns"}, "ttl": 5}
        service.post("items", {"user_id": "ada", "items": [item]})
        work_off()
        assert self.search(service, "kilnsmen", user_id="ada") == (["kiln"], False)
        StoredItem.objects.update(expires_at=timezone.now())
        assert self.search(service, "kilnsmen", user_id="ada") == ([], False)
        prune_items()
        assert not StoredItem.objects.exists() and not ItemEmbedding.objects.exists()

    def test_texts_that_are_added_during_a_job_are_embedded_by_the_next(
        self, service: Api, embeddings_server: OpenAIServer
    ) -> None:
        put(service, "first", text="Kilns", user_id="ada")

        def put_another(handler: Any, body: dict[str, Any]) -> None:
            if len(embeddings_server.requests) == 1:
                on_its_own_connection(lambda: put(service, "second", text="Felt", user_id="ada"))
            behave.answer_well(handler, body)

        embeddings_server.always(put_another)
        work_off()
        assert ItemEmbedding.objects.count() == 2

    @pytest.mark.slow
    def test_an_item_whose_transaction_outlasts_a_running_job_is_embedded(
        self, service: Api, embeddings_server: OpenAIServer, patient: None
    ) -> None:
        put(service, "first", text="Kilns", user_id="ada")
        embeddings_server.hold()
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(on_its_own_connection, run_job, Job.objects.get().job_id)
            embeddings_server.wait_for_held(1)
            with before_its_commit(TABLE, lambda: put(service, "second", text="Felt", user_id="ada")):
                embeddings_server.release()
                wait_until(lambda: run.done() or waiting() == 2)
        work_off()
        assert ItemEmbedding.objects.count() == 2

    def test_an_item_whose_transaction_outlasts_a_job_that_finds_no_text_is_embedded(
        self, service: Api, ada: UserProfile, patient: None
    ) -> None:
        job = Job.objects.claim(Job.objects.request("embed", user_id=ada.pk, requested_by="test").job_id)
        assert job is not None
        with ThreadPoolExecutor(1) as pool, before_its_commit(TABLE, lambda: put(service, text="Felt", user_id="ada")):
            run = pool.submit(on_its_own_connection, run_claimed, job)
            wait_until(lambda: run.done() or waiting() == 2)
        work_off()
        assert ItemEmbedding.objects.count() == 1

    @pytest.mark.slow
    def test_a_put_and_the_commit_of_vectors_do_not_deadlock(self, service: Api, patient: None) -> None:
        for key in ("c", "b", "a"):
            put_all(service, key, user_id="ada")
        with ThreadPoolExecutor(2) as pool:
            with transaction.atomic():
                StoredItem.objects.select_for_update(no_key=True).get(key="b")  # stops both in the middle
                run = pool.submit(on_its_own_connection, run_job, Job.objects.get().job_id)
                wait_until_somebody_waits()
                put_again = partial(put_all, service, "a", "b", "c", user_id="ada")
                stored = pool.submit(on_its_own_connection, put_again)
                wait_until_somebody_waits(2)
            assert (run.result(TIMEOUT).status, stored.result(TIMEOUT)) == ("completed", 200)

    @pytest.mark.slow
    def test_a_rejected_text_is_recorded_and_found_by_words(
        self, service: Api, embeddings_server: OpenAIServer
    ) -> None:
        put(service, text="Kilns", user_id="ada")
        embeddings_server.always(
            lambda handler, body: (behave.error(400) if body["input"] == ["Kilns"] else behave.answer_well)(
                handler, body
            )
        )
        work_off()
        assert ItemEmbedding.objects.get().refusals == 1
        assert self.search(service, "kilns", user_id="ada") == (["turin"], False)
        embeddings_server.always(behave.answer_well)
        ItemEmbedding.objects.update(ask_again_at=None)
        assert resend_rejected("test") == 1
        work_off()
        assert ItemEmbedding.objects.get().vector is not None

    @pytest.mark.slow
    def test_the_number_of_statements_does_not_depend_on_the_number_of_items(self, service: Api) -> None:
        counts = []
        for number in (2, 60):
            items = [{"namespace": ["n"], "key": f"k{n}", "value": {"text": f"Kiln {n}"}} for n in range(number)]
            service.post("items", {"user_id": "ada", "items": items})
            work_off()
            self.search(service, "kilns", user_id="ada")  # caches the query's vector
            with CaptureQueriesContext(connection) as statements:
                assert len(self.search(service, "kilns", user_id="ada", limit=100)[0]) == number
            counts.append(len(statements))
        assert counts[0] == counts[1]

    @pytest.mark.slow
    @pytest.mark.parametrize("exact", [True, False])
    def test_many_items_are_searched_by_the_index(self, service: Api, ada: UserProfile, exact: bool) -> None:
        """The nearest items within a namespace are found, although other namespaces have nearer ones."""
        put(service, text="Kilns", user_id="ada")
        work_off()
        model = EmbeddingModel.objects.get()
        rows = [
            StoredItem(user=ada, application_id=DEFAULT, namespace=stored([f"n{n % 10}"]), key=str(n), text="Felt")
            for n in range(2_000)
        ]
        StoredItem.objects.bulk_create(rows)
        vectors = [[1.0, n / 1_000, *([0.0] * 62)] for n in range(2_000)]
        ItemEmbedding.objects.bulk_create(
            [
                ItemEmbedding(source=row, model=model, user=ada, said_at=row.created_at, vector=vector)
                for row, vector in zip(rows, vectors, strict=True)
            ]
        )
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE moments_app_storeditem")
            cursor.execute("ANALYZE moments_app_itemembedding")
            if not exact:
                cursor.execute("SELECT pg_get_functiondef('nearest_moments_app_itemembedding'::regproc)")
                [(made,)] = cursor.fetchall()
                cursor.execute(made.replace(str(EXACT), "100"))
        try:
            vector = Vector(model.pk, 64, [1.0, *([0.0] * 63)])
            with acting_for("ada", application=DEFAULT):
                found = list(search_items(ada, DEFAULT, ["n7"], "?", vector=vector, most=5))
            assert [row.key for row in map(StoredItem.objects.in_bulk(found).__getitem__, found)] == [
                *("7", "17", "27", "37", "47")
            ]
        finally:
            if not exact:
                connection.cursor().execute(made)


@pytest.mark.slow(seconds=20)
def test_a_search_reads_indexes(ada: UserProfile) -> None:
    """Among 2,000 items in 50 namespaces, a search reads only items of its namespace, and for a rare word no more."""
    rows = [
        StoredItem(
            user=ada,
            application_id=DEFAULT,
            namespace=stored(["n", str(number % 50)]),
            key=str(number),
            text=f"Glass and kilns{', and a quince' if number == 7 else ''}",
        )
        for number in range(2_000)
    ]
    StoredItem.objects.bulk_create(rows)
    connection.cursor().execute("ANALYZE moments_app_storeditem")

    first, beyond = namespace_range(["n", "7"])
    candidates = import_module("moments_app.migrations.0123_squashed_0134_item_store").CANDIDATES.replace(
        "%1$s", f"= {ada.pk}"
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # like the function
        cursor.execute(f"PREPARE items (text, text[], bigint, float8[], text, int, tsquery, jsonb) AS {candidates}")
        for start, end, word, index in (
            (first, beyond, "glass", "item_unique_address"),
            ("", None, "quince", "item_search"),
        ):
            words = " | ".join(f"'{stem}'" for stem in lexemes.words_of_query(word)[0].stems)
            cursor.execute("EXPLAIN EXECUTE items (%s, NULL, %s, NULL, %s, 10, %s, NULL)", [start, DEFAULT, end, words])
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert index in plan and "Seq Scan" not in plan, plan
        cursor.execute("DEALLOCATE items")
    for prefix, query, number in ((["n", "7"], "glass", 40), ([], "quince", 1)):
        with acting_for("ada", application=DEFAULT), connection.cursor() as cursor:
            before = rows_read(StoredItem)
            assert len(search_items(ada, DEFAULT, prefix, query, most=1_000)) == number
            assert rows_read(StoredItem) - before == number
