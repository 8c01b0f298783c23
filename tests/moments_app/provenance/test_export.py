"""Exporting and importing a person."""

import gzip
import hashlib
import json
import zipfile
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.db.models import F, TextField
from django.db.models.functions import Cast, JSONObject
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from pytest_django.fixtures import Settings

from memoryproject.settings import CONF
from moments_app.context import receipts
from moments_app.models import Entity, EntityLink, MemoryAtom, MemoryStream
from moments_app.models.job import Job
from sessions_app.models import ApiKey, Archive, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import open_export
from tests.support.api import Api
from tests.support.commands import printed
from tests.support.jobs import build, work_off
from tests.support.kept_rows import KeptRows
from tests.support.openai_server import OpenAIServer
from tests.support.streams import fold, form, note, shard
from tests.support.transcript import START, talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def exported(user_id: str) -> dict[str, str]:
    """Return the files of a person's export, without its time."""
    file = BytesIO()
    export_user(user_id, file, application=DEFAULT)
    with zipfile.ZipFile(file) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    found.pop("manifest.json")
    return found


def live(user: UserProfile, service: Api) -> None:
    """Create every kind of personal data with the real processes."""
    name = user.user_id
    session = talk(user, 40, text=f"{name} fires the kiln at noon.")
    talk(user, 3, session_id="s2", text=f"{name} likes tea.")
    work_off()
    build(session, lag=4)
    form(session)
    fold(MemoryStream.objects.get(user=user, stream_type="user", agent_id="default"))
    talk(user, 2, text=f"{name} says more.")
    work_off()
    service.patch(f"users/{name}", summary=f"{name} has a kiln.", interests=[name], metadata={"of": name})
    first = service.post("entities", user_id=name, kind="task", title=f"{name} task", session_id="s1").json()
    second = service.post("entities", user_id=name, kind="goal", title=f"{name} goal").json()
    service.post(f"entities/{first['entity_id']}/links", user_id=name, to=second["entity_id"], relation="blocks")
    asked = {"question": f"What does {name} fire?", "expected": f"{name} fires the kiln.", "evidence_sequences": [0]}
    if "lab" in CONF.extras:
        service.post("probes", user_id=name, session_id="s1", **asked)
        service.post("probes/run", user_id=name)
    work_off()
    service.get("memory/context", user_id=name, session_id="s1", format="markdown")
    said = Message.objects.filter(user=user, session__session_id="s2").order_by("sequence")
    sources: dict[str, Any] = {
        "source_session": said[0].session,
        "source_message_ids": list(said.values_list("pk", flat=True)),
    }
    tea = note(
        MemoryStream.objects.get(user=user, stream_type="user", agent_id="default"), f"{name} likes tea.", **sources
    )
    service.patch(f"facts/{tea.atom_id}", user_id=name, content=f"{name} likes coffee.")
    known = {"user_id": name, "atom_type": "fact", "content": f"User's sister is called {name.title()}."}
    service.post(f"streams/{tea.stream.stream_id}/atoms", known)
    item = {"namespace": ["kilns"], "key": name, "value": {"text": f"{name} has a kiln."}}
    service.post("items", {"user_id": name, "items": [item]})
    talk(user, 1, session_id="s2", text=f"## The user\n- {name} has a kiln.")
    receipts.waiting.flush()


ABSORBED = '"absorbed_in": 1, "shown_in": 1'  # references to the version of a text in earlier releases


@pytest.fixture
def lived(
    rolling: None, settings: Settings, model_server: OpenAIServer, transactional_db: None, kept_rows: KeptRows
) -> None:
    """Ada and Bo with similar data and a shared shard."""
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"receipt_days": 30})
    kept_rows.have("lives", make_lives)


def make_lives() -> None:
    shard("kilns")
    service = Api(ApiKey.objects.issue("service", scope="admin")[1])
    for name in ("ada", "bo"):
        live(UserProfile.objects.ensure(name), service)


@pytest.mark.slow
def test_row_9_an_export_contains_nothing_of_other_people(lived: None) -> None:
    for person, other in (("ada", "bo"), ("bo", "ada")):
        files = exported(person)
        assert len(files) > 12
        for name, text in files.items():
            assert f"{other} " not in text and f'"{other}"' not in text, name
            assert text or name in ("events.jsonl", "retractions.jsonl"), name


# --- archived turns ---


