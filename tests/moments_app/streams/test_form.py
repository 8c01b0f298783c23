"""Formation: which statements of a conversation go into which stream, without loss or duplicates."""

import json
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.process import QueuedJobs
from moments_app.models import EngineCall, Job, MemoryAtom, MemoryStream
from moments_app.models.atom import content_hash
from moments_app.streams.add_atoms import add_atoms
from moments_app.streams.form import FormMemories
from moments_app.turns import platform_text
from sessions_app.models import Event, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.text.length import cut_words
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import at_once
from tests.support.jobs import work_off
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form, note, shard
from tests.support.transcript import talk, turns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def answer(*entries: dict[str, Any]) -> behave.Behaviour:
    return behave.memories(*entries)


def item(text: str, *indexes: int, kind: str = "event") -> str:
    return f"{kind} {','.join(map(str, indexes))}: {text}"


def contents(**of: Any) -> list[str]:
    return list(MemoryAtom.objects.active().filter(**of).in_order().values_list("content", flat=True))


class TestWhen:
    """When a formation is queued."""

    def test_a_formation_is_requested_at_the_interval_of_turns(self, ada: UserProfile, settings: Settings) -> None:
        few = settings.MEMORY_FORMATION.model_copy(update={"token_interval": 10**9})
        settings.MEMORY_FORMATION = few
        assert not append(ada, "s1", turns(44)).jobs
        assert [job.process for job in append(ada, "s1", turns(1, first=44)).jobs] == ["form_memories"]
        work_off()
        assert not append(ada, "s1", turns(44, first=45)).jobs
        assert append(ada, "s1", turns(1, first=89)).jobs

    def test_a_formation_is_requested_at_the_interval_of_weighted_tokens(self, ada: UserProfile) -> None:
        text = "word " * 900
        said = [NewMessage(role, text) for role in ("assistant", "assistant", "user", "assistant")]
        assert not append(ada, "s1", said).jobs
        assert append(ada, "s1", [NewMessage("user", text)]).jobs
        session = Session.objects.get()
        assert session.weighted_tokens == pytest.approx(
            sum(message.tokens * (1.0 if message.role == "user" else 0.2) for message in session.messages.all())
        )

    def test_a_formation_needs_the_minimum_of_turns(self, ada: UserProfile) -> None:
        assert not append(ada, "s1", [NewMessage("user", "word " * 3000)] * 3).jobs

    @pytest.mark.slow
    def test_a_quiet_session_is_formed_with_fewer_turns(self, ada: UserProfile, bo: UserProfile) -> None:
        talk(ada, 6)
        talk(bo, 3, session_id="short")
        assert FormMemories().sweep() == QueuedJobs(1)  # their turns are months old
        Session.objects.update(last_arrived_at=timezone.now())
        work_off()
        talk(ada, 6)
        Session.objects.update(last_arrived_at=timezone.now())
        assert FormMemories().sweep() == QueuedJobs(0)
        Session.objects.update(last_arrived_at=timezone.now() - timedelta(minutes=11))
        assert FormMemories().sweep() == QueuedJobs(1)
        work_off()
        assert FormMemories().sweep() == QueuedJobs(0)

    def test_formations_can_be_turned_off(self, ada: UserProfile, settings: Settings) -> None:
        settings.MEMORY_FORMATION = settings.MEMORY_FORMATION.model_copy(update={"enabled": False})
        assert not append(ada, "s1", turns(60)).jobs
        assert FormMemories().sweep() == QueuedJobs(0)


