"""The context of a session: its layers, the endpoint, and when cached layers are rebuilt."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.context import receipts
from moments_app.context.assemble import ContextRequest, preview, serve
from moments_app.context.input import LiveTurn
from moments_app.context.layers import LAYERS, default_layers
from moments_app.context.layers.history import POLICY
from moments_app.context.render import FORMATS
from moments_app.models import ContextReceipt, EngineCall, Entity, MemoryStream, Moment, PromptResource, Summary
from moments_app.prompts import install_shipped_prompts
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import ALWAYS_READ, recall
from moments_app.turns import platform_text
from sessions_app.database import deferred
from sessions_app.models import ApiKey, Message, Session, UserProfile, application
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.entities import make_entity, new_entity
from tests.support.jobs import build, count, work_off
from tests.support.kept_rows import KeptRows
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form, note, rewrite, shard
from tests.support.transcript import START, talk, turns
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def tuned(settings: Settings, **fields: Any) -> None:
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update=fields)


def context(api: Api, session_id: str = "s1", user_id: str = "ada", **query: Any) -> dict[str, Any]:
    answer = api.get("memory/context", user_id=user_id, session_id=session_id, **query)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def layer(found: dict[str, Any], name: str) -> list[str]:
    [one] = [one for one in found["layers"] if one["name"] == name]
    return [item["text"] for item in one["items"]]


def sequences(found: dict[str, Any], name: str) -> list[int]:
    [one] = [one for one in found["layers"] if one["name"] == name]
    return [item["sequence_range"][0] for item in one["items"]]


@pytest.fixture
def remembered(transactional_db: None, rolling: None, kept_rows: KeptRows) -> None:
    """A session of 120 turns with moments, a summary, a profile and an open task."""
    kept_rows.have("remembered", remember)


def remember() -> None:
    ada = UserProfile.objects.ensure("ada")
    session = talk(ada, 120)
    build(session)
    work_off()
    append(ada, "s1", turns(2, first=120))
    work_off()
    make_entity(ada, "Order the element")


class TestLayers:
    """The layers of a context."""

    @pytest.mark.slow
    def test_layers_are_in_order_and_name_their_sources(self, remembered: None, service: Api) -> None:
        found = context(service, query="How is the kiln?")
        assert [one["name"] for one in found["layers"]] == default_layers()
        lines = {one["name"]: len(one["items"]) for one in found["layers"]}
        names = {"hot_turns": "hot_turns", "summaries": "summary", "entities": "entities", "moments": "moments"}
        assert found["sources"] == {name: lines[layer] for name, layer in names.items()} | {
            "streams": 0,
            "retrieved": lines["retrieved"],
        }
        assert lines["hot_turns"] == 38 and lines["retrieved"] > 10 and lines["entities"] == 1
        for one in found["layers"]:
            for item in one["items"]:
                assert item["ref"].startswith("rem://") or one["name"] in ("policy", "query")
        assert found["has_partition_event"] is True
        assert layer(found, "query") == ["How is the kiln?"]

    @pytest.mark.slow
    def test_the_newest_turns_follow_the_summary_if_the_window_does_not_fit(
        self, remembered: None, service: Api, ada: UserProfile
    ) -> None:
        latest = Summary.objects.completed().newest_first()[0]
        assert latest.end_sequence == 121
        assert sequences(context(service), "hot_turns") == list(range(84, 122))  # the live window fits completely
        assert layer(context(service), "summary") == []
        found = context(service, query="kiln", max_tokens=1_200)
        assert sequences(found, "hot_turns") == list(range(114, 122)) and layer(found, "summary") != []

    def test_without_a_boundary_hints_name_where_to_look(
        self, service: Api, ada: UserProfile, settings: Settings
    ) -> None:
        session = talk(ada, 60)
        assert layer(context(service), "moments") == []
        settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"insert_partition_event": False})
        build(session)
        [hint] = layer(context(service, refresh="true"), "moments")
        assert "rem://users/ada" in hint
        for moment in Moment.objects.newest_first()[:5]:
            assert moment.uri in hint

    @pytest.mark.slow
    def test_only_requested_layers_are_served_with_policy_and_query(self, remembered: None, service: Api) -> None:
        names = [one["name"] for one in context(service, layers="summary,user", query="x")["layers"]]
        assert names == ["policy", "user", "summary", "query"]

    def test_the_current_time_is_served_on_request_in_the_persons_time_zone(
        self, service: Api, ada: UserProfile
    ) -> None:
        talk(ada, 2)
        UserProfile.objects.update(timezone="Asia/Tokyo")
        [text] = layer(context(service, layers="now"), "now")
        tokyo = timezone.now().astimezone(timezone.get_fixed_timezone(9 * 60))
        assert f"{tokyo:%A, %Y-%m-%d}" in text and "Asia/Tokyo" in text
        assert all(one["name"] != "now" for one in context(service)["layers"])

    def test_the_current_message_is_not_repeated(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 4)
        append(ada, "s1", [NewMessage("user", "How is the kiln?")])
        assert layer(context(service, query="How is the kiln?"), "hot_turns")[-1].startswith("Turn 3")
        assert layer(context(service, query="Something else"), "hot_turns")[-1] == "How is the kiln?"

    def test_system_and_empty_turns_are_not_shown(self, service: Api, ada: UserProfile) -> None:
        append(ada, "s1", [NewMessage("system", "secret"), NewMessage("user", "a"), NewMessage("assistant", "b")])
        assert layer(context(service), "hot_turns") == ["a", "b"]

    def test_a_prompt_resource_replaces_the_policy(self, service: Api, ada: UserProfile, settings: Settings) -> None:
        talk(ada, 2)
        assert layer(context(service), "policy") == [POLICY]
        uri = "rem://prompts/memory-policy"
        resource = PromptResource.objects.create(uri=uri, name="Policy", purpose="memory-policy")
        resource.activate(resource.add_version("Trust nobody.", created_by="test"))
        assert layer(context(service), "policy") == ["Trust nobody."]

    def test_tool_calls_and_results_are_consecutive_messages(self, service: Api, ada: UserProfile) -> None:
        call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        append(
            ada,
            "s1",
            [
                NewMessage("tool", "orphan", tool_name="old", payload={"tool_call_id": "gone"}),
                NewMessage("user", "Rain?"),
                NewMessage("assistant", "", payload={"tool_calls": [call]}),
                NewMessage("tool", "sunny", tool_name="weather", payload={"tool_call_id": "a"}),
                NewMessage("assistant", "No.", payload={"tool_calls": [call | {"id": "never answered"}]}),
            ],
        )
        said = context(service, format="messages")["context"]
        assert [message["role"] for message in said] == ["system", "user", "assistant", "tool", "assistant"]
        assert said[2]["tool_calls"] == [call] and said[3]["tool_call_id"] == "a"
        assert "tool_calls" not in said[4]


class TestBudget:
    """Every context is bounded."""

    @pytest.mark.parametrize("name", ["json", "xml", "markdown", "messages"])
    @pytest.mark.parametrize("budget", [150, 999_999])
    def test_row_14_the_used_budget_is_within_the_applied_one_and_the_setting(
        self, remembered: None, service: Api, name: str, budget: int
    ) -> None:
        found = context(service, query="kiln", max_tokens=budget, format=name, retrieval="off")
        assert found["budget"]["requested"] == budget
        assert found["budget"]["applied"] == min(budget, 3_000)
        assert found["budget"]["estimated_used"] <= found["budget"]["applied"]
        assert bool(found["trimmed"]) or budget > 150

    def test_a_budget_too_small_for_policy_and_query_is_422_with_the_minimum(
        self, service: Api, ada: UserProfile
    ) -> None:
        talk(ada, 2)
        answer = service.get("memory/context", user_id="ada", session_id="s1", query="word " * 200, max_tokens=50)
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert error["code"] == "budget_too_small"
        needed = int("".join(filter(str.isdigit, error["detail"].split("need ")[1].split(" ")[0])))
        assert context(service, query="word " * 200, max_tokens=needed)["budget"]["estimated_used"] == needed


class TestLongWindow:
    """A live window that doesn't fit into the budget."""

    @pytest.fixture(autouse=True)
    def _said(self, ada: UserProfile) -> None:
        words = " ".join(f"word{n}" for n in range(20))
        append(ada, "s1", [NewMessage("user", f"Turn {n}: {words}") for n in range(110)])

    def test_older_turns_fill_the_budget_if_recall_finds_little(self, service: Api) -> None:
        found = context(service, query="harpsichord", max_tokens=1_500)
        assert sequences(found, "hot_turns") == list(range(92, 110))

    @pytest.mark.parametrize("name", ["json", "xml", "markdown", "messages"])
    def test_only_as_many_turns_are_read_as_can_fit(self, ada: UserProfile, name: str) -> None:
        request = ContextRequest(query="harpsichord", max_tokens=1_500, format=name, plan="stable")
        envelope = preview(ada, "s1", request)
        assert envelope is not None
        costs = [FORMATS[name].tokens("hot_turns", item) for item in LAYERS["hot_turns"].items(envelope.input)]
        assert len(costs) < 110 and sum(costs[1:]) <= 1_500
        newest = LiveTurn.of(Message.objects.get(session__session_id="s1", sequence=110 - len(costs) - 1))
        [older] = LAYERS["hot_turns"].items(replace(envelope.input, turns=[newest]))
        assert sum(costs) + FORMATS[name].tokens("hot_turns", older) > 1_500


