"""Tasks, goals and problems, their links, and their order in a context."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.urls import reverse
from django.utils import timezone

from moments_app.context.input import read_input
from moments_app.context.layers.retrieved import entities
from moments_app.models import Entity, EntityLink, MemoryAtom, MemoryStream
from moments_app.streams.add_atoms import add_statements
from sessions_app.imports.import_sessions import Statement
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.entities import make_entity, new_entity
from tests.support.operator import operator
from tests.support.pages import change_url
from tests.support.streams import fold, form, note, shard
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def add(api: Api, title: str, **fields: Any) -> str:
    answer = api.post("entities", {"user_id": "ada", "kind": "task", "title": title, **fields})
    assert answer.status_code == 201, answer.content
    return str(answer.json()["entity_id"])


def titles(user: UserProfile, query: str = "", session_id: str = "s1") -> list[str]:
    source = read_input(user, session_id, query, applied=3_000, recall=None)
    assert source is not None
    return [item.text.removeprefix("[task] ") for item in entities(source)]


class TestRest:
    """Entities over REST."""

    def test_an_entity_is_added_read_changed_and_deleted(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 2)
        key = add(service, "Order the element", body="From Borås.", due_at="2026-03-05T10:00:00Z", session_id="s1")
        entity = service.get(f"entities/{key}", user_id="ada").json()
        assert (entity["title"], entity["status"], entity["session_id"]) == ("Order the element", "open", "s1")
        assert entity["uri"] == f"rem://entities/{key}"
        changed = service.patch(f"entities/{key}", user_id="ada", status="done", due_at=None).json()
        assert (changed["status"], changed["due_at"]) == ("done", None)
        assert changed["updated_at"] > entity["updated_at"]
        assert service.delete(f"entities/{key}", user_id="ada").status_code == 204
        assert service.get(f"entities/{key}", user_id="ada").status_code == 404

    def test_row_1_a_client_that_got_no_response_can_repeat_an_entity(self, service: Api, bo: UserProfile) -> None:
        body = {"user_id": "ada", "kind": "task", "title": "Order the element", "external_id": "7"}
        first = service.post("entities", body)
        service.patch(f"entities/{first.json()['entity_id']}", user_id="ada", status="done")
        again = service.post("entities", body)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() | {"updated_at": ""} == first.json() | {"status": "done", "updated_at": ""}
        others = (
            service.post("entities", body | {"user_id": "bo"}),
            service.post("entities", body | {"external_id": None}),
        )
        assert [other.status_code for other in others] == [201, 201]
        assert service.get("entities", user_id="ada").json()["total"] == 2

    def test_a_repeated_entity_that_was_withdrawn_is_returned_as_dropped(self, service: Api) -> None:
        body = {"user_id": "ada", "kind": "task", "title": "Order the element", "external_id": "7"}
        key = service.post("entities", body).json()["entity_id"]
        service.delete(f"facts/{key}", user_id="ada")
        again = service.post("entities", body)
        assert (again.status_code, again.json()["entity_id"], again.json()["status"]) == (200, key, "dropped")
        assert service.get("entities", user_id="ada").json()["total"] == 0

    def test_the_external_id_of_another_item_is_a_conflict(self, service: Api) -> None:
        add(service, "Order the element")
        stream = MemoryStream.objects.lists().get()
        fact = {"user_id": "ada", "content": "Ada likes tea.", "atom_type": "fact", "external_id": "7"}
        assert service.post(f"streams/{stream.stream_id}/atoms", fact).status_code == 201
        answer = service.post("entities", {"user_id": "ada", "kind": "task", "title": "t", "external_id": "7"})
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (409, "external_id_taken")

    def test_the_list_is_filtered(self, service: Api) -> None:
        add(service, "Order the element")
        add(service, "Open the shop", kind="goal")
        key = add(service, "Sign the lease")
        service.patch(f"entities/{key}", user_id="ada", status="done")

        def listed(**query: str) -> list[str]:
            found = service.get("entities", user_id="ada", **query).json()["entities"]
            return [entity["title"] for entity in found]

        assert listed() == ["Sign the lease", "Open the shop", "Order the element"]
        assert listed(kind="goal") == ["Open the shop"]
        assert listed(status="done") == ["Sign the lease"]
        assert listed(text="elements") == ["Order the element"]

    def test_links_are_added_once_and_deleted(self, service: Api) -> None:
        one, other = add(service, "Element"), add(service, "Firing")
        path, link = f"entities/{one}/links", {"user_id": "ada", "to": other, "relation": "blocks"}
        assert [service.post(path, link).status_code for _ in range(2)] == [201, 200]
        expected = [{"from_entity_id": one, "relation": "blocks", "to_entity_id": other}]
        assert service.get(path, user_id="ada").json()["links"] == expected
        assert service.get(f"entities/{other}/links", user_id="ada").json()["links"] == expected
        assert service.delete(path, **link).status_code == 204
        assert service.delete(path, **link).status_code == 404

    @pytest.mark.parametrize(
        ("fields", "attr"),
        [
            ({"kind": "wish"}, "kind"),
            ({"title": ""}, "title"),
            ({"title": " "}, "title"),
            ({"title": "x" * 256}, "title"),
            ({"title": "a\0b"}, "title"),
            ({"due_at": "2026-03-05"}, "due_at"),
            ({"colour": "red"}, "colour"),
        ],
    )
    def test_errors_of_bad_input_name_the_field(self, service: Api, fields: dict[str, Any], attr: str) -> None:
        answer = service.post("entities", {"user_id": "ada", "kind": "task", "title": "t", **fields})
        assert answer.status_code == 400
        assert [error["attr"] for error in answer.json()["errors"]] == [attr]
        assert not Entity.objects.exists()

    def test_a_link_to_itself_or_to_nothing_is_rejected(self, service: Api) -> None:
        one = add(service, "Element")
        path = f"entities/{one}/links"
        assert service.post(path, {"user_id": "ada", "to": one}).status_code == 400
        assert service.post(path, {"user_id": "ada", "to": str(uuid.uuid4())}).status_code == 404

    def test_row_9_entities_of_another_person_look_unknown(
        self, service: Api, ada: UserProfile, bo: UserProfile
    ) -> None:
        theirs, mine = add(service, "Element"), add(service, "Firing")
        for path, link in [(f"entities/{theirs}", {}), (f"entities/{theirs}/links", {"to": mine})]:
            assert service.get(path, user_id="bo").status_code == 404
            assert service.delete(path, user_id="bo", **link).status_code == 404
        assert service.patch(f"entities/{theirs}", user_id="bo", title="x").status_code == 404
        own = str(service.post("entities", {"user_id": "bo", "kind": "task", "title": "t"}).json()["entity_id"])
        assert service.post(f"entities/{own}/links", {"user_id": "bo", "to": theirs}).status_code == 404
        assert service.get("entities", user_id="bo", text="element").json()["total"] == 0
        assert Entity.objects.filter(user=ada).count() == 2


class TestRelevance:
    """The order of entities in a context."""

    @pytest.fixture(autouse=True)
    def _session(self, ada: UserProfile) -> None:
        talk(ada, 4)

    def make(self, ada: UserProfile, title: str, days_ago: float = 0, **fields: Any) -> Entity:
        entity = make_entity(ada, title, **fields)
        session = ada.sessions.get(session_id="s1")
        Entity.objects.filter(pk=entity.pk).update(formed_at=session.last_activity_at - timedelta(days=days_ago))
        return entity

    def test_recent_entities_precede_old_ones(self, ada: UserProfile) -> None:
        for days in (30, 1, 7):
            self.make(ada, f"{days} days", days)
        assert titles(ada) == ["1 days", "7 days", "30 days"]

    def test_entities_named_in_the_query_precede_newer_ones(self, ada: UserProfile) -> None:
        self.make(ada, "Sign the lease", 0.5)
        self.make(ada, "Order a heating element", 20)
        assert titles(ada, "What about the heating elements?")[0] == "Order a heating element"
        assert titles(ada)[0] == "Sign the lease"

    def test_entities_linked_to_named_ones_are_next(self, ada: UserProfile) -> None:
        days = {"Order a heating element": 60, "Fire": 61, "Glaze cups": 62, "Sign the lease": 40}
        element, firing, cups, lease = (self.make(ada, title, ago) for title, ago in days.items())
        EntityLink.objects.create(user=ada, from_entity=element, to_entity=firing, relation="blocks")
        EntityLink.objects.create(user=ada, from_entity=cups, to_entity=firing, relation="part_of")
        assert titles(ada, "the heating element") == [e.title for e in (element, firing, cups, lease)]

    def test_entities_of_this_session_precede_others(self, ada: UserProfile) -> None:
        self.make(ada, "Elsewhere", 1)
        self.make(ada, "Here", 5, source_session=ada.sessions.get(session_id="s1"))
        assert titles(ada)[0] == "Here"

    def test_only_open_entities_are_served_up_to_the_limit(
        self, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("moments_app.context.layers.retrieved.MAX_ENTITIES", 3)
        self.make(ada, "Done", status="done")
        for number in range(5):
            self.make(ada, f"Task {number}", number)
        assert titles(ada, "Done") == ["Task 0", "Task 1", "Task 2"]

    @pytest.mark.slow
    def test_an_old_named_entity_is_found_among_many(self, ada: UserProfile) -> None:
        self.make(ada, "Renew the passport", 300)
        Entity.objects.bulk_create(new_entity(ada, f"Chore {n}") for n in range(300))
        assert titles(ada, "my passport?")[0] == "Renew the passport"


class TestLearned:
    """Tasks, goals and problems that were learned from conversations."""

    @pytest.fixture
    def own(self, ada: UserProfile) -> MemoryStream:
        return MemoryStream.objects.ensure_of_person(ada, "default")

    def learned(self, own: MemoryStream, content: str = "Ada needs to buy rope.", **fields: Any) -> MemoryAtom:
        session = talk(own.user, 4)  # type: ignore[arg-type]
        turns = list(session.messages.turns().values_list("pk", flat=True)[:1])
        sources = {"source_session": session, "source_message_ids": turns, "engine": "model", "about_kind": "user"}
        columns: dict[str, Any] = sources | {"atom_type": "fact", "kind": "task"} | fields
        return note(own, content, **columns)

    def test_a_formation_lists_the_tasks_that_a_person_mentions(self, service: Api, ada: UserProfile) -> None:
        session = talk(ada, 6)
        append(ada, "s1", [NewMessage("user", "I need to renew my passport before the trip to Norway.")])
        form(session)
        listed = service.get("entities", user_id="ada", kind="task").json()["entities"]
        assert "passport" in listed[0]["title"]
        assert (listed[0]["status"], listed[0]["session_id"], listed[0]["written_by"]) == ("open", "s1", "")
        fact = service.get(f"facts/{listed[0]['entity_id']}", user_id="ada").json()
        assert (fact["content"], fact["kind"]) == (listed[0]["title"], "task")

    def test_done_dropped_and_reopened_tasks_are_ended_and_current_facts(self, service: Api, own: MemoryStream) -> None:
        atom = self.learned(own)
        path, fact = f"entities/{atom.atom_id}", f"facts/{atom.atom_id}"
        for status in ("done", "dropped"):
            assert service.patch(path, user_id="ada", status=status).json()["status"] == status
            told = service.get(fact, user_id="ada").json()
            assert told["state"] == "ended" and told["ended_at"]
            assert service.get("users/ada", user_id="ada").json()["summary"] == ""
            listed = [service.get("entities", user_id="ada", status=name).json()["total"] for name in ("open", status)]
            assert listed == [0, 1]
        assert service.patch(path, user_id="ada", status="open").json()["status"] == "open"
        told = service.get(fact, user_id="ada").json()
        assert (told["state"], told["ended_at"], told["value"]) == ("active", None, "")
        assert "rope" in service.get("users/ada", user_id="ada").json()["summary"]
        assert [change.before["state"] for change in atom.history.order_by("pk") if "state" in change.before] == [
            "active",
            "ended",
        ]

    @pytest.mark.slow
    def test_a_fact_that_ends_is_done_and_a_withdrawn_one_is_hidden(self, service: Api, own: MemoryStream) -> None:
        atom, wrong = self.learned(own), self.learned(own, "Ada wants to sail.", kind="goal")
        service.patch(f"facts/{atom.atom_id}", user_id="ada", state="ended")
        service.delete(f"facts/{wrong.atom_id}", user_id="ada")
        listed = service.get("entities", user_id="ada").json()["entities"]
        assert [(one["title"], one["status"]) for one in listed] == [(atom.content, "done")]
        assert service.get(f"entities/{wrong.atom_id}", user_id="ada").status_code == 404

    def test_a_deleted_task_is_withdrawn_with_its_links_and_keeps_its_history(
        self, service: Api, own: MemoryStream
    ) -> None:
        atom, other = self.learned(own), add(service, "Sail")
        service.post(f"entities/{other}/links", {"user_id": "ada", "to": str(atom.atom_id)})
        assert service.delete(f"entities/{atom.atom_id}", user_id="ada").status_code == 204
        assert service.get(f"entities/{other}/links", user_id="ada").json()["links"] == []
        atom.refresh_from_db()
        assert atom.state == "evicted" and atom.history.get().action == "evicted"

    @pytest.mark.slow
    @pytest.mark.parametrize("is_written", [True, False])
    def test_a_corrected_task_keeps_its_fields_and_links_until_the_correction_is_undone(
        self, service: Api, own: MemoryStream, is_written: bool
    ) -> None:
        talk(own.user, 4)  # type: ignore[arg-type]
        due = {"due_at": "2026-03-05T10:00:00Z"}
        body = {"user_id": "ada", "kind": "task", "title": "Ada needs to buy rope.", "external_id": "7"} | due
        if is_written:
            key = service.post("entities", body).json()["entity_id"]
        else:
            key = str(self.learned(own).atom_id)
            service.patch(f"entities/{key}", user_id="ada", **due)
        sail = add(service, "Sail")
        service.post(f"entities/{sail}/links", {"user_id": "ada", "to": key, "relation": "blocks"})

        def shown() -> tuple[dict[str, Any], int]:
            [task] = service.get("entities", user_id="ada", kind="task", text="Ada").json()["entities"]
            links = service.get(f"entities/{sail}/links", user_id="ada").json()["links"]
            assert [link["to_entity_id"] for link in links] == [task["entity_id"]]
            found = service.get("entities", user_id="ada", text="rope").json()["total"]
            assert found == ("rope" in task["title"])
            return task, self.told(service, query="What is next?").count(task["title"])

        before, _ = shown()
        corrected = service.patch(f"facts/{key}", user_id="ada", content="Ada needs to buy a chain.").json()
        task, times = shown()
        assert (task["title"], task["due_at"], times) == ("Ada needs to buy a chain.", due["due_at"], 1)
        if is_written:
            assert task | {"title": "", "updated_at": ""} == before | {"title": "", "updated_at": ""}
            assert service.post("entities", body).json()["entity_id"] == key
            assert not MemoryAtom.objects.get(atom_id=key).is_pinned
        undo = f"corrections/{corrected['correction_id']}/undo"
        assert service.post(undo, user_id="ada").status_code == 200
        assert shown()[0] == before

    def test_a_reworded_task_keeps_its_sources_and_may_repeat_another(self, service: Api, own: MemoryStream) -> None:
        atom, same = self.learned(own), self.learned(own, "Ada needs to buy a flag.")
        body = {"title": same.content, "body": "Red.", "due_at": "2026-03-05T10:00:00Z"}
        changed = service.patch(f"entities/{atom.atom_id}", user_id="ada", **body).json()
        assert body.items() <= changed.items()
        fact = service.get(f"facts/{atom.atom_id}", user_id="ada").json()
        assert fact["content"] == f"{same.content}\nRed." and fact["sources"] == 1
        changed = service.patch(f"entities/{atom.atom_id}", user_id="ada", body="").json()
        assert (changed["title"], changed["body"]) == (same.content, "")

    def test_a_deleted_goal_that_was_imported_is_not_imported_again(self, service: Api, ada: UserProfile) -> None:
        said = Statement(where="", user_id="ada", agent_id="", text="Ada wants to sail.", source="import:mem0")

        def imported() -> int:
            with transaction.atomic():
                return add_statements({"ada": ada}, [said])

        assert imported() == 1
        [goal] = service.get("entities", user_id="ada", kind="goal").json()["entities"]
        assert service.delete(f"entities/{goal['entity_id']}", user_id="ada").status_code == 204
        assert imported() == 0
        assert service.get("entities", user_id="ada").json()["total"] == 0

    @pytest.mark.parametrize("change", ["delete", "patch"])
    @pytest.mark.parametrize("is_written", [True, False])
    def test_a_deleted_or_reworded_task_leaves_the_text_of_its_stream(
        self, service: Api, own: MemoryStream, change: str, is_written: bool
    ) -> None:
        talk(own.user, 2)  # type: ignore[arg-type]
        if is_written:
            item = {"user_id": "ada", "content": "Ada needs to buy rope.", "atom_type": "observation"}
            service.post(f"streams/{own.stream_id}/atoms", item)
        else:
            self.learned(own, atom_type="observation")
        fold(own)
        atom = own.atoms.get(position=None)
        own.refresh_from_db()
        assert atom.state == "absorbed" and "rope" in own.consolidated_content
        path = f"entities/{atom.atom_id}"
        if change == "delete":
            assert service.delete(path, user_id="ada").status_code == 204
        else:
            assert service.patch(path, user_id="ada", title="Buy a chain").json()["title"] == "Buy a chain"
            assert [set(one.before) for one in atom.history.filter(action="edited")] == [{"content", "formed_at"}]
        own.refresh_from_db()
        assert "rope" not in own.consolidated_content and "rope" not in self.told(service, query="What is next?")

    def test_a_done_task_that_was_said_again_can_be_reopened(self, service: Api, own: MemoryStream) -> None:
        atom = self.learned(own)
        service.patch(f"entities/{atom.atom_id}", user_id="ada", status="done")
        self.learned(own)
        assert service.patch(f"entities/{atom.atom_id}", user_id="ada", status="open").status_code == 200
        assert service.get("entities", user_id="ada", status="open").json()["total"] == 2

    @pytest.mark.slow
    @pytest.mark.parametrize("named", [{"session_id": "s1"}, {"session_id": "s1", "sequences": [0, 1]}])
    def test_a_retraction_withdraws_a_learned_task_that_a_client_reopened(
        self, service: Api, own: MemoryStream, named: dict[str, Any]
    ) -> None:
        atom = self.learned(own)
        for status in ("done", "open"):
            service.patch(f"entities/{atom.atom_id}", user_id="ada", status=status)
        assert service.post("retractions", user_id="ada", reason="wrong", **named).status_code == 201
        assert service.get("entities", user_id="ada").json()["total"] == 0

    @pytest.mark.slow
    def test_a_retraction_of_its_turns_withdraws_a_task_with_its_links(self, service: Api, own: MemoryStream) -> None:
        atom, other = self.learned(own), add(service, "Sail", session_id="s1")
        service.post(f"entities/{other}/links", {"user_id": "ada", "to": str(atom.atom_id)})
        retraction = service.post("retractions", user_id="ada", session_id="s1", reason="wrong").json()
        assert [one["title"] for one in service.get("entities", user_id="ada").json()["entities"]] == ["Sail"]
        assert service.get(f"entities/{other}/links", user_id="ada").json()["links"] == []
        service.post(f"retractions/{retraction['retraction_id']}/undo", user_id="ada")
        assert service.get("entities", user_id="ada").json()["total"] == 2
        links = service.get(f"entities/{other}/links", user_id="ada").json()["links"]
        assert [link["to_entity_id"] for link in links] == [str(atom.atom_id)]

    def told(self, service: Api, **asked: Any) -> str:
        answer = service.get("memory/context", user_id="ada", session_id="s1", max_tokens=3_000, **asked)
        assert answer.status_code == 200, answer.json()
        return str(answer.json()["context"])

    @pytest.mark.parametrize("query", ["What is next?", "Which rope?"])
    def test_a_context_has_a_task_once(self, service: Api, own: MemoryStream, query: str) -> None:
        self.learned(own, formed_at=timezone.now() - timedelta(days=3))
        add(service, "Buy rope for the boat.")
        for plan in ("query", "stable"):
            told = self.told(service, query=query, plan=plan)
            assert told.count("Ada needs to buy rope.") == told.count("Buy rope for the boat.") == 1, told

    def test_a_context_has_a_task_once_that_two_agents_learned(self, service: Api, own: MemoryStream) -> None:
        for stream in (own, MemoryStream.objects.ensure_of_person(own.user, "other")):  # type: ignore[arg-type]
            self.learned(stream)
        assert self.told(service, layers="user,entities").count("Ada needs to buy rope.") == 1
        assert self.told(service, layers="entities").count("Ada needs to buy rope.") == 1

    def test_candidates_for_a_shard_are_not_tasks_of_the_person(self, service: Api, ada: UserProfile) -> None:
        bees = shard("bees", "default")
        item = {"atom_type": "observation", "content": "Agents have to feed bees.", "kind": "task"}
        bees.atoms.create(user=ada, is_candidate=True, source_user=ada, **item)
        assert service.get("entities", user_id="ada").json()["entities"] == []


def test_an_operator_changes_and_deletes_tasks(service: Api, ada: UserProfile) -> None:
    key, root = add(service, "Order the element", body="From Borås."), operator()
    entity = Entity.objects.get()
    fields = {"title": "Order it", "body": "From Oslo.", "kind": "goal", "status": "dropped"}
    fields |= {f"links_{end}-{name}_FORMS": "0" for end in ("out", "in") for name in ("TOTAL", "INITIAL")}
    day = {"due_at_0": "2026-03-05", "due_at_1": "10:00"}
    root.post(change_url(entity), fields | day)
    changed = service.get(f"entities/{key}", user_id="ada").json()
    assert [changed[name] for name in ("title", "body", "kind", "status")] == [*fields.values()][:4]
    assert changed["due_at"] == "2026-03-05T10:00:00Z"
    assert entity.history.get().actor == "operator:root"
    stale = root.post(change_url(entity), fields | day | {"title": "Order two", "last_change": ""}).content.decode()
    assert "Operator root changed this item in the meantime. Nothing was saved." in stale
    assert Entity.objects.get().title == "Order it"
    root.post(reverse("admin:moments_app_entity_delete", args=[entity.pk]), {"post": "yes"})
    assert not MemoryAtom.objects.exists()


def test_two_written_tasks_may_have_the_same_words(service: Api) -> None:
    add(service, "Pay the rent", due_at="2026-03-05T10:00:00Z")
    add(service, "Pay the rent", due_at="2026-04-05T10:00:00Z")
    assert service.get("entities", user_id="ada").json()["total"] == 2


def test_the_database_rejects_links_between_persons(ada: UserProfile) -> None:
    entity = make_entity(ada, "t")
    with pytest.raises(IntegrityError, match="entity_link_not_to_itself"):
        EntityLink.objects.create(user=ada, from_entity=entity, to_entity=entity)


def test_passing_time_does_not_change_the_order(ada: UserProfile) -> None:
    talk(ada, 2)
    for number in range(6):
        make_entity(ada, f"Task {number}")
        Entity.objects.filter(content=f"Task {number}").update(formed_at=timezone.now() - timedelta(days=3 * number))
    assert titles(ada) == titles(ada)


@pytest.mark.slow
def test_a_retraction_is_not_undone_while_a_newer_task_has_the_external_id(service: Api) -> None:
    body = {"user_id": "ada", "kind": "task", "title": "Order the element", "external_id": "7"}
    entity = service.post("entities", body).json()
    asked = {"user_id": "ada", "entity_ids": [entity["entity_id"]], "reason": "x"}
    undo = f"retractions/{service.post('retractions', asked).json()['retraction_id']}/undo"
    newer = service.post("entities", body).json()
    refused = service.post(undo, user_id="ada")
    assert (refused.status_code, "Delete the newer" in refused.text) == (400, True)
    service.delete(f"entities/{newer['entity_id']}", user_id="ada")
    assert service.post(undo, user_id="ada").status_code == 200
    assert service.get(f"entities/{entity['entity_id']}", user_id="ada").json() == entity


@pytest.mark.slow
def test_the_undo_of_a_correction_keeps_later_changes_of_a_task(service: Api) -> None:
    entity = add(service, "Pay the rent")
    made = service.patch(f"facts/{entity}", user_id="ada", content="Pay the rent today")
    again = service.patch(f"facts/{entity}", user_id="ada", content="Pay the rent today")
    assert (made.status_code, again.status_code) == (200, 400)
    service.patch(f"entities/{entity}", user_id="ada", title="Pay it", body="By card.")
    undone = service.post(f"corrections/{made.json()['correction_id']}/undo", user_id="ada")
    now = service.get(f"entities/{entity}", user_id="ada").json()
    assert (undone.status_code, now["title"], now["body"]) == (200, "Pay it", "By card.")
