"""Import the responses of mem0, Zep, Graphiti and Honcho: messages become turns, and memories become facts."""

import asyncio
import json
import re
import sys
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from moments_app.models import MemoryAtom, MemoryStream
from sessions_app.imports import import_sessions as process
from sessions_app.models import Message, Session, UserProfile
from tests.support.api import Api
from tests.support.exports import as_array, as_lines
from tests.support.first_steps import python_in
from tests.support.streams import note
from tests.support.tables import everything

pytestmark = pytest.mark.django_db(transaction=True)


def imported(path: Path, **options: Any) -> str:
    out, err = StringIO(), StringIO()
    try:
        call_command("import_sessions", str(path), stdout=out, stderr=err, **options)
    except CommandError as error:
        return f"{err.getvalue()}{error}"
    return out.getvalue()


def as_page(path: Path, **fields: Any) -> Path:
    """Write a response as one indented JSON object."""
    path.write_text(json.dumps(fields, indent=2), "utf-8")
    return path


def memory(text: str, **fields: Any) -> dict[str, Any]:
    """Return a memory as in a response of mem0."""
    times = {"created_at": "2024-07-20T05:30:36.630547-07:00", "updated_at": "2024-07-21T05:30:36-07:00"}
    kept = {"id": f"id of {text}", "user_id": "ada", "agent_id": None, "metadata": None, "categories": ["work"]}
    return {"memory": text, "hash": "d41d8", "expiration_date": None} | times | kept | fields


def edge(text: str, **fields: Any) -> dict[str, Any]:
    """Return a fact as in a response of Zep or Graphiti."""
    nodes = {"source_node_uuid": "n1", "target_node_uuid": "n2", "name": "WORKS_AT", "episodes": ["e1"]}
    return {"uuid": f"uuid of {text}", "fact": text, "created_at": "2025-01-02T03:04:05Z"} | nodes | fields


def facts() -> list[MemoryAtom]:
    return list(MemoryAtom.objects.in_order())


THREAD = {
    "thread_id": "t1",
    "user_id": "ada",
    "messages": [
        {
            "uuid": "m1",
            "role": "user",
            "name": "Ada",
            "content": "I moved to Turin.",
            "created_at": "2025-01-02T03:04:05Z",
        },
        {"uuid": "m2", "role_type": "assistant", "role": "Coach", "content": "Welcome.", "metadata": {"a": 1}},
        {"role_type": "function", "content": "Sunny.", "created_at": "2025-01-02T03:05:05Z"},
        {"uuid": "m4", "role": "user", "content": " "},
    ],
}
ENDED = edge(
    "Ada works at Acme.",
    valid_at="2019-01-01T00:00:00Z",
    invalid_at="2023-06-01T00:00:00Z",
    expired_at="2025-01-03T00:00:00Z",
)


@pytest.mark.slow
def test_memories_of_mem0_become_searchable_facts_with_their_source(tmp_path: Path, service: Api) -> None:
    given = [
        memory("Restores kilns in Turin."),
        memory("Plays chess.", user_id="bo"),
        memory("Of nobody.", user_id=None),
    ]
    told = imported(as_page(tmp_path / "f", results=given, count=3), user="cy")
    assert "0 messages added, 0 already stored, 3 facts added" in told
    assert sorted((fact.user.user_id, fact.content) for fact in facts() if fact.user) == [
        ("ada", "Restores kilns in Turin."),
        ("bo", "Plays chess."),
        ("cy", "Of nobody."),
    ]
    [fact] = service.get("facts", user_id="ada").json()["facts"]
    assert (fact["said_at"], fact["written_by"]) == ("2024-07-21T12:30:36Z", "import:mem0")
    [found] = service.post("memory/search", user_id="ada", query="kilns").json()["results"]
    assert found["content"] == "Restores kilns in Turin."
    gone = service.post("retractions", user_id="ada", written_by="import:mem0", reason="moved back")
    assert gone.status_code == 201 and service.get("facts", user_id="ada").json()["facts"] == []
    assert service.get("facts", user_id="bo").json()["facts"] != []