class TestStreams:
    """Which streams exist."""

    def test_streams_of_session_and_person_are_added_once_on_first_use(self, ada: UserProfile) -> None:
        for _ in range(2):
            form(talk(ada, 6))
        found = set(MemoryStream.objects.values_list("stream_type", "agent_id", "user__user_id", "session__session_id"))
        assert found == {("session", "default", "ada", "s1"), ("user", "default", "ada", None)}

    def test_one_call_serves_all_streams(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        shard("kilns"), shard("glazes", "default"), shard("elsewhere", "other agent"), shard("off", is_active=False)
        form(talk(ada, 6))
        [call] = EngineCall.objects.filter(purpose="memory-extraction")
        assert call.ok
        asked = model_server.requests[-1]["messages"][1]["content"]
        sections = [json.loads(line[8:]) for line in asked.splitlines() if line.startswith("Stream: ")]
        assert [section["stream"] for section in sections] == ["shard kilns", "shard glazes", "session", "user"]
        assert {atom.stream.label for atom in MemoryAtom.objects.all()} == {s["stream"] for s in sections}

    def test_items_of_two_shards_with_one_name_are_distinguished(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        everybodys, agents = shard("kilns"), shard("kilns", "default")
        form(talk(ada, 6))
        for stream, label in ((everybodys, "shard kilns"), (agents, "shard kilns of default")):
            texts = stream.atoms.values_list("content", flat=True)
            assert texts and all(text.startswith((f"{label} facts", f"{label} observations")) for text in texts)

    def test_the_database_rejects_invalid_owners_of_streams(self, ada: UserProfile) -> None:
        shard("kilns")
        with pytest.raises(IntegrityError, match="shard_unique_in_application"):
            shard("kilns")
        with pytest.raises(IntegrityError, match="shard_has_application"):
            shard("vents", application_id=None)
        with pytest.raises(IntegrityError, match="stream_unique_of_person"):
            [MemoryStream.objects.create(stream_type="user", user=ada, extraction_prompt="x") for _ in range(2)]
        with pytest.raises(IntegrityError, match="stream_scope_fits_type"):
            MemoryStream.objects.create(
                stream_type="agent", name="x", application_id=DEFAULT, user=ada, extraction_prompt="x"
            )
        with pytest.raises(IntegrityError, match="stream_scope_fits_type"):
            MemoryStream.objects.create(stream_type="user", extraction_prompt="x")


class TestItems:
    """Valid items of an answer are kept, each independently of the others."""

    def test_valid_items_are_kept_and_invalid_ones_counted_by_reason(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        model_server.queue(
            answer(
                {
                    "stream": "session",
                    "statements": [
                        item("The element arrives on Thursday.", 2),
                        item("No turn says this.", 99),
                        item("   ", 1),
                        {"text": 7, "turns": [1]},
                        "not even an item",
                        item("The element arrives on THURSDAY", 3),
                    ],
                },
                {"stream": "user", "statements": "many"},
                {"stream": "shard nowhere", "statements": [item("x", 1)]},
            )
        )
        job = form(talk(ada, 6))
        assert contents() == ["The element arrives on Thursday."]
        assert job.status == "completed"
        assert job.result["atoms"] == 1
        assert job.result["dropped"] == {
            "no source turn": 1,
            "wrong shape": 3,
            "known already": 1,
            "facts are not a list": 1,
            "unknown stream": 1,
        }

    def test_an_atom_has_time_and_source_turns(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        model_server.queue(answer({"stream": "session", "statements": [item("A fact.", 4, 1, 99)]}))
        session = talk(ada, 6)
        job = form(session)
        atom = MemoryAtom.objects.get()
        first, last = session.messages.get(sequence=1), session.messages.get(sequence=4)
        assert atom.source_message_ids == [first.pk, last.pk]
        assert atom.formed_at == last.created_at
        assert (atom.source_session, atom.user, atom.job) == (session, ada, job)
        assert atom.engine.startswith("openai:") and atom.prompt_version is not None
        event = Event.objects.get(type="memories_formed")
        assert event.payload["atoms"] == 1

    def test_an_item_above_its_limit_is_cut_at_a_sentence(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        long = "The first sentence is short. " + "word " * 60
        model_server.queue(answer({"stream": "session", "statements": [item(long, 1)]}))
        form(talk(ada, 6))
        assert contents() == ["The first sentence is short."]
        assert cut_words("one two three", 2) == "one two"

    @pytest.mark.slow
    def test_all_items_are_kept_in_any_number(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        many = [item(f"Fact {letter}{other} of the many.", 1) for letter in "bcdefghj" for other in "klmnopqrst"]
        model_server.queue(answer({"stream": "session", "statements": many}, {"stream": "user", "statements": many}))
        job = form(talk(ada, 6))
        assert MemoryAtom.objects.count() == 160
        assert (job.result["atoms"], job.result["dropped"]) == (160, {})

    @pytest.mark.slow
    def test_the_text_of_a_stream_has_its_newest_facts_and_searches_find_all_facts(
        self, ada: UserProfile, model_server: OpenAIServer, service: Api
    ) -> None:
        for name in ("one", "two", "three", "four", "five", "six"):
            session = talk(ada, 4)
            MemoryStream.objects.filter(stream_type="session").update(fact_buffer_max=8)
            facts = [item(f"Fact {name} {part}.", 3) for part in ("early", "late")]
            model_server.queue(answer({"stream": "session", "statements": facts}))
            form(session)
        assert len(contents()) == 12
        asked = {"user_id": "ada", "session_id": session.session_id, "layers": "conversation"}
        context = service.get("memory/context", **asked).json()["context"]
        assert "Fact three early." in context and "Fact six early." in context and "Fact two late." not in context
        found = service.post("memory/search", user_id="ada", query="Fact one early", kinds=["fact"], mode="text").json()
        assert "Fact one early." in [result["content"] for result in found["results"]]

    def test_a_model_names_the_kind_of_an_item_and_an_invalid_kind_is_replaced(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        said = {"Wohnt in Kiel.": "home", "Backt gern.": "baking", "Nora likes tea.": "other"}
        facts = [item(text, 1, kind=kind) for text, kind in said.items()]
        model_server.queue(answer({"stream": "user", "statements": facts}))
        append(ada, "s1", [NewMessage("user", "Hallo"), NewMessage("user", " ".join(said), name="Nora")])
        form(Session.objects.get())
        found = MemoryAtom.objects.values_list("content", "kind", "about_kind", "speaker")
        assert sorted(found) == [
            ("Backt gern.", "other", "user", "Nora"),
            ("Nora likes tea.", "preference", "user", "Nora"),
            ("Wohnt in Kiel.", "home", "user", "Nora"),
        ]

    def test_row_23_text_from_memory_is_not_remembered_again(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        lines = "- Likes remembered text. (2026-03-02)\n- Has remembered text. (2026-03-03)"
        platform_text.store_lines(ada.pk, [lines])
        batch = [
            NewMessage("system", "You are kind."),
            NewMessage("user", "Hello"),
            NewMessage("tool", "remembered text", tool_name="search_long_term_memory"),
            NewMessage("assistant", lines),
            NewMessage("tool", lines, tool_name="x"),
            NewMessage("assistant", f"Hello Nora\n{lines}"),
        ]
        session = append(ada, "s1", batch).session
        form(session)
        assert "remembered text" not in str(model_server.requests)
        assert [turn["text"] for turn in behave.turns_of(model_server.requests[-1])] == ["Hello", "Hello Nora"]
        session.refresh_from_db()
        assert session.last_formation_sequence == 5

    def test_without_a_model_statements_of_the_person_become_observations(self, ada: UserProfile) -> None:
        said = ["I'm allergic to hazelnuts, badly.", "Noted.", "The element arrives on Thursday, 5 March.", "Good."]
        roles = ["user", "assistant"] * 2
        form(append(ada, "s1", [NewMessage(role, text) for role, text in zip(roles, said, strict=True)]).session)
        assert contents(stream__stream_type="user") == ["User: I'm allergic to hazelnuts, badly."]
        assert any("arrives on Thursday" in text for text in contents(stream__stream_type="session"))


class TestFailure:
    """An engine that fails loses nothing."""

    @pytest.mark.slow
    @pytest.mark.parametrize("behaviour", [behave.error(500), behave.content("null")])
    def test_row_3_a_failed_formation_changes_only_the_job(
        self, ada: UserProfile, model_server: OpenAIServer, behaviour: behave.Behaviour
    ) -> None:
        session = talk(ada, 6)
        model_server.always(behaviour)
        job = form(session)
        assert (job.status, job.attempts) == ("queued", 1)
        session.refresh_from_db()
        assert session.last_formation_sequence is None and not MemoryAtom.objects.exists()
        model_server.always(behave.answer_well)
        work_off()
        assert MemoryAtom.objects.exists()

    @pytest.mark.slow
    def test_row_4_every_turn_is_formed_once_despite_random_failures(
        self, ada: UserProfile, model_server: OpenAIServer, settings: Settings
    ) -> None:
        settings.JOBS = settings.JOBS.model_copy(update={"max_attempts": 50})
        model_server.always(behave.fails_at_random(0.4, seed=3))
        for _ in range(20):
            talk(ada, 20)
            work_off()
        session = Session.objects.get()
        form(session)
        work_off()
        session.refresh_from_db()
        assert session.last_formation_sequence == session.last_sequence
        assert Job.objects.filter(status="failed").count() == 0
        ranges = sorted(
            (job.result["first_sequence"], job.result["last_sequence"])
            for job in Job.objects.filter(process="form_memories", status="completed")
        )
        assert ranges[0][0] == 0
        assert all(before[1] < after[0] for before, after in pairwise(ranges))
        active = MemoryAtom.objects.active().values_list("stream_id", "content_hash")
        assert len(set(active)) == len(active)

    @pytest.mark.slow
    def test_row_1_concurrent_workers_add_each_item_once(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        session = talk(ada, 6)
        stream = shard("kilns")
        at_once(lambda n: _try(lambda: note(stream, "The very same.")), 8)
        assert contents(stream=stream) == ["The very same."]
        form(session)
        before = contents()
        Session.objects.update(last_formation_sequence=None)
        job = form(session)
        assert contents() == before
        assert job.result["atoms"] == 0 and job.result["dropped"]["known already"] > 0


def _try(work: Any) -> None:
    with suppress(IntegrityError):
        work()


def test_row_9_items_and_streams_are_visible_to_their_person_and_shards_to_all(
    ada: UserProfile, bo: UserProfile
) -> None:
    form(talk(ada, 6, text="I live in Turin and I love kilns."))
    form(talk(bo, 6, text="I live in Turin and I love kilns."))
    note(shard("kilns"), "A shard's own.", "fact")
    for person in (ada, bo):
        with acting_for(person.user_id, application=DEFAULT), connection.cursor() as cursor:
            for table in ("memoryatom", "memorystream"):
                cursor.execute(f"SELECT DISTINCT user_id FROM moments_app_{table}")
                assert {row[0] for row in cursor} == {person.pk, None}
    with acting_for(None, application=DEFAULT), connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT user_id FROM moments_app_memoryatom")
        assert {row[0] for row in cursor} == {None}


class TestOwnModels:
    """A stream may name its own extraction model."""

    @pytest.fixture(autouse=True)
    def allowed(self, forming: None, settings: Settings, model_server: OpenAIServer) -> None:
        """Allow two additional models for streams."""
        allowed = settings.MEMORY_FORMATION.model_copy(update={"stream_models": ["large", "small"]})
        settings.MEMORY_FORMATION = allowed

    def test_it_is_called_only_for_its_streams_and_recorded_with_calls_and_items(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        kilns = shard("kilns", extraction_model="large")
        job = form(talk(ada, 6))
        assert job.status == "completed" and job.result["engine"] == "openai:gpt-4.1-mini, openai:large"
        asked = {body["model"]: body["messages"][1]["content"] for body in model_server.requests}
        assert "shard kilns" in asked["large"] and "shard kilns" not in asked["gpt-4.1-mini"]
        assert '"session"' in asked["gpt-4.1-mini"] and '"session"' not in asked["large"]
        calls = EngineCall.objects.filter(purpose="memory-extraction", job=job)
        assert set(calls.values_list("engine", flat=True)) == {"openai:gpt-4.1-mini", "openai:large"}
        assert set(kilns.atoms.values_list("engine", flat=True)) == {"openai:large"}
        others = MemoryAtom.objects.exclude(stream=kilns)
        assert set(others.values_list("engine", flat=True)) == {"openai:gpt-4.1-mini"}

    def test_its_answers_for_other_streams_are_dropped(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        shard("kilns", extraction_model="large")
        entry = {"stream": "session", "statements": [item("Turn 1 is about the kiln.", 1)]}
        model_server.queue(answer(), answer(entry))
        assert form(talk(ada, 6)).result["dropped"] == {"unknown stream": 1}
        assert not MemoryAtom.objects.exists()

    @pytest.mark.slow
    def test_its_failure_changes_nothing_and_holds_only_the_job(
        self, ada: UserProfile, bo: UserProfile, model_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.models.circuit.PROBE_SECONDS", 60)
        shard("kilns", "a", extraction_model="large")
        first = append(ada, "s1", turns(6), agent_id="a").session
        model_server.queue(behave.answer_well, behave.error(401))
        assert form(first).status == "queued"
        assert not MemoryAtom.objects.exists()
        first.refresh_from_db()
        assert first.last_formation_sequence is None
        assert form(talk(bo, 6)).status == "completed"
        held = Job.objects.get(process="form_memories", session=first)
        assert held.circuit is not None and held.circuit.engine == "openai:large"

    def test_a_model_that_is_no_longer_allowed_is_replaced_by_the_default(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        shard("kilns", extraction_model="withdrawn")
        assert form(talk(ada, 6)).status == "completed"
        assert [body["model"] for body in model_server.requests] == ["gpt-4.1-mini"]

    def test_it_can_be_set_over_rest_if_settings_allow_it(self, service: Api, ada: UserProfile) -> None:
        body = {"user_id": "ada", "name": "kilns", "extraction_prompt": "Kilns."}
        refused = service.post("streams", **body, extraction_model="huge")
        assert refused.status_code == 400 and refused.json()["errors"][0]["attr"] == "extraction_model"
        made = service.post("streams", **body, extraction_model="large").json()
        assert made["extraction_model"] == "large"
        address = f"streams/{made['stream_id']}"
        assert service.patch(address, user_id="ada", extraction_model="huge").status_code == 400
        assert service.patch(address, user_id="ada", extraction_model="").json()["extraction_model"] == ""


def test_without_a_model_each_shard_gets_what_fits_its_prompt(ada: UserProfile) -> None:
    prompt = "What is known of kilns, elements and firing schedules"
    said = [
        "A kiln element lasts about 150 firings.",
        "The firing schedule of a kiln begins with 60 degrees an hour.",
        "The kiln and its elements cool in twelve hours.",
        "A kiln element of kanthal lasts longest with a slow firing.",
    ]
    shards = [shard("kilns", agent, prompt, observation_max=2) for agent in ("", "default")]
    form(append(ada, "s1", [NewMessage("assistant", text) for text in said * 2]).session)
    for stream in shards:
        assert contents(stream=stream, atom_type="observation") == [f"Assistant: {text}" for text in said]


def test_items_are_added_in_a_constant_number_of_queries_without_ended_ones(
    ada: UserProfile,
) -> None:
    stream = MemoryStream.objects.create(stream_type="user", user=ada)
    over = {"state": MemoryAtom.State.ENDED, "ended_at": timezone.now(), "valid_until": timezone.now()}
    ended = note(stream, "Ada rents a shop.", "fact", source_message_ids=[7], **over)

    def add(*said: str) -> tuple[list[str], int]:
        atoms = [
            MemoryAtom(stream=stream, user=ada, atom_type="observation", content=text, source_message_ids=[7, n])
            for n, text in enumerate(said)
        ]
        for atom in atoms:
            atom.content_hash = content_hash(atom.content)
        with transaction.atomic(), CaptureQueriesContext(connection) as queries:
            added = add_atoms(stream, atoms, requested_by="test")
        assert [atom.pk for atom in added] == list(
            stream.atoms.filter(pk__gt=last).in_order().values_list("pk", flat=True)
        )
        return [atom.content for atom in added], len(queries)

    last = ended.pk
    add("first")  # a second request is ignored
    last = stream.atoms.latest("pk").pk
    few, statements = add("first", "two", "two", ended.content)
    assert few == ["two"]
    last = stream.atoms.latest("pk").pk
    many = [f"item {n}" for n in range(9)]
    assert add(*many, ended.content) == (many, statements)