def archive_turns(session: Session, last: int) -> Archive:
    """Archive turns as retention does."""
    columns = [str(column.column) for column in Message._meta.concrete_fields]
    turns = session.messages.turns().filter(sequence__lte=last).order_by("sequence")
    line = Cast(JSONObject(**{column: F(column) for column in columns}), TextField())
    packed = gzip.compress("".join(f"{text}\n" for text in turns.annotate(l=line).values_list("l", flat=True)).encode())
    name = storages["archive"].save(f"{session.user_id}/{session.pk}/2026-03.jsonl.gz", ContentFile(packed))
    archive = Archive.objects.create(
        session=session,
        user=session.user,
        month=START.date(),
        name=name,
        first_sequence=0,
        last_sequence=last,
        turn_count=last + 1,
        byte_count=len(packed),
        sha256=hashlib.sha256(packed).hexdigest(),
    )
    turns.delete()
    return archive


@pytest.mark.slow
@pytest.mark.usefixtures("archive_folder")
def test_archived_turns_are_exported_like_others(ada: UserProfile, tmp_path: Path) -> None:
    session = talk(ada, 60)
    build(session)
    Message.objects.filter(sequence=2).update(retracted_at=START, payload={"a": [1.5, None]}, external_id="x")
    before = exported("ada")
    archive_turns(session, 29)
    assert Message.objects.turns().count() == 30
    assert exported("ada") == before
    path = written("ada", tmp_path / "ada.zip")
    erase_user("ada", application=DEFAULT, actor="test")
    imported(path)
    assert exported("ada")["messages.jsonl"] == before["messages.jsonl"]
    assert Session.objects.get().kept_from_sequence == 0


@pytest.mark.usefixtures("archive_folder")
def test_the_error_for_an_unreadable_archive_names_it(service: Api, ada: UserProfile, tmp_path: Path) -> None:
    archive = archive_turns(talk(ada, 4), 2)
    storage = storages["archive"]
    whole = storage.open(archive.name).read()
    for damaged in (whole[:-5], whole[:20] + b"x" + whole[21:], None):
        storage.delete(archive.name)
        if damaged is not None:
            storage.save(archive.name, ContentFile(damaged))
        with pytest.raises(CommandError, match=archive.name):
            written("ada", tmp_path / "ada.zip")
        answer = service.get("users/ada/export")
        assert answer.status_code == 500
        assert archive.name in answer.json()["errors"][0]["detail"]
    assert list(tmp_path.glob("*.zip*")) == []


# --- importing ---


def written(user_id: str, path: Path) -> Path:
    call_command("export_user", user_id, str(path), stdout=StringIO())
    return path


def imported(path: Path, *options: str) -> str:
    return printed("import_user", str(path), *options)


# Rows about the installation that created them.
LOCAL = {
    "corrections.jsonl",
    "events.jsonl",
    "jobs.jsonl",
    "context_receipts.jsonl",
    "shard_atoms.jsonl",
    "probe_results.jsonl",
}


def restorable(files: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if name not in LOCAL}


@pytest.mark.slow
def test_an_imported_export_is_exported_identically(lived: None, tmp_path: Path) -> None:
    before, of_bo = exported("ada"), exported("bo")
    path = written("ada", tmp_path / "ada.zip")
    erase_user("ada", application=DEFAULT, actor="test")
    imported(path)
    assert restorable(exported("ada")) == restorable(before)
    assert exported("bo") == of_bo
    work_off()


@pytest.mark.slow
def test_an_import_can_be_repeated(lived: None, tmp_path: Path) -> None:
    path = written("ada", tmp_path / "ada.zip")
    erase_user("ada", application=DEFAULT, actor="test")
    imported(path)
    after = exported("ada")
    assert "0 rows added" in imported(path)
    assert exported("ada") == after


@pytest.mark.slow
def test_an_import_under_another_name_leaves_the_first_person_unchanged(lived: None, tmp_path: Path) -> None:
    path = written("ada", tmp_path / "ada.zip")
    before = exported("ada")
    for _ in range(2):
        imported(path, "--as", "eve")
    assert exported("ada") == before
    eve = exported("eve")
    for name in ("messages.jsonl", "moments.jsonl", "summaries.jsonl"):
        assert eve[name] == before[name]
    assert eve["atoms.jsonl"].count("\n") == before["atoms.jsonl"].count("\n")


@pytest.mark.slow
def test_a_pinned_text_of_an_earlier_release_becomes_a_statement(ada: UserProfile, tmp_path: Path) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    MemoryStream.objects.filter(pk=stream.pk).update(pinned_content="Be brief.")  # and no statement has the text
    path = written("ada", tmp_path / "ada.zip")
    erase_user("ada", application=DEFAULT, actor="test")
    for _ in range(2):
        imported(path)
        atom = MemoryAtom.objects.get()
        assert (atom.content, atom.is_pinned, atom.stream.pinned_content) == ("Be brief.", True, "Be brief.")