def test_an_expired_memory_becomes_a_fact_that_ended_on_that_day(tmp_path: Path) -> None:
    past, future = (
        memory("Is on leave.", expiration_date="2025-02-03"),
        memory("Keeps bees.", expiration_date="2099-01-01"),
    )
    imported(as_array(tmp_path / "f", past, future))
    assert {fact.content: (fact.state, str(fact.valid_until)[:10]) for fact in facts()} == {
        "Is on leave.": ("ended", "2025-02-03"),
        "Keeps bees.": ("active", "None"),
    }


def test_zep_threads_become_sessions_and_edges_become_facts_with_their_times(tmp_path: Path, service: Api) -> None:
    holding = edge("Ada works at Kilns & Co.", valid_at="2023-06-02T00:00:00Z", reference_time="2024-12-24T00:00:00Z")
    told = imported(as_lines(tmp_path / "f", THREAD, ENDED, holding), user="ada", agent="coach")
    assert "3 messages added, 0 already stored, 2 facts added" in told
    session = Session.objects.get()
    assert (session.session_id, session.source, session.agent_id) == ("zep:t1", "import:zep", "coach")
    assert [
        (turn.role, turn.content, turn.name, turn.external_id, turn.metadata) for turn in session.messages.in_order()
    ] == [
        ("user", "I moved to Turin.", "", "zep:m1", {"name": "Ada"}),
        ("assistant", "Welcome.", "", "zep:m2", {"a": 1, "name": "Coach"}),
        ("tool", "Sunny.", "", "zep:3", {}),
    ]
    over, holds = MemoryAtom.objects.order_by("valid_from")
    assert (over.state, over.ended_by, holds.state, str(holds.formed_at)[:10]) == (
        "ended",
        "import:zep",
        "active",
        "2024-12-24",
    )
    assert [str(time)[:10] for time in (over.valid_from, over.valid_until, over.ended_at, over.formed_at)] == [
        "2019-01-01",
        "2023-06-01",
        "2025-01-03",
        "2025-01-02",
    ]
    assert over.stream.agent_id == "coach"
    then = service.get("facts", user_id="ada", as_of="2025-01-02T12:00:00Z").json()["facts"]
    assert "Ada works at Acme." in [fact["content"] for fact in then]
    now = service.get("facts", user_id="ada").json()["facts"]
    assert [fact["content"] for fact in now] == ["Ada works at Kilns & Co."]


def test_graphiti_edges_can_be_imported_as_an_array_or_a_page(tmp_path: Path) -> None:
    edges = [edge("Ada keeps bees.", group_id="g1", fact_embedding=None), edge("Ada sings.", group_id="g1")]
    assert "2 facts added" in imported(as_array(tmp_path / "f", *edges), user="ada")
    assert "0 facts added, 2 already stored" in imported(as_page(tmp_path / "g", edges=edges), user="ada")


def test_honcho_peers_are_matched_to_the_person_and_the_agent_by_name(tmp_path: Path) -> None:
    said = [
        {
            "id": f"m{n}",
            "peer_id": peer,
            "session_id": "s1",
            "content": f"Says {peer}.",
            "metadata": {},
            "token_count": 3,
        }
        | {"created_at": "2025-03-04T05:06:07Z", "workspace_id": "w"}
        for n, peer in enumerate(["ada", "tutor", "marla"])
    ]
    concluded = [
        {"id": "c1", "observer_id": "tutor", "observed_id": whose, "content": f"Likes {whose}.", "session_id": "s1"}
        | {"created_at": "2025-03-05T05:06:07Z"}
        for whose in ("ada", "marla")
    ]
    told = imported(
        as_lines(tmp_path / "f", *({"items": part, "page": 1} for part in (said, concluded))), user="ada", agent="tutor"
    )
    assert "line 2, item 2: It is about a peer other than --user." in told
    assert "3 messages added, 0 already stored, 1 facts added, 0 already stored, 1 records rejected" in told
    turns = Session.objects.get(session_id="honcho:s1", agent_id="tutor").messages.in_order()
    assert [(turn.role, turn.name) for turn in turns] == [("user", ""), ("assistant", ""), ("user", "marla")]
    assert [(fact.content, fact.written_by) for fact in facts()] == [("Likes ada.", "import:honcho")]
    assert imported(as_array(tmp_path / "g", *said)).startswith("Name the person's peer with --user")
    imported(as_array(tmp_path / "h", *({**one, "session_id": "s2"} for one in said)), user="ada")
    assert [turn.role for turn in Session.objects.get(session_id="honcho:s2").messages.in_order()] == [
        "user",
        "assistant",
        "assistant",
    ]