class TestAsking:
    """The endpoint."""

    def test_chat_id_is_an_alias_and_long_queries_can_be_posted(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 2)
        by_get = service.get("memory/context", user_id="ada", chat_id="s1").json()
        assert layer(by_get, "hot_turns") == layer(context(service), "hot_turns")
        body = {"user_id": "ada", "chat_id": "s1", "query": "word " * 300, "layers": ["hot_turns"]}
        assert service.post("memory/context", body).status_code == 200

    @pytest.mark.parametrize(
        ("query", "attr"),
        [
            ({"max_tokens": 0}, "max_tokens"),
            ({"max_tokens": -5}, "max_tokens"),
            ({"max_tokens": "many"}, "max_tokens"),
            ({"max_tokens": 10**12}, "max_tokens"),
            ({"query": "x" * 200_000}, "query"),
            ({"query": "a\0b"}, "query"),
            ({"format": "yaml"}, "format"),
            ({"layers": "user,dreams"}, "layers.1"),
            ({"chat_id": "s2"}, "session_id"),
            ({"refresh": "perhaps"}, "refresh"),
            ({"depth": 3}, "depth"),
        ],
    )
    def test_errors_of_bad_input_name_the_field(
        self, service: Api, ada: UserProfile, query: dict[str, Any], attr: str
    ) -> None:
        talk(ada, 2)
        for answer in (
            service.get("memory/context", user_id="ada", session_id="s1", **query),
            service.post("memory/context", {"user_id": "ada", "session_id": "s1", **query}),
        ):
            assert answer.status_code == 400, answer.content
            assert [error["attr"] for error in answer.json()["errors"]] == [attr]

    def test_a_session_id_is_required(self, service: Api) -> None:
        assert service.get("memory/context", user_id="ada").json()["errors"][0]["attr"] == "session_id"

    def test_row_9_a_session_of_another_person_looks_unknown(
        self, service: Api, as_ada: Api, ada: UserProfile, bo: UserProfile
    ) -> None:
        talk(bo, 4, session_id="theirs", text="bo's secret")
        make_entity(bo, "bo's secret")
        unknown = context(service, "nowhere", query="secret", layers="user,entities,retrieved,hot_turns")
        foreign = context(service, "theirs", query="secret", layers="user,entities,retrieved,hot_turns")
        assert foreign | {"context_id": ""} == unknown | {"context_id": ""}
        assert "bo's secret" not in str(foreign)
        assert as_ada.get("memory/context", user_id="bo", session_id="theirs").status_code == 404
        assert as_ada.get("memory/context", user_id="nobody", session_id="theirs").status_code == 404
        nobody = service.get("memory/context", user_id="nobody", session_id="theirs", query="secret")
        assert nobody.status_code == 200 and "bo's secret" not in nobody.text
        talk(ada, 4, session_id="theirs", text="ada's own")
        assert "bo's secret" not in str(context(service, "theirs", query="secret"))

    def test_a_session_without_turns_gets_the_memory_of_its_person(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 4, text="the harpsichord needs new strings")
        UserProfile.objects.filter(pk=ada.pk).update(summary="Ada tunes harpsichords.")
        begun = context(service, "new", query="What does the harpsichord need?")
        assert "Ada tunes harpsichords." in begun["context"] and "new strings" in begun["context"]
        assert begun["sources"]["hot_turns"] == 0 and not begun["cached"]
        again = context(service, "new", query="What does the harpsichord need?")
        assert again["context"] == begun["context"]
        receipts.waiting.flush()
        assert not ContextReceipt.objects.filter(context_id=begun["context_id"]).exists()
        assert not Session.objects.filter(session_id="new").exists()

    def test_the_summary_of_a_session_without_turns_is_not_read(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 4)
        with CaptureQueriesContext(connection) as statements:
            context(service, "new")
        assert not any('FROM "moments_app_summary"' in statement["sql"] for statement in statements)

    def test_a_new_session_uses_the_given_agent(self, service: Api, ada: UserProfile) -> None:
        stream = MemoryStream.objects.ensure_of_person(ada, "coach")
        rewrite(stream, "Prefers short answers.")
        assert "short answers" in context(service, "new", agent_id="coach")["context"]
        assert "short answers" not in context(service, "new")["context"]

    def test_an_unknown_person_gets_a_context_and_nothing_is_stored(self, service: Api) -> None:
        answer = service.get("memory/context", user_id="newcomer", session_id="new", query="Hello?")
        assert answer.status_code == 200 and "Hello?" in answer.json()["context"]
        platform_text.line_buffer.flush()
        assert not UserProfile.objects.filter(user_id="newcomer").exists()

    def test_a_read_key_can_post(self, ada: UserProfile) -> None:
        talk(ada, 2)
        reader = Api(ApiKey.objects.issue("reader", scope="read")[1])
        assert reader.post("memory/context", {"user_id": "ada", "session_id": "s1"}).status_code == 200