@pytest.mark.slow
def test_a_profile_of_an_earlier_release_becomes_statements(ada: UserProfile, tmp_path: Path) -> None:
    talk(ada, 3)
    path, older = written("ada", tmp_path / "ada.zip"), tmp_path / "older.zip"
    erase_user("ada", application=DEFAULT, actor="test")
    line: dict[str, Any] = {
        "heading": "",
        "joint": "\n",
        "is_pinned": False,
        "engine": "",
        "ended_at": None,
        "ended_by": "",
    }
    line |= {"end_reason": "", "created_at": "2026-03-02T08:00:00Z"}
    mends: dict[str, Any] = {
        "text": "- Ada mends nets. (2026-03-01)",
        "sources": [["s1", 1]],
        "actor": "job",
        "engine": "model",
    }
    both = [{"text": "Ada keeps bees.", "sources": [], "actor": "operator"}, mends]
    lines = [line | own | {"line_id": str(uuid4()), "position": place} for place, own in enumerate(both)]
    phrase = {"phrase_id": str(uuid4()), "kind": "interest", "text": "kilns", "sources": [["s1", 2]]}
    phrase |= {"created_at": "2026-03-02T08:00:00Z"}
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(older, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'"interests": []', b'"interests": ["kilns", "bees"]'))
        new.writestr("profile_versions.jsonl", "")
        new.writestr("profile_lines.jsonl", "".join(f"{json.dumps(one)}\n" for one in lines))
        new.writestr("profile_phrases.jsonl", f"{json.dumps(phrase)}\n")
    for _ in range(2):
        imported(older)
        ada = UserProfile.objects.get(user_id="ada")
        assert ada.summary.startswith("Ada keeps bees.\n") and "- Ada mends nets. (2026-03-01)" in ada.summary
        assert set(ada.interests) == {"kilns", "bees"}
        sources = {atom.content: atom.source_message_ids for atom in ada.atoms.all()}
        turns = dict(ada.messages.values_list("sequence", "pk"))
        assert sources == {
            "Ada keeps bees.": [],
            "Ada mends nets.": [turns[1]],
            "User is interested in kilns.": [turns[2]],
            "User is interested in bees.": [],
        }


@pytest.mark.slow
def test_texts_of_an_earlier_release_become_lines(ada: UserProfile, tmp_path: Path) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    anvil, bellows = (note(stream, f"Owns {thing}.", state="absorbed") for thing in ("an anvil", "a bellows"))
    MemoryStream.objects.filter(pk=stream.pk).update(consolidated_content="Owns two things.\nBy hand.")
    path, older = written("ada", tmp_path / "ada.zip"), tmp_path / "older.zip"
    erase_user("ada", application=DEFAULT, actor="test")
    carried = [[str(anvil.atom_id), str(bellows.atom_id)]]
    texts = {"content_before": "", "content_after": "Owns two things.", "lines": carried, "engine": "model"}
    version = {"stream_id": str(stream.stream_id), "number": 1, "created_at": timezone.now(), "undone_at": None} | texts
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(older, "w") as new:
        for name in old.namelist():
            lines = old.read(name).decode()
            if name == "atoms.jsonl":
                lines = lines.replace('"merged_into": null, "position": null, "consolidated_at": null', ABSORBED)
            new.writestr(name, lines)
        new.writestr("stream_versions.jsonl", f"{json.dumps(version, default=str)}\n")
    for _ in range(2):
        imported(older)
        stream = MemoryStream.objects.get()
        parts = list(stream.atoms.observations().filter(position=None).order_by("pk"))
        assert all(part.consolidated_at for part in parts)
        told = [(line.content, line.engine, line.carries) for line in stream.atoms.lines()]
        assert told == [("Owns two things.", "model", [part.pk for part in parts]), ("By hand.", "", [])]


