"""Commands that are killed and run again.

`EVERY_KILL=1` kills each command before every step, as `make trust` does. Without it, the kills are spread evenly.
"""

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

from memoryproject.conf import RetentionSettings
from memoryproject.database.backup import compare
from moments_app.models import EmbeddingModel, PromptResource, Retraction, TurnEmbedding
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.export import export_user
from sessions_app.retention.retain import retain
from tests.support.earlier import LAST, fill, without_indexes_of_models
from tests.support.killed import COMMAND, EVERY_KILL, FINISHED, KILLED, NEVER, Killed, wait_for_backends_to_end
from tests.support.openai_server import OpenAIServer
from tests.support.other_database import connected_to
from tests.support.processes import database_url
from tests.support.retention import covered_session
from tests.support.schema import differences, schema
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow(seconds=60)]

SAMPLES = 3  # steps of a command at which it is killed, without `EVERY_KILL`
COMMITS = 1 if EVERY_KILL else 8  # commits of `migrate` between two kills
FAILED = "1"

Check = Callable[[str], None]


@pytest.fixture(scope="module")
def killed(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Killed]:
    """A process that runs commands on the test's database."""
    with django_db_blocker.unblock():
        process = Killed(COMMAND)
    with process:
        yield process


def steps_of(total: int) -> Sequence[int]:
    """Return the steps before which a command is killed: all, or some of them."""
    return range(1, total + 1, 1 if EVERY_KILL else max(total // SAMPLES, 1))


def note(figure: str) -> None:
    """Print a figure if every step is tried."""
    if EVERY_KILL:
        sys.stderr.write(f"\n{figure}\n")


def killed_everywhere(
    killed: Killed, begin: Callable[[str], Sequence[str]], check: Check, *, between: Check = lambda _: None
) -> None:
    """Kill a command before its steps, and run it again each time.

    Args:
        begin: receives a new name, prepares the data of the command, and returns the command.
        check: receives the name after the command was run again.
        between: receives the name after the kill, before the command is run again.
    """
    assert killed.run(NEVER, *begin("whole")) == FINISHED
    check("whole")
    total = killed.steps
    for step in steps_of(total):
        name = f"step-{step}"
        command = begin(name)
        if killed.run(step, *command) == KILLED:
            wait_for_backends_to_end()
            between(name)
            assert killed.run(NEVER, *command) in (FINISHED, FAILED)  # fails if no work is left
        check(name)
    note(f"{command[0]}: {total} steps, killed before {len(steps_of(total))} of them")


def test_row_46_a_killed_embed_activate_leaves_one_active_model(
    embeddings_server: OpenAIServer, ada: UserProfile
) -> None:
    variables = {
        "EMBEDDING__PROVIDER": "openai",
        "EMBEDDING__BASE_URL": embeddings_server.base_url,
        "EMBEDDING__API_KEY": "sk-test",
        "EMBEDDING__MODEL": "test-embedder",
        "EMBEDDING__DIMENSIONS": "64",
    }
    talk(ada, 6)
    call_command("embed")
    used = EmbeddingModel.objects.get(is_active=True)

    def begin(name: str) -> Sequence[str]:
        EmbeddingModel.objects.exclude(pk=used.pk).delete()
        used.activate()
        return ["embed", "--model", name, "--dimensions", "96", "--activate"]

    def is_whole(name: str) -> None:
        assert EmbeddingModel.objects.get(is_active=True).name == name
        assert TurnEmbedding.objects.filter(model__name=name).count() == 6

    def has_one(_: str) -> None:
        assert EmbeddingModel.objects.filter(is_active=True).count() == 1

    with Killed(COMMAND, **variables) as killed:
        killed_everywhere(killed, begin, is_whole, between=has_one)


def test_row_46_a_killed_retraction_is_made_once(killed: Killed) -> None:
    def begin(name: str) -> Sequence[str]:
        talk(UserProfile.objects.ensure(name), 6)
        return ["retract", name, "s1", "--reason", "Wrong."]

    def is_whole(name: str) -> None:
        of_name = Message.objects.filter(user__user_id=name)
        assert Retraction.objects.filter(user__user_id=name).count() == 1
        assert of_name.turns().filter(retracted_at=None).count() == 0

    killed_everywhere(killed, begin, is_whole)


def test_row_46_a_killed_erasure_leaves_no_data_of_the_person(killed: Killed) -> None:
    def begin(name: str) -> Sequence[str]:
        talk(UserProfile.objects.ensure(name), 6)
        return ["erase_user", name, "--yes"]

    def is_whole(name: str) -> None:
        assert not UserProfile.objects.filter(user_id=name).exists()
        assert not Message.objects.filter(user__user_id=name).exists()

    killed_everywhere(killed, begin, is_whole)


def test_row_46_a_killed_import_of_sessions_adds_each_turn_once(killed: Killed, tmp_path: Path) -> None:
    def begin(name: str) -> Sequence[str]:
        lines = [
            {"user_id": name, "session_id": f"s{number % 3}", "role": "user", "content": f"Turn {number}."}
            for number in range(9)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        return ["import_sessions", str(path)]

    def is_whole(name: str) -> None:
        turns = Message.objects.filter(user__user_id=name).turns()
        assert Counter(turns.values_list("content", flat=True)) == Counter(f"Turn {number}." for number in range(9))

    killed_everywhere(killed, begin, is_whole)


def test_row_46_a_killed_import_of_a_person_adds_each_row_once(
    killed: Killed, ada: UserProfile, tmp_path: Path
) -> None:
    talk(ada, 6)
    path = tmp_path / "ada.zip"
    with path.open("wb") as file:
        export_user("ada", file, application=DEFAULT)

    def is_whole(name: str) -> None:
        assert Session.objects.filter(user__user_id=name).count() == 1
        assert Message.objects.filter(user__user_id=name).turns().count() == 6

    killed_everywhere(killed, lambda name: ["import_user", str(path), "--as", name], is_whole)


def test_row_46_a_killed_schedules_command_registers_all_schedules(killed: Killed) -> None:
    from django_q.models import Schedule

    from memoryproject.schedules import schedules

    def begin(_: str) -> Sequence[str]:
        Schedule.objects.all().delete()
        return ["schedules"]

    def is_whole(_: str) -> None:
        assert {*Schedule.objects.values_list("name", flat=True)} == {*schedules()}

    killed_everywhere(killed, begin, is_whole)


# --- in a separate database ---


def make_database(name: str) -> None:
    """Create an empty database, replacing an existing one."""
    drop_database(name)
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")


def drop_database(name: str) -> None:
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def database(name: str) -> Iterator[None]:
    """Work on an empty database."""
    make_database(name)
    try:
        with connected_to(name):
            yield
    finally:
        drop_database(name)


OWN = f"killed_{os.getpid()}"


def test_row_46_a_killed_backup_can_be_repeated(killed: Killed, ada: UserProfile, tmp_path: Path) -> None:
    talk(ada, 6)
    path = tmp_path / "all.backup"

    def begin(_: str) -> Sequence[str]:
        path.unlink(missing_ok=True)
        return ["backup", str(path)]

    def is_whole(_: str) -> None:
        assert compare(path) == []
        assert {*tmp_path.iterdir()} == {path}

    killed_everywhere(killed, begin, is_whole)


def test_row_46_a_killed_restore_continues_with_the_same_file(
    ada: UserProfile, tmp_path: Path, settings: Settings
) -> None:
    settings.DATA_DIR = tmp_path / "from"
    settings.DATA_DIR.mkdir()
    settings.SECRET_KEY = "k" * 60
    (settings.DATA_DIR / "secret_key").write_text(settings.SECRET_KEY)
    settings.STORAGES = settings.STORAGES | {"archive": RetentionSettings().storage(settings.DATA_DIR)}
    covered_session(ada, 12)
    retain()
    EmbeddingModel.objects.ensure("small", 3)
    path, there, newest = tmp_path / "all.backup", tmp_path / "to", schema()
    call_command("backup", str(path), stdout=StringIO())
    url = database_url().replace(f"/{connection.settings_dict['NAME']}?", f"/{OWN}?")

    def begin(_: str) -> Sequence[str]:
        shutil.rmtree(there, ignore_errors=True)
        make_database(OWN)
        return ["restore", str(path)]

    def is_whole(_: str) -> None:
        assert restoring.run(NEVER, "verify", str(path)) == FINISHED
        assert (there / "secret_key").read_text() == "k" * 60
        with connected_to(OWN):
            assert differences(schema(), newest) == {}

    make_database(OWN)
    try:
        with Killed(COMMAND, DATABASE_URL=url, DATA_DIR=str(there)) as restoring:
            killed_everywhere(restoring, begin, is_whole)
    finally:
        drop_database(OWN)


def applied() -> int:
    return len(MigrationRecorder(connection).applied_migrations())


def migrate_by_commits() -> tuple[int, int]:
    """Run `migrate`, killed after `COMMITS` commits, until it finishes; return the numbers of kills and of migrations.

    An uncommitted transaction leaves nothing, so kills after each commit leave all possible states. A run that recorded
    no migration is followed by one that is killed `COMMITS` commits later.
    """
    kills, commits, before = 0, COMMITS, applied()
    first = before
    with Killed(COMMAND, DATABASE_URL=database_url()) as killed:
        while (ended := killed.run_to_commit(commits, "migrate", "--verbosity", "0")) == KILLED:
            kills += 1
            connection.close()
            commits = commits + COMMITS if applied() == before else COMMITS
            before = applied()
        assert ended == FINISHED
    return kills, before - first


def test_row_46_a_killed_migrate_finishes_the_newest_migrations() -> None:
    """Start from the database of an earlier release."""
    newest = schema()
    with database(OWN):
        fill(LAST)
        executor = MigrationExecutor(connection)
        migrations = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        kills, _ = migrate_by_commits()
        note(f"migrate to the newest: {migrations} migrations, killed {kills} times")
        assert kills >= migrations // COMMITS > 0
        assert without_indexes_of_models(differences(schema(), newest)) == set()
        assert not PromptResource.objects.filter(active_version=None).exists()


@pytest.mark.skipif(not EVERY_KILL, reason="takes many minutes")
def test_row_46_a_killed_migrate_of_an_empty_database_can_be_continued() -> None:
    newest = schema()
    with database(OWN):
        kills, migrations = migrate_by_commits()
        note(f"migrate on an empty database: {migrations} migrations, killed {kills} times")
        assert differences(schema(), newest) == {}