@pytest.mark.slow
def test_the_same_request_gets_an_identical_context(remembered: None, service: Api) -> None:
    for name in ("xml", "markdown", "messages"):
        asked: dict[str, Any] = {"query": "How is the kiln?", "format": name, "max_tokens": 400}
        first = context(service, **asked)
        again = context(service, **asked)
        anew = context(service, **asked, refresh="true")
        assert first["context"] == again["context"] == anew["context"]
        assert first["layers"] == again["layers"] == anew["layers"]
        assert (again["cached"], anew["cached"]) == (True, False)


class TestFreshness:
    """Cached layers are rebuilt after every change."""

    def seen(self, service: Api) -> tuple[bool, str]:
        found = context(service)
        return found["cached"], found["context"]

    @pytest.fixture(autouse=True)
    def _kept(self, remembered: None, service: Api) -> None:
        context(service)
        assert self.seen(service)[0]

    def test_an_edited_profile_replaces_cached_layers(self, service: Api) -> None:
        assert service.patch("users/ada", summary="Ada moved to Turin.").status_code == 200
        cached, text = self.seen(service)
        assert not cached and "moved to Turin" in text

    @pytest.mark.slow
    def test_an_edited_or_deleted_moment_replaces_cached_layers(self, service: Api) -> None:
        latest = Moment.objects.newest_first()[0]
        service.patch(f"moments/{latest.key}", user_id="ada", summary="Quite another story.")
        cached, text = self.seen(service)
        assert not cached and "Quite another story." in text
        service.delete(f"moments/{latest.key}", user_id="ada")
        cached, text = self.seen(service)
        assert not cached and "Quite another story." not in text

    @pytest.mark.slow
    def test_a_new_summary_replaces_cached_layers(self, service: Api, ada: UserProfile) -> None:
        append(ada, "s1", turns(2, first=122))
        work_off()
        cached, text = self.seen(service)
        assert not cached and "Turn 122" in text

    @pytest.mark.slow
    def test_new_boundaries_and_moments_of_other_sessions_replace_cached_layers(
        self, service: Api, ada: UserProfile
    ) -> None:
        build(talk(ada, 60, session_id="s2"))
        newest = Moment.objects.newest_first()[0]
        cached, text = self.seen(service)
        assert not cached and newest.key in text

    def test_new_turns_are_served_next_to_cached_layers(self, service: Api, ada: UserProfile) -> None:
        append(ada, "s1", [NewMessage("user", "Just now.")])
        cached, text = self.seen(service)
        assert cached and "Just now." in text