@pytest.mark.slow
def test_entities_of_an_earlier_release_become_statements(ada: UserProfile, tmp_path: Path) -> None:
    talk(ada, 3)
    path, older = written("ada", tmp_path / "ada.zip"), tmp_path / "older.zip"
    erase_user("ada", application=DEFAULT, actor="test")
    day = "2026-03-02T08:00:00Z"
    one: dict[str, Any] = {
        "kind": "task",
        "body": "",
        "status": "open",
        "due_at": day,
        "session_id": "s1",
        "external_id": None,
    }
    one |= {"created_at": day, "updated_at": "2026-03-03T08:00:00Z"}
    sail, rope = (one | {"entity_id": str(uuid4()), "title": title} for title in ("Sail.", "Buy rope."))
    sail |= {"kind": "goal", "status": "dropped", "body": "To Oslo."}
    link = {"from_entity": rope["entity_id"], "to_entity": sail["entity_id"], "relation": "blocks"}
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(older, "w") as new:
        for name in old.namelist():
            if name != "entity_links.jsonl":
                new.writestr(name, old.read(name))
        new.writestr("entities.jsonl", "".join(f"{json.dumps(each)}\n" for each in (sail, rope)))
        new.writestr("entity_links.jsonl", f"{json.dumps(link)}\n")
    for _ in range(2):
        imported(older)
        told = {str(each.entity_id): each for each in Entity.objects.select_related("source_session")}
        fields = ("kind", "title", "body", "status", "due_at", "created_at", "updated_at")
        for each in (sail, rope):
            found = told[each["entity_id"]]
            assert {name: getattr(found, name) for name in fields} == {
                name: parse_datetime(each[name]) if name.endswith("_at") else each[name] for name in fields
            }
            assert str(found.source_session) == "s1"
        assert [str(row) for row in EntityLink.objects.all()] == ["Buy rope. blocks Sail."]
    again = exported("ada")
    assert "entities.jsonl" not in again and again["atoms.jsonl"].count("Buy rope.") == 1


@pytest.mark.slow
def test_written_and_reworded_tasks_and_facts_of_a_list_stay_what_they_are(
    service: Api, ada: UserProfile, tmp_path: Path
) -> None:
    own = MemoryStream.objects.ensure_of_person(ada, "default")
    rope, flag = (note(own, text, "fact", kind="task", engine="model") for text in ("Buy rope.", "Buy a flag."))
    assert service.patch(f"entities/{rope.atom_id}", user_id="ada", title=flag.content).status_code == 200
    service.post("entities", user_id="ada", kind="task", title="Sail")
    fact = {"user_id": "ada", "content": "Ada likes tea.", "atom_type": "fact"}
    path = f"streams/{MemoryStream.objects.lists().get().stream_id}/atoms"
    assert service.post(path, fact).status_code == 201
    before, file = exported("ada")["atoms.jsonl"], written("ada", tmp_path / "ada.zip")
    erase_user("ada", application=DEFAULT, actor="test")
    imported(file)
    assert exported("ada")["atoms.jsonl"] == before
    assert {atom.content for atom in MemoryAtom.objects.all() if atom.is_listed} == {"Sail", flag.content}
    assert service.post(path, fact).status_code == 200


# --- invalid files ---


