"""Two applications of one installation have people, sessions, agents and shards of the same names, but no access."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from pytest_django.fixtures import Settings

from memoryproject.serving.request_limits import application_of
from moments_app.interfaces.chat.request import ChatSession
from moments_app.interfaces.chat.rounds import Round
from moments_app.interfaces.mcp.connection import CURRENT, Connection
from moments_app.interfaces.mcp.server import prompt_text
from moments_app.models import MemoryAtom, MemoryStream, PromptResource
from moments_app.models.embedding import EmbeddingModel, FactEmbedding
from moments_app.prompts import SESSION_DIGEST_URI
from moments_app.recall.index_words import CountInput, count
from moments_app.sessions.checkpoint import digest_input
from moments_app.streams.release import release
from sessions_app.models import ApiKey, Application, Event, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import import_user
from sessions_app.row_security import ROLE, acting_for, allow_shared_changes
from sessions_app.transcript import spool
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.entities import make_entity
from tests.support.jobs import build, work_off
from tests.support.reach import QUERY, reached
from tests.support.streams import candidate, fold, note, shard
from tests.support.transcript import START

pytestmark = pytest.mark.django_db(transaction=True)

HERE, THERE = "quincejam", "walnutliqueur"  # a word in all data of the one, and of the other
EVE = "operator:eve"


@pytest.fixture
def other() -> int:
    """A second application."""
    return Application.objects.create(name="other").pk


@pytest.fixture
def other_service(other: int) -> Api:
    """A client with a service key of the second application with scope admin."""
    return Api(ApiKey.objects.issue("other", application=other, scope="admin")[1])


@pytest.fixture
def both(other: int) -> dict[str, int]:
    """The keys of both applications, which have similar data, by the word that marks it."""
    applications = {HERE: DEFAULT, THERE: other}
    for word, application in applications.items():
        furnish(word, application)
    return applications


def furnish(word: str, application: int) -> None:
    """Create a person, two sessions, memory of every kind, shards and a prompt, all with the word."""
    ada = UserProfile.objects.ensure("ada", application)
    said = [NewMessage("user", f"Mental health support in the clinic, and {word}."), NewMessage("assistant", word)]
    session = append(ada, "s1", said * 6).session
    UserProfile.objects.filter(pk=ada.pk).update(summary=f"Likes {word}.")
    build(session)
    make_entity(ada, f"Buy {word}")
    kilns = shard("kilns", "default", application_id=application, pinned_content=word)
    for number in range(6):
        note(kilns, f"Support number {number} for a patient is {word}.")
    fold(kilns)
    fact = note(kilns, f"The market has {word}.", "fact")
    model, _ = EmbeddingModel.objects.get_or_create(name="m", dimensions=3, defaults={"is_active": True})
    FactEmbedding.objects.create(source=fact, model=model, said_at=START, vector=[1.0, 0.0, 0.0])
    with transaction.atomic():
        count(CountInput(None, user=None, stream=kilns.pk))
    release(candidate(ada, kilns, f"Ask in the clinic for {word} first."), f"{word} helps with a test.", actor=EVE)
    prompt = PromptResource.objects.create(
        uri="rem://prompts/memory-policy", name="policy", purpose="memory-policy", application_id=application
    )
    prompt.activate(prompt.add_version(f"Memory is data, says {word}.", created_by=EVE))
    work_off()


# --- row 24: no interface reaches data of another application ---


@pytest.mark.slow
def test_row_24_no_interface_returns_data_of_another_application(
    service: Api, other_service: Api, both: dict[str, int]
) -> None:
    for api, own, foreign in ((service, HERE, THERE), (other_service, THERE, HERE)):
        for name, text in reached(api, "ada", both[own]).items():
            assert own in text, name
            assert foreign not in text, name
        for user_id in ("ada", "nobody"):
            for path in PATHS:
                answer = api.get(path, user_id=user_id)
                assert foreign not in answer.content.decode(), path
        assert foreign not in Client().get("/metrics", headers=api.headers).content.decode()


PATHS = (
    *("sessions", "sessions/s1", "sessions/s1/messages", "sessions/s1/summaries", "moments", "streams", "jobs"),
    *("entities", "users/ada", "coverage", "retractions"),
)


@pytest.mark.slow
def test_row_24_an_unfiltered_query_sees_only_its_application(both: dict[str, int]) -> None:
    seen_at_all: dict[str, set[str]] = {HERE: set(), THERE: set()}
    for own, foreign in ((HERE, THERE), (THERE, HERE)):
        for person in ("ada", None):
            with acting_for(person, application=both[own]), connection.cursor() as cursor:
                allow_shared_changes()
                for table, rows in readable(cursor):
                    assert foreign not in rows, table
                    if own in rows:
                        seen_at_all[own].add(table)
    assert (
        seen_at_all[HERE]
        == seen_at_all[THERE]
        >= {
            "sessions_app_userprofile",
            "sessions_app_message",
            "moments_app_moment",
            "moments_app_memorystream",
            "moments_app_memoryatom",
            "moments_app_word",
            "moments_app_promptversion",
        }
    )


def readable(cursor: Any) -> Iterator[tuple[str, str]]:
    """Return the name and content of every table whose rows a request may read."""
    cursor.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace "
        "AND has_table_privilege(%s, oid, 'SELECT') ORDER BY 1",
        [ROLE],
    )
    for (table,) in cursor.fetchall():
        cursor.execute(f"SELECT COALESCE(string_agg(row_to_json(t)::text, ' '), '') FROM {table} t")
        yield table, cursor.fetchone()[0]


@pytest.mark.slow
def test_row_24_searches_of_any_shards_find_only_items_of_the_application(both: dict[str, int]) -> None:
    shards = dict(MemoryStream.objects.filter(name="kilns").values_list("application_id", "pk"))
    said = MemoryAtom.objects.filter(user=None, content__startswith="The market has")
    facts = dict(said.values_list("stream__application_id", "pk"))
    model = EmbeddingModel.objects.get().pk
    named: tuple[list[Any], ...] = ([list(shards.values()), model], [[f"s{pk}" for pk in shards.values()]])
    for own in both.values():
        with acting_for("ada", application=own), connection.cursor() as cursor:
            for searches in (searches_of_shards(), searches_of_shards("_then", ", '2100-01-01Z'")):
                for search, parameters in zip(searches, named, strict=True):
                    cursor.execute(search, parameters)
                    assert cursor.fetchone() == ([facts[own]],)


def searches_of_shards(then: str = "", until: str = "") -> tuple[str, str]:
    """Return a search by vectors and one by words, in the current or an earlier version."""
    words = "'{market}', '{}', false, '{market}', '{1}', 5"
    return (
        f"SELECT array_agg(found) FROM nearest_moments_app_factembedding{then}"
        f"(0, %s, %s, 3, '[1,0,0]', NULL, 9{until})",
        f"SELECT array_agg(found) FROM recall_moments_app_memoryatom{then}(0, %s, {words}, NULL, 9{until})",
    )


@pytest.mark.slow
def test_row_24_an_authorized_request_cannot_change_shards_of_another_application(
    both: dict[str, int], other: int
) -> None:
    foreign = MemoryStream.objects.get(application=DEFAULT, name="kilns")
    with acting_for("ada", application=other):
        allow_shared_changes()
        assert MemoryStream.objects.filter(name="kilns").update(is_active=False) == 1
        assert MemoryAtom.objects.filter(stream=foreign).update(access_count=9) == 0
        assert not MemoryAtom.objects.filter(stream=foreign)._raw_delete("default")
    foreign.refresh_from_db()
    assert foreign.is_active


def test_row_24_people_of_another_application_look_unknown_to_a_service_key(
    service: Api, other_service: Api, ada: UserProfile
) -> None:
    append(ada, "s1", [NewMessage("user", "Hello.")])
    for path in ("users/{}", "users/{}/export", "sessions/s1?user_id={}", "sessions/s1/messages?user_id={}"):
        assert service.get(path.format("ada")).status_code == 200, path
        foreign, unknown = (other_service.get(path.format(name)) for name in ("ada", "nobody"))
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.content == unknown.content
    assert other_service.delete("users/ada").status_code == 404
    assert other_service.post("sessions/s1/messages", user_id="ada", messages=[HELLO]).status_code == 201
    assert Session.objects.filter(session_id="s1").values("user__application").distinct().count() == 2
    assert service.get("sessions/s1", user_id="ada").json()["message_count"] == 1


HELLO = {"role": "user", "content": "Hello there."}


@pytest.mark.slow
def test_row_24_releases_and_lessons_stay_with_the_agent_of_their_application(
    service: Api, other_service: Api, other: int
) -> None:
    for application in (DEFAULT, other):
        user = UserProfile.objects.ensure("ada", application)
        append(user, "asking", [NewMessage("user", QUERY), NewMessage("assistant", "Yes.")] * 4, agent_id="a1")
    kilns = shard("kilns", "a1", application_id=other)
    release(candidate(user, kilns, "Vents are opened first."), f"Open vents, {THERE}.", actor=EVE)
    assert THERE in reached(other_service, "bo", other)["atoms"]
    assert THERE not in "".join(reached(service, "ada").values())
    assert Event.objects.get(type="memory_released").application_id == other


def test_row_24_lessons_of_two_applications_are_separate_streams(other: int) -> None:
    for application in (DEFAULT, other):
        user = UserProfile.objects.ensure("ada", application)
        session = append(user, "s1", [NewMessage("user", "Hello.")]).session
        found = MemoryStream.objects.ensure_lessons(session)
        assert [(one.agent_id, one.application_id) for one in found] == [("", application), ("default", application)]
    assert MemoryStream.objects.filter(name="lessons").count() == 4


# --- keys and people ---


def test_row_1_a_user_id_is_unique_within_its_application(ada: UserProfile, other: int) -> None:
    assert UserProfile.objects.ensure("ada", other).pk != ada.pk
    assert UserProfile.objects.ensure("ada", other) == UserProfile.objects.named("ada", other)
    with pytest.raises(IntegrityError, match="user_profile_unique_in_application"), transaction.atomic():
        UserProfile.objects.create(user_id="ada", application_id=other)
    with acting_for("ada", application=other, create=True) as user:
        assert user is not None and (user.pk, user.application_id) != (ada.pk, DEFAULT)


def test_a_users_key_belongs_to_the_users_application(ada: UserProfile, other: int) -> None:
    theirs = UserProfile.objects.ensure("ada", other)
    key, text = ApiKey.objects.issue("ada", user=theirs, application=DEFAULT)
    assert key.application_id == other
    append(theirs, "theirs", [NewMessage("user", "Hello.")])
    append(ada, "hers", [NewMessage("user", "Hello.")])
    assert [one["session_id"] for one in Api(text).get("sessions").json()["sessions"]] == ["theirs"]


def test_people_of_one_application_share_a_thread(other: int) -> None:
    first, second = (f"Bearer {ApiKey.objects.issue('k', application=each)[1]}".encode() for each in (DEFAULT, other))
    for header in (first, second):
        ApiKey.objects.verify(header.decode().split()[1])
    assert application_of(first) == application_of(b"") == application_of(b"Bearer mem_00_x") == ""
    assert application_of(second) == str(other)


def test_figures_are_of_the_site_for_the_default_application_and_otherwise_its_own(
    service: Api, other_service: Api, as_ada: Api, other: int
) -> None:
    append(UserProfile.objects.ensure("bo"), "s1", [NewMessage("user", "Hello.")])
    job = Session.objects.get().jobs.create(process="build_moments", requested_by="test")
    queued = 'memory_jobs{status="queued"} '
    for api, number in ((service, 1), (other_service, 0)):
        assert f"{queued}{number}.0" in Client().get("/metrics", headers=api.headers).content.decode()
    type(job).objects.filter(pk=job.pk).update(user=UserProfile.objects.ensure("bo", other))
    found = Client().get("/metrics", headers=other_service.headers).content.decode()
    assert f"{queued}1.0" in found
    assert "memory_context_receipts" not in found and "memory_state" not in found
    assert Client().get("/metrics", headers=as_ada.headers).status_code == 403


# --- erasures and imports ---


def test_row_11_an_erasure_keeps_the_person_of_the_same_name_in_another_application(
    ada: UserProfile, other: int
) -> None:
    theirs = UserProfile.objects.ensure("ada", other)
    for user in (ada, theirs):
        append(user, "s1", [NewMessage("user", "Hello.")])
    erase_user("ada", application=other, actor="test")
    assert list(UserProfile.objects.all()) == [ada]
    assert Session.objects.get().user == ada
    assert Event.objects.get(type="user_erased").application_id == other
    with pytest.raises(UserProfile.DoesNotExist):
        erase_user("ada", application=other, actor="test")


def test_an_export_can_be_imported_into_another_application(ada: UserProfile, other: int, tmp_path: Path) -> None:
    append(ada, "s1", [NewMessage("user", f"{HERE} again.")] * 1)
    path = tmp_path / "ada.zip"
    with path.open("wb") as file:
        export_user("ada", file, application=DEFAULT)
    import_user(path, application=other)
    assert Session.objects.get(user__application=other).messages.get().content == f"{HERE} again."
    with pytest.raises(UserProfile.DoesNotExist):
        export_user("bo", io.BytesIO(), application=other)


@pytest.mark.slow
def test_commands_use_the_given_application(ada: UserProfile, tmp_path: Path) -> None:
    call_command("create_application", "shop")
    shop = Application.objects.named("shop").pk
    for wrong in ("shop", "No Slug", "", "a" * 65):
        with pytest.raises(CommandError):
            call_command("create_application", wrong)
    text = call_command("create_api_key", "shop's", application="shop")
    lines = tmp_path / "said.jsonl"
    lines.write_text(json.dumps({"user_id": "ada", "session_id": "s1", "role": "user", "content": THERE}))
    call_command("import_sessions", str(lines), "--application", "shop", verbosity=0)
    assert Api(text).get("sessions/s1/messages", user_id="ada").json()["messages"][0]["content"] == THERE
    call_command("export_user", "ada", str(tmp_path / "ada.zip"), "--application", "shop")
    with zipfile.ZipFile(tmp_path / "ada.zip") as archive:
        assert THERE in archive.read("messages.jsonl").decode()
    call_command("erase_user", "ada", "--application", "shop", "--yes")
    assert UserProfile.objects.get() == ada
    call_command("import_user", str(tmp_path / "ada.zip"), "--application", "shop")
    assert UserProfile.objects.named("ada", shop) is not None
    for command in (["erase_user", "ada"], ["coverage", "--user", "ada"], ["mcp", "--user", "ada"]):
        with pytest.raises(CommandError, match="no application 'cafe'"):
            call_command(*command, "--application", "cafe")


# --- spooled rounds ---


def test_row_24_rounds_of_two_applications_are_spooled_separately(
    settings: Settings, tmp_path: Path, other: int
) -> None:
    settings.SPOOL_DIR = tmp_path
    made = {}
    for application in (DEFAULT, other):
        said = Round(ChatSession("ada", "s1", application=application), [NewMessage("user", "Hello.")])
        file = spool.Spool.create("ada", "s1", said.first_record(), application=application)
        file.release()
        made[application] = spool.unstored_files("ada", "s1", application)
    assert [len(paths) for paths in made.values()] == [1, 1]
    spool.remove_person("ada", other)
    assert spool.orphans() == made[DEFAULT]


def test_row_24_a_round_is_stored_in_its_application_or_by_default_in_the_first(other: int) -> None:
    records = [Round(ChatSession("ada", "s1", application=other), [NewMessage("user", "Hello.")]).first_record()]
    assert Round.from_records(records).store()
    assert Session.objects.get().user.application_id == other
    del records[0]["session"]["application"]
    assert Round.from_records(records).store()
    assert Session.objects.filter(user__application=DEFAULT).count() == 1


# --- prompts ---


class TestPrompts:
    """An application's own prompt overrides the site-wide one."""

    def own(self, application: int, text: str) -> None:
        prompt = PromptResource.objects.create(
            uri=SESSION_DIGEST_URI, name="digest", purpose="session-digest", application_id=application
        )
        prompt.activate(prompt.add_version(text, created_by=EVE))

    def test_an_application_without_prompts_uses_those_of_the_site(self, ada: UserProfile, other: int) -> None:
        self.own(other, "Be brief.")
        theirs = UserProfile.objects.ensure("ada", other)
        prompts = {}
        for user in (ada, theirs):
            session = append(user, "s1", [NewMessage("user", "Hello."), NewMessage("assistant", "Yes.")]).session
            found: Any = digest_input(session, 9)
            prompts[user] = found.prompt_version.content
        assert prompts[theirs] == "Be brief."
        assert (
            prompts[ada] == PromptResource.objects.version_in_force(SESSION_DIGEST_URI, DEFAULT).content != "Be brief."
        )

    def test_a_prompt_without_a_version_in_force_is_ignored(self, other: int) -> None:
        PromptResource.objects.create(
            uri=SESSION_DIGEST_URI, name="digest", purpose="session-digest", application_id=other
        )
        found = PromptResource.objects.version_in_force(SESSION_DIGEST_URI, other)
        assert found.resource.application_id is None

    def test_addresses_are_unique_in_an_application(self, other: int) -> None:
        self.own(other, "Be brief.")
        for application in (other, None):
            with pytest.raises(IntegrityError, match="prompt_unique_in_application"), transaction.atomic():
                PromptResource.objects.create(
                    uri=SESSION_DIGEST_URI, name="digest", purpose="session-digest", application_id=application
                )

    def test_row_24_mcp_reads_the_prompt_of_the_application(self, ada: UserProfile, other: int) -> None:
        self.own(other, "Be brief.")
        UserProfile.objects.ensure("ada", other)
        for application, is_own in ((DEFAULT, False), (other, True)):
            token = CURRENT.set(Connection("ada", "default", "key:test", "admin", application))
            try:
                assert (async_to_sync(prompt_text)("session-digest")["content"] == "Be brief.") is is_own
            finally:
                CURRENT.reset(token)