class TestCost:
    """The number of queries is constant."""

    def queries(self, service: Api, session_id: str = "s1", **query: Any) -> int:
        with CaptureQueriesContext(connection) as captured:
            context(service, session_id, **query)
        return sum(not q["sql"].startswith(("BEGIN", "COMMIT")) for q in captured)

    @pytest.mark.slow
    def test_a_cached_context_takes_fewer_queries(self, remembered: None, service: Api, ada: UserProfile) -> None:
        context(service)  # records the use of the key, at most once a minute
        cold = self.queries(service, query="the element", refresh="true")
        cached = self.queries(service, query="the element")
        assert cold <= 15
        assert cached <= 7
        talk(ada, 400)
        Entity.objects.bulk_create(new_entity(ada, f"element {n}") for n in range(500))
        build(talk(ada, 300, session_id="s2"))
        assert self.queries(service, query="the element", refresh="true") == cold
        assert self.queries(service, query="the element") == cached

    def test_entities_are_searched_only_if_some_are_open(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 4)
        context(service)
        without = self.queries(service, query="the element")
        entity = make_entity(ada, "Sign the lease", status="done")
        assert self.queries(service, query="the element") == without
        Entity.objects.filter(pk=entity.pk).update(state="active")
        assert self.queries(service, query="the element") == without + 1

    @pytest.mark.slow
    def test_old_rows_of_a_person_are_found_without_reading_newer_rows_of_others(self, remembered: None) -> None:
        """Plan each statement with old rows of the person before newer rows of others."""
        others = [UserProfile.objects.ensure(f"person-{number}") for number in range(3)]
        one = Moment.objects.newest_first()[0]
        fields = {field.attname: getattr(one, field.attname) for field in Moment._meta.concrete_fields}
        fields = {name: value for name, value in fields.items() if name not in ("id", "search_vector", "created_at")}
        Moment.objects.bulk_create(
            Moment(**fields | {"user_id": other.pk, "key": f"k{n}"}) for other in others for n in range(1_000)
        )
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        with acting_for("ada", application=application.DEFAULT) as ada:
            assert ada is not None
            with CaptureQueriesContext(connection) as captured:
                envelope = preview(ada, "s1", ContextRequest(query="the element", refresh=True))
                assert envelope is not None
                serve(envelope)
            plans = [explained(query["sql"]) for query in captured if "moments_app_moment" in query["sql"]]
        assert len(plans) >= 2
        for plan in plans:
            assert "moment_user_in_time" in plan
            assert "moments_app_moment_pkey" not in plan and "Seq Scan on moments_app_moment" not in plan