class TestWrongFiles:
    """Each invalid file is named, and nothing of it is imported."""

    @pytest.fixture
    def good(self, ada: UserProfile, tmp_path: Path) -> Path:
        talk(ada, 3)
        path = written("ada", tmp_path / "good.zip")
        erase_user("ada", application=DEFAULT, actor="test")
        Job.objects.all().delete()
        return path

    def refused(self, path: Path) -> str:
        before = UserProfile.objects.count()
        with pytest.raises(CommandError) as refused:
            call_command("import_user", str(path), stdout=StringIO())
        assert UserProfile.objects.count() == before
        assert not Job.objects.exists()
        return str(refused.value)

    def changed(self, good: Path, name: str, change: Any) -> Path:
        path = good.with_name("changed.zip")
        with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
            for entry in old.namelist():
                content = change(old.read(entry)) if entry == name else old.read(entry)
                if content is not None:
                    new.writestr(entry, content)
        return path

    @pytest.mark.parametrize(
        ("name", "change", "told"),
        [
            ("manifest.json", lambda _: None, "not an export of a person"),
            ("manifest.json", lambda _: b"[]", "manifest.json"),
            ("manifest.json", lambda old: old.replace(b'"version": 1', b'"version": 2'), "version"),
            ("messages.jsonl", lambda _: None, "has no messages.jsonl"),
            ("moments.jsonl", lambda _: None, "has no moments.jsonl"),
            ("profile.jsonl", lambda _: b"", "0 lines, but it must have exactly one"),
            ("profile.jsonl", lambda old: old + old, "2 lines, but it must have exactly one"),
            ("messages.jsonl", lambda old: old + b"{", "messages.jsonl line 4"),
            ("messages.jsonl", lambda old: old.replace(b'"role": "user"', b'"role": "robot"'), "line 1: role"),
            ("messages.jsonl", lambda old: old.replace(b'"kind"', b'"zqkind"'), "line 1: kind"),
            ("messages.jsonl", lambda old: old.replace(b"Turn 2", b"Turn\\u0000 2"), "the database rejected it"),
            ("messages.jsonl", lambda old: old.replace(b"Turn 2", b"Turn\\ud800 2"), "messages.jsonl line 3"),
            ("messages.jsonl", lambda old: old + old, "the database rejected it"),
            ("messages.jsonl", lambda old: old.replace(b'"s1"', b'"s9"'), "the session of this message"),
            ("sessions.jsonl", lambda old: old.replace(b'"s1"', b'"%s"' % (b"s" * 300)), "the database rejected it"),
        ],
    )
    def test_the_error_for_an_invalid_shape_names_the_line(self, good: Path, name: str, change: Any, told: str) -> None:
        assert told in self.refused(self.changed(good, name, change))

    def test_a_failure_of_the_database_is_not_blamed_on_the_file(self, good: Path) -> None:
        with pytest.raises(OperationalError), open_export(good):
            raise OperationalError("connection refused")

    def test_a_truncated_file_is_rejected(self, good: Path) -> None:
        content = good.read_bytes()
        for length in (0, 10, len(content) // 2, len(content) - 10):
            path = good.with_name("cut.zip")
            path.write_bytes(content[:length])
            assert "not a complete zip" in self.refused(path)

    def test_a_damaged_file_is_rejected(self, good: Path) -> None:
        with zipfile.ZipFile(good) as archive:
            entry = archive.getinfo("messages.jsonl")
        content = bytearray(good.read_bytes())
        content[entry.header_offset + 90] ^= 255
        good.write_bytes(content)
        assert "not a complete zip" in self.refused(good)

    @pytest.mark.parametrize("name", ["", "a/b", "x" * 256])
    def test_an_invalid_name_is_rejected(self, good: Path, name: str) -> None:
        with pytest.raises(CommandError, match="--as"):
            call_command("import_user", str(good), "--as", name)
        assert not UserProfile.objects.exists()

    def test_the_error_for_a_missing_file_names_it(self, tmp_path: Path, transactional_db: None) -> None:
        assert "nowhere" in self.refused(tmp_path / "nowhere")

    def test_an_oversized_line_is_rejected(self, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sessions_app.people.import_user.LINE_MAX", 100)
        assert "longer than 100 bytes" in self.refused(good)


class TestAsking:
    """The interfaces for an export."""

    def test_the_api_returns_the_same_file(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 3)
        answer = service.get("users/ada/export")
        assert (answer.status_code, answer["Content-Type"]) == (200, "application/zip")
        with zipfile.ZipFile(BytesIO(b"".join(answer.streaming_content))) as archive:
            assert archive.read("messages.jsonl").decode() == exported("ada")["messages.jsonl"]

    def test_row_9_a_user_key_can_export_only_its_person(self, as_ada: Api, bo: UserProfile) -> None:
        foreign, unknown = as_ada.get("users/bo/export"), as_ada.get("users/nobody/export")
        assert (foreign.status_code, foreign.content) == (404, unknown.content)
        assert as_ada.get("users/ada/export").status_code == 200

    def test_the_command_names_an_unknown_person_and_leaves_no_file(self, ada: UserProfile, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="no user 'nobody'"):
            call_command("export_user", "nobody", str(tmp_path / "x.zip"))
        with pytest.raises(CommandError, match="missing"):
            call_command("export_user", "ada", str(tmp_path / "missing" / "x.zip"))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["file/x.zip", "x" * 250, "."])
    def test_the_command_names_a_path_that_cannot_be_written(self, ada: UserProfile, tmp_path: Path, name: str) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(CommandError, match=str(tmp_path)):
            call_command("export_user", "ada", str(tmp_path / name))

    def test_every_table_of_a_person_is_exported_or_derived(self, transactional_db: None) -> None:
        left_out = {
            "ApiKey",
            "Archive",
            "Contradiction",
            "EpisodeDraft",
            "KeptExchange",
            "ReleaseSource",
            "RetractedItem",
            "ServedLine",
            "Vocabulary",
            "Word",
            "FactEmbedding",
            "MomentEmbedding",
            "TurnEmbedding",
            "ItemEmbedding",
        }
        exported = {
            "Session",
            "Message",
            "Moment",
            "Summary",
            "MemoryStream",
            "KnownPerson",
            "MemoryAtom",
            "Correction",
            "StatementChange",
            "StoredItem",
            "CorrectedTurn",
            "EntityLink",
            "OwnText",
            "ContextReceipt",
            "Job",
            "Retraction",
        }
        personal = {
            model.__name__
            for model in apps.get_models()
            if not model._meta.proxy and not model.__module__.startswith("memory_extras.")
            for column in model._meta.concrete_fields
            if column.related_model is UserProfile
        }
        assert personal == exported | left_out