@pytest.mark.slow
def test_row_1_a_repeated_import_adds_nothing_and_restores_nothing(
    tmp_path: Path, service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STATEMENTS_MAX", 2)
    again = edge("Ada works at Acme.", valid_at="2024-01-01T00:00:00Z")
    path = as_lines(tmp_path / "f", THREAD, ENDED, again, edge("Ada sings."), edge("ada sings!"), edge("Ada swims."))
    assert "4 facts added, 1 already stored" in imported(path, user="ada")
    stated = everything()
    assert "0 messages added, 3 already stored, 0 facts added, 5 already stored" in imported(path, user="ada")
    assert everything() == stated
    by_text = {fact["content"]: fact["fact_id"] for fact in service.get("facts", user_id="ada").json()["facts"]}
    assert service.patch(f"facts/{by_text['Ada sings.']}", user_id="ada", content="Ada hums.").status_code == 200
    assert service.patch(f"facts/{by_text['Ada works at Acme.']}", user_id="ada", state="ended").status_code == 200
    assert service.delete(f"facts/{by_text['Ada swims.']}", user_id="ada").status_code == 200
    assert "0 facts added, 5 already stored" in imported(path, user="ada")
    assert [fact["content"] for fact in service.get("facts", user_id="ada").json()["facts"]] == ["Ada hums."]


def test_a_dry_run_counts_the_same_and_changes_nothing(tmp_path: Path) -> None:
    path = as_lines(tmp_path / "f", THREAD, ENDED)
    before = everything()
    assert "3 messages added, 0 already stored, 1 facts added" in imported(path, user="ada", dry_run=True)
    assert everything() == before


def test_a_stream_keeps_all_imported_facts_and_its_own(tmp_path: Path, ada: UserProfile) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    MemoryStream.objects.filter(pk=stream.pk).update(fact_buffer_max=3)
    note(stream, "Was there before.", "fact")
    assert "5 facts added" in imported(as_array(tmp_path / "f", *(memory(f"Has {n} cats.") for n in "abcde")))
    assert MemoryAtom.objects.active().count() == 6


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (memory(" "), "It has no text."),
        (memory("x" * 4_001), "4000 characters"),
        (memory("a\0b"), "Null characters"),
        (memory("x", user_id="a/b"), "contain a slash"),
        (memory("x", updated_at="2024-07-21T05:30:36"), "UTC offset"),
        (memory("x", updated_at="1924-07-21T05:30:36Z"), "between 1970 and the end of 2100"),
        (memory("x", expiration_date="soon"), "isoformat"),
        (memory("x", memory=7), "memory: Input should be a valid string"),
        ("no object", "valid dictionary"),
        (memory("x", user_id=None), "Name them with --user"),
    ],
)
def test_an_invalid_record_is_named_and_skipped(tmp_path: Path, bad: Any, reason: str) -> None:
    told = imported(as_array(tmp_path / "f", memory("Good."), bad, memory("Better.")))
    assert told.startswith("item 2: ") and reason in told
    assert "2 facts added, 0 already stored, 1 records rejected" in told
    assert [fact.content for fact in facts()] == ["Good.", "Better."]