def explained(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + sql)
        return "\n".join(row[0] for row in cursor)


class TestReceipts:
    """The content of a context can be looked up."""

    @pytest.fixture(autouse=True)
    def _kept(self, settings: Settings, transactional_db: None) -> Iterator[None]:
        tuned(settings, receipt_days=7)
        receipts.waiting.stop()  # its thread started with another interval
        yield
        receipts.waiting.stop()

    def test_receipts_are_written_after_the_response(
        self, service: Api, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(deferred, "INTERVAL", 0.05)
        talk(ada, 2)
        found = context(service)
        wait_until(ContextReceipt.objects.filter(context_id=found["context_id"]).exists)

    @pytest.mark.slow
    def test_a_receipt_lists_the_sources_without_text(self, remembered: None, service: Api) -> None:
        found = context(service, query="the marker", max_tokens=300)
        receipts.waiting.flush()
        receipt = ContextReceipt.objects.get(context_id=found["context_id"])
        assert receipt.tokens == {one["name"]: one["tokens"] for one in found["layers"] if one["items"]}
        assert receipt.trimmed == found["trimmed"] != []
        assert receipt.refs["moments"][0].startswith("rem://sessions/s1/messages/")
        assert "marker" not in str(vars(receipt))
        again = context(service, query="the marker", max_tokens=300)
        receipts.waiting.flush()
        same = ContextReceipt.objects.get(context_id=again["context_id"])
        assert (same.query_hash, same.text_hash) == (receipt.query_hash, receipt.text_hash)

    def test_the_request_does_not_wait_for_the_receipt(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 2)
        with CaptureQueriesContext(connection) as captured:
            context(service)
        assert not any("contextreceipt" in query["sql"] for query in captured)

    def test_no_receipt_is_kept_if_receipts_are_off(self, service: Api, ada: UserProfile, settings: Settings) -> None:
        tuned(settings, receipt_days=0)
        talk(ada, 2)
        context(service)
        receipts.waiting.flush()
        assert not ContextReceipt.objects.exists()

    def test_a_receipt_of_a_deleted_session_does_not_block_others(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 2), talk(ada, 2, session_id="s2")
        context(service)
        kept = context(service, "s2")["context_id"]
        ada.sessions.get(session_id="s1").delete()
        receipts.waiting.flush()
        assert [str(receipt.context_id) for receipt in ContextReceipt.objects.all()] == [kept]

    def test_old_receipts_are_deleted(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 2)
        context(service), context(service)
        receipts.waiting.flush()
        old = ContextReceipt.objects.earliest("id")
        ContextReceipt.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=8))
        call_command("run_schedule", "prune_receipts")
        assert ContextReceipt.objects.count() == 1


class TestStreams:
    def test_streams_are_in_their_layers_with_dates_and_lessons_first(self, service: Api, ada: UserProfile) -> None:
        session = talk(ada, 4)
        MemoryStream.objects.ensure_for(session)
        own = {stream.stream_type: stream for stream in MemoryStream.objects.all()}
        note(own["session"], "The element broke.", "fact", formed_at=START)
        rewrite(own["user"], "Ada is a potter.")
        note(own["user"], "Ada likes short answers.", formed_at=START)
        note(shard("kilns"), "Elements last three years.", "fact", formed_at=START)
        note(shard("lessons"), "Ask before you order.", formed_at=START)
        note(shard("other", "another agent"), "Not for this agent.", "fact")
        found = context(service)
        assert layer(found, "conversation") == ["The element broke. (2026-03-02)"]
        assert layer(found, "user") == ["Ada is a potter.", "Ada likes short answers. (2026-03-02)"]
        assert layer(found, "collective") == [
            "Ask before you order. (2026-03-02)",
            "Elements last three years. (2026-03-02)",
        ]
        assert '<MemoryShard name="lessons">Ask before you order. (2026-03-02)</MemoryShard>' in found["context"]
        assert found["sources"]["streams"] == 3

    def test_lessons_of_one_session_are_in_the_contexts_of_others(
        self, service: Api, ada: UserProfile, forming: None
    ) -> None:
        talk(ada, 2, session_id="s2")
        assert "hazelnuts" not in str(context(service, "s2"))
        assert context(service, "s2")["cached"]
        said = [NewMessage("user", "I'm allergic to hazelnuts, badly."), NewMessage("assistant", "Noted.")]
        form(append(ada, "s1", said).session)
        found = context(service, "s2")
        assert "hazelnuts" in str(layer(found, "user")) and not found["cached"]

    def test_row_9_streams_of_another_person_are_not_served(
        self, service: Api, ada: UserProfile, bo: UserProfile, forming: None
    ) -> None:
        for person in (ada, bo):
            said = [NewMessage("user", f"I'm allergic to nuts, says {person}."), NewMessage("assistant", "Noted.")]
            form(append(person, "s1", said).session)
        assert "says bo" not in str(context(service)) and "says ada" in str(context(service))
        assert "says ada" not in str(context(service, user_id="bo"))