def test_facts_that_end_before_they_start_and_threads_without_an_id_are_named(tmp_path: Path) -> None:
    backwards = edge("Ada flew.", valid_at="2025-01-01T00:00:00Z", invalid_at="2024-01-01T00:00:00Z")
    nameless = {name: value for name, value in THREAD.items() if name != "thread_id"}
    told = imported(as_lines(tmp_path / "f", ENDED, backwards, nameless), user="ada")
    assert "line 2: " in told and "Its end is before its start." in told
    assert "line 3: thread_id: Field required" in told
    assert "1 facts added" in told and not Message.objects.exists()
    assert "Of nobody" not in told and "Ada flew" not in told


def test_a_file_of_unknown_format_gets_an_error_with_the_known_formats(tmp_path: Path) -> None:
    told = imported(as_page(tmp_path / "f", full_name="Ada", skills=["kilns"]), user="ada")
    assert "has no known format" in told
    assert all(name in told for name in ("(mem0)", "(zep)", "(honcho)"))
    assert not UserProfile.objects.exists()


# --- the code in docs/leaving.md, with stand-ins for third-party clients that follow their documentation ---


class Answered:
    """A model object of the third-party clients, with their JSON methods."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self.uuid_ = fields.get("uuid")

    def json(self) -> str:
        return json.dumps({name: value for name, value in self.__dict__.items() if name != "uuid_"})

    def model_dump_json(self, exclude: set[str]) -> str:
        return json.dumps({name: value for name, value in self.__dict__.items() if name not in exclude | {"uuid_"}})


class Mem0:
    def get_all(self, filters: dict[str, str], page: int, page_size: int) -> dict[str, Any]:
        return {"count": 2, "results": [memory(f"Page {page}.", **filters)] if page <= 2 else []}


class Zep:
    def __init__(self) -> None:
        self.user = SimpleNamespace(lookup=lambda user_id: Answered(uuid=f"of {user_id}"))
        self.thread = SimpleNamespace(list=self.threads, list_messages=self.messages)
        self.graph = SimpleNamespace(edge=SimpleNamespace(list=self.edges))

    def threads(self, user_uuid: str) -> list[Answered]:
        return [Answered(uuid="u1", thread_id="t1", user_uuid=user_uuid)]

    def messages(self, thread_uuid: str, order: str) -> list[Answered]:
        assert (thread_uuid, order) == ("u1", "asc")
        return [Answered(uuid=f"m{n}", role="user", content="Hello.") for n in range(2)]

    def edges(self, graph_uuid: str) -> list[Answered]:
        assert graph_uuid == "of nora"
        return [Answered(**edge("Nora sings.")), Answered(**edge("Nora hums."))]


class Graphiti:
    @staticmethod
    async def get_by_group_ids(driver: None, people: list[str]) -> list[Answered]:
        return [Answered(**edge(f"{person} swims.", fact_embedding=[0.5])) for person in people]


def test_files_saved_by_the_code_in_the_docs_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: dict[str, dict[str, Any]] = {"mem0": {"MemoryClient": Mem0}, "zep_cloud.client": {"Zep": Zep}}
    theirs |= {"graphiti_core.edges": {"EntityEdge": Graphiti}}
    for name, parts in theirs.items():
        for module in (name.partition(".")[0], name):
            monkeypatch.setitem(sys.modules, module, ModuleType(module))
        sys.modules[name].__dict__.update(parts)
    monkeypatch.chdir(tmp_path)
    told = []
    for code in python_in("leaving.md"):
        scope: dict[str, Any] = {}
        exec(compile(code, "docs", "exec"), scope)
        if save := scope.get("save"):
            asyncio.run(save(None, "nora"))
        [saved] = tmp_path.glob("*.jsonl")
        told.append(imported(saved, user="nora"))
        saved.unlink()
    assert [re.findall(r"(\d+) (?:messages|facts) added", one) for one in told] == [["0", "2"], ["2", "2"], ["0", "1"]]