class TestRetrieved:
    def test_memory_of_any_session_is_served_with_its_address_and_date(self, service: Api, ada: UserProfile) -> None:
        append(ada, "old", [NewMessage("user", "The harpsichord came from Lyon.", created_at=START)])
        talk(ada, 4)
        found = context(service, query="Where is my harpsichord from?")
        assert layer(found, "retrieved") == ["The harpsichord came from Lyon."]
        assert "2 March 2026:\n- user: The harpsichord came from Lyon.\n" in found["context"]
        [one] = [one for one in found["layers"] if one["name"] == "retrieved"]
        assert one["items"][0]["ref"] == "rem://sessions/old/messages/0"
        assert found["sources"]["retrieved"] == 1
        assert "<RetrievedMemories>" in found["context"]

    @pytest.mark.slow
    def test_days_and_times_are_in_the_persons_time_zone(self, service: Api, ada: UserProfile) -> None:
        late = datetime(2026, 3, 2, 22, 30, tzinfo=UTC)
        said = [NewMessage("user", "The harpsichord came from Lyon.", created_at=late)]
        append(ada, "old", [*said, NewMessage("assistant", "A fine harpsichord.", created_at=late)])
        session = append(ada, "s1", [NewMessage("user", "Hello.", created_at=late)]).session
        MemoryStream.objects.ensure_for(session)
        note(MemoryStream.objects.get(stream_type="user"), "Ada likes short answers.", "fact", formed_at=late)
        days = {"UTC": ("2 March 2026:", "2026-03-02", "22:30"), "Asia/Tokyo": ("3 March 2026:", "2026-03-03", "07:30")}
        for zone in ("UTC", "Asia/Tokyo", "UTC"):  # a profile can change its time zone at any time
            assert service.patch("users/ada", timezone=zone).status_code == 200
            found = context(service, query="harpsichord")
            heading, day, hour = days[zone]
            assert f"{heading}\n- user: The harpsichord" in found["context"]
            assert f'time="{day} {hour}">Hello.' in found["context"]
            assert layer(found, "user") == [f"Ada likes short answers. ({day})"]
            [retrieved] = [one for one in found["layers"] if one["name"] == "retrieved"]
            assert retrieved["items"][0]["time"] == "2026-03-02T22:30:00Z"

    def test_text_of_another_layer_is_not_repeated(self, service: Api, ada: UserProfile) -> None:
        append(ada, "s1", [NewMessage("user", "A harpsichord!"), NewMessage("assistant", "A fine harpsichord.")])
        note(shard("music"), "A harpsichord has jacks.", "fact")
        found = context(service, query="harpsichord")
        assert sequences(found, "hot_turns") == [0, 1]
        assert layer(found, "retrieved") == []

    def test_the_current_message_does_not_match_itself(self, service: Api, ada: UserProfile) -> None:
        append(ada, "s1", [NewMessage("user", "Hello."), NewMessage("assistant", "Hi.")])
        append(ada, "s1", [NewMessage("user", "Where is my harpsichord?")])
        assert layer(context(service, query="Where is my harpsichord?"), "retrieved") == []

    def test_memory_is_searched_only_if_the_layer_is_requested(self, service: Api, ada: UserProfile) -> None:
        append(ada, "old", [NewMessage("user", "The harpsichord came from Lyon.")])
        talk(ada, 4)
        assert layer(context(service, query="harpsichord", retrieval="off"), "retrieved") == []
        assert layer(context(service), "retrieved") == []
        named = context(service, query="harpsichord", layers="summary")
        assert "retrieved" not in [one["name"] for one in named["layers"]]

    def test_a_relative_time_gets_its_date(self, service: Api, ada: UserProfile) -> None:
        said = datetime(2026, 3, 3, 1, 0, tzinfo=UTC)
        ada.timezone = "America/New_York"  # where it is still 2 March
        ada.save()
        append(ada, "old", [NewMessage("user", "The harpsichord came yesterday.", created_at=said)])
        talk(ada, 4)
        assert layer(context(service, query="harpsichord"), "retrieved") == [
            "The harpsichord came yesterday [1 March 2026]."
        ]

    def test_a_long_result_is_shortened_and_names_the_address_of_the_whole(
        self, service: Api, ada: UserProfile
    ) -> None:
        append(ada, "old", [NewMessage("user", "harpsichord " + "very " * 2_000 + "end")])
        talk(ada, 4)
        [text] = layer(context(service, query="harpsichord"), "retrieved")
        assert len(text) < 800 and "rem://sessions/old/messages/0" in text

    def test_a_long_result_leaves_room_for_others_in_a_small_budget(self, service: Api, ada: UserProfile) -> None:
        append(ada, "old", [NewMessage("user", f"harpsichord {number} " + "string " * 200) for number in range(4)])
        talk(ada, 4)
        large, small = (
            layer(context(service, query="harpsichord", layers="retrieved", max_tokens=budget), "retrieved")
            for budget in (3_000, 500)
        )
        assert len(large) == 4 and min(map(len, large)) > 600
        assert len(small) > 1 and max(map(len, small)) < 500

    def test_row_9_nothing_of_another_person_is_retrieved(
        self, service: Api, ada: UserProfile, bo: UserProfile
    ) -> None:
        append(bo, "old", [NewMessage("user", "The harpsichord came from Lyon.")])
        talk(ada, 4)
        assert layer(context(service, query="harpsichord"), "retrieved") == []

    def test_a_word_of_nearly_all_turns_does_not_fill_the_budget(self, service: Api, ada: UserProfile) -> None:
        """A search finds all these turns. Next to a turn with the rare word, few of them are worth their tokens."""
        append(ada, "old", [NewMessage("user", f"Fired the kiln at {1_000 + n} degrees.") for n in range(90)])
        count(ada)
        talk(ada, 4)
        lines = layer(context(service, query="kiln 1040"), "retrieved")
        around = [f"Fired the kiln at {degrees} degrees." for degrees in range(1_036, 1_045)]
        assert len(lines) == ALWAYS_READ and set(around) <= set(lines)
        assert len(layer(context(service, query="kiln"), "retrieved")) == 90
        assert len(recall(ada, "default", RecallRequest("kiln 1040"), most=90)) == 90

    def test_the_worst_results_are_dropped_first(self, service: Api, ada: UserProfile) -> None:
        texts = [f"harpsichord number {n} " + "came from Lyon " * 20 for n in range(5)]
        for number, text in enumerate(texts):
            append(ada, f"old{number}", [NewMessage("user", text)])
        talk(ada, 4)
        whole = context(service, query="harpsichord", layers="retrieved")
        most = whole["budget"]["estimated_used"] - 150
        less = context(service, query="harpsichord", layers="retrieved", max_tokens=most)
        kept = layer(less, "retrieved")
        best = [one.content for one in recall(ada, "default", RecallRequest("harpsichord"), most=5)][: len(kept)]
        assert {text.strip() for text in kept} == {text.strip() for text in best} and 0 < len(kept) < 5


class TestRelevantRetrieval:
    """`retrieval=relevant`: a message that nothing fits gets no results."""

    CODING = "Rename the function that reads a configuration file, and fix all of its tests in Oslo."

    @pytest.fixture(autouse=True)
    def _said(self, ada: UserProfile) -> None:
        append(ada, "old", [NewMessage("user", "The harpsichord came from Oslo."), NewMessage("assistant", "Lovely.")])
        talk(ada, 4)
        count(ada)

    def retrieved(self, service: Api, query: str, session_id: str = "s1") -> list[str]:
        return layer(context(service, session_id, query=query, retrieval="relevant"), "retrieved")

    def test_a_message_that_memory_fits_gets_the_same_results_as_by_default(self, service: Api) -> None:
        asked = "Where did the harpsichord come from?"
        found = self.retrieved(service, asked)
        assert "The harpsichord came from Oslo." in found
        assert found == layer(context(service, query=asked), "retrieved")

    def test_a_message_with_few_words_of_memory_gets_no_results(self, service: Api) -> None:
        assert "The harpsichord came from Oslo." in layer(context(service, query=self.CODING), "retrieved")
        assert self.retrieved(service, self.CODING) == []

    def test_a_message_of_one_word_gets_no_results(self, service: Api) -> None:
        assert layer(context(service, query="Lovely."), "retrieved") != []
        assert self.retrieved(service, "Lovely.") == []

    def test_a_query_that_only_live_turns_match_gets_no_results(self, service: Api, ada: UserProfile) -> None:
        append(ada, "s2", [NewMessage("user", "Rename the reading function in Oslo.")])
        count(ada)
        assert self.retrieved(service, "Rename the reading function in Oslo, please.", "s1") != []
        assert self.retrieved(service, "Rename the reading function in Oslo, please.", "s2") == []

    def test_a_question_about_a_time_gets_what_was_said_then(self, service: Api, ada: UserProfile) -> None:
        then = timezone.now() - timedelta(days=1)
        append(ada, "s3", [NewMessage("user", "I tuned the spinet.", created_at=then)])
        assert self.retrieved(service, "What did I say yesterday?") == ["I tuned the spinet."]
        assert self.retrieved(service, "Fix the migration of yesterday's release branch.") == []


class TestAutomaticRetrieval:
    """`retrieval=auto`: an engine chooses what to search for."""

    @pytest.fixture(autouse=True)
    def _said(self, model_server: OpenAIServer, service: Api, ada: UserProfile) -> None:
        install_shipped_prompts()
        append(ada, "old", [NewMessage("user", "The harpsichord came from Lyon.", created_at=START)])
        append(ada, "s1", [NewMessage("user", "I play the harpsichord."), NewMessage("assistant", "Lovely.")])

    def test_the_query_is_derived_from_the_conversation(self, service: Api, model_server: OpenAIServer) -> None:
        found = context(service, query="Where is it from?", retrieval="auto")
        assert layer(found, "retrieved")[0].startswith("The harpsichord came from Lyon.")
        assert layer(found, "query") == ["Where is it from?"]
        [call] = EngineCall.objects.all()
        assert (call.purpose, call.ok) == ("recall-query", True)
        assert call.prompt_version is not None

    def test_memory_is_not_searched_if_the_engine_finds_no_need(self, service: Api) -> None:
        assert layer(context(service, query="Hello there, harpsichord!", retrieval="auto"), "retrieved") == []

    @pytest.mark.parametrize(
        "behaviour",
        [behave.error(500), behave.stall(60), behave.raw("null"), behave.content("no JSON"), behave.hang_up],
    )
    def test_the_message_is_the_query_if_the_engine_fails_or_is_slow(
        self, service: Api, model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, behaviour: Any
    ) -> None:
        monkeypatch.setattr("moments_app.recall.query.TIMEOUT", 0.5)
        model_server.always(behaviour)
        started = time.monotonic()
        found = context(service, query="Where is the harpsichord from?", retrieval="auto")
        assert time.monotonic() - started < 30  # a single response would take 60 s
        assert layer(found, "retrieved")
        assert not EngineCall.objects.get().ok

    def test_no_connection_is_held_during_the_engine_call(self, service: Api, model_server: OpenAIServer) -> None:
        states: list[list[tuple[str, ...]]] = []

        def look(handler: Any, body: dict[str, Any]) -> None:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT state FROM pg_stat_activity"
                    " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
                )
                states.append(list(cursor.fetchall()))
            connection.close()
            behave.answer_well(handler, body)

        model_server.always(look)
        context(service, query="Where is it from?", retrieval="auto")
        assert states == [[]]

    def test_no_engine_is_called_by_default(self, service: Api, model_server: OpenAIServer) -> None:
        context(service, query="Where is the harpsichord from?")
        context(service, query="Where is the harpsichord from?", retrieval="auto", layers="summary")
        assert model_server.requests == []

    def test_row_9_the_engine_receives_no_turns_of_another_person(
        self, as_ada: Api, model_server: OpenAIServer, bo: UserProfile
    ) -> None:
        append(bo, "s1", [NewMessage("user", "bo's secret")])
        as_ada.get("memory/context", user_id="bo", session_id="s1", query="secret", retrieval="auto")
        as_ada.get("memory/context", session_id="s1", query="it", retrieval="auto")
        assert len(model_server.requests) == 1 and "bo's secret" not in str(model_server.requests)
