"""Turns on several machines: `manage.py distribute`, and what applies to a distributed installation."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.models import Index, TextField
from django.test.utils import CaptureQueriesContext

from memory_extras.scale.distribution import TABLES, redistribute
from memoryproject.database.backup import BackupError
from memoryproject.database.restore import restore
from moments_app.models import EmbeddingModel, OwnText, TurnEmbedding
from sessions_app.limited_operators import acting_as_limited_operator
from sessions_app.models import Application, Message, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from tests.conftest import DISTRIBUTED
from tests.support.cluster import Cluster, other_cluster
from tests.support.commands import printed
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_schema_editor_sends_begin_in_a_separate_message(transactional_db: None) -> None:
    with connection.schema_editor(atomic=True), connection.cursor() as cursor:
        cursor.execute("SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        [(message,)] = cursor.fetchall()
    assert message.startswith("SELECT")


def distribute(*options: str) -> str:
    """Return the output of the command. The next connection uses the settings that it made."""
    try:
        return printed("distribute", *options)
    finally:
        connection.close()


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def found(question: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return list(cursor.fetchall())


def rows() -> dict[str, list[Any]]:
    """Return all rows of the distributed tables."""
    return {table: found(f"SELECT * FROM {table} ORDER BY id") for table in TABLES}


def distributed() -> set[str]:
    return {
        name for (name,) in found("SELECT table_name::text FROM citus_tables WHERE citus_table_type = 'distributed'")
    }


def definitions() -> list[Any]:
    """Return the definitions of all our functions."""
    return found("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY oid::text")


class TestOnePostgreSQL:
    """A database that is not and can't be distributed."""

    @pytest.fixture(autouse=True)
    def _one(self, pytestconfig: pytest.Config) -> None:
        if pytestconfig.getoption(DISTRIBUTED):
            pytest.skip("The database is distributed.")

    @pytest.mark.parametrize("options", [[], ["--dry-run"]])
    def test_a_database_without_citus_is_reported(self, options: list[str]) -> None:
        with pytest.raises(CommandError, match="The database lacks the extension citus"):
            distribute(*options)

    def test_a_migration_takes_one_more_statement(self) -> None:
        before = definitions()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            redistribute()
        assert len(queries) == 1
        assert definitions() == before


@pytest.mark.parametrize("app", ["sessions_app", "moments_app"])
def test_no_statement_on_turns_has_an_empty_select_list(app: str) -> None:
    """Citus rejects such a subquery if the statement also reads distributed rows."""
    modules = [path for path in Path(settings.BASE_DIR, app).rglob("*.py") if path.parent.name != "migrations"]
    texts = {path: path.read_text() for path in modules if path.name != "definer_functions.py"}
    of_turns = {path: text for path, text in texts.items() if any(table in text for table in TABLES)}
    assert of_turns and [path for path, text in of_turns.items() if "SELECT FROM" in text] == []


@pytest.fixture
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Databases on several servers."""
    if not pytestconfig.getoption(DISTRIBUTED):
        pytest.skip("It takes a Citus cluster: docs/contributing.md, On several machines.")
    with other_cluster() as cluster:
        yield cluster


@pytest.fixture
def installed(cluster: Cluster) -> Cluster:
    """An installation with data on connected servers."""
    cluster.join()
    call_command("migrate", verbosity=0)
    ada, model = UserProfile.objects.ensure("ada"), EmbeddingModel.objects.ensure("small", 2)
    for turn in talk(ada, 12).messages.turns():
        TurnEmbedding.objects.create(source=turn, model=model, user=ada, said_at=turn.created_at, vector=[1, 2])
        OwnText.objects.create(user=ada, session=turn.session, sequence=turn.sequence, places=[0])
    talk(UserProfile.objects.ensure("eve", Application.objects.create(name="other").pk), 6)
    return cluster


@pytest.mark.slow(seconds=20)
class TestDistributing:
    """Distributing an installation on one PostgreSQL."""

    def test_distributing_keeps_all_rows(self, installed: Cluster) -> None:
        before = rows()
        told = distribute("--dry-run")
        assert "Nothing was changed." in told
        assert distributed() == set() and rows() == before
        told = distribute()
        assert all(f"{table}, {len(there):,} rows" in told for table, there in before.items())
        assert distributed() == set(TABLES)
        assert rows() == before and all(before[table] for table in TABLES[:3])
        assert distribute() == distribute("--dry-run") == "Nothing to do.\n"

    def test_an_interrupted_run_is_continued_by_the_next(self, installed: Cluster) -> None:
        before = rows()
        with installed.connected(0) as session, session.transaction():
            session.execute(f"LOCK TABLE {TABLES[2]} IN ACCESS SHARE MODE")
            execute("SET lock_timeout = '1s'")
            with pytest.raises(OperationalError, match="lock timeout"):
                distribute()
        assert distributed() == set(TABLES[:2])
        assert rows() == before
        told = distribute()
        assert TABLES[0] not in told and TABLES[2] in told
        assert distributed() == set(TABLES)
        assert rows() == before

    def test_each_node_knows_the_application_of_each_person(self, installed: Cluster) -> None:
        distribute()
        other = Application.objects.get(name="other")
        erase_user("ada", application=DEFAULT, actor="operator:command")
        talk(UserProfile.objects.ensure("new", other.pk), 2)
        people = set(UserProfile.objects.values_list("pk", "application_id"))
        for server in range(len(installed.servers)):
            with installed.connected(server) as session:
                assert set(session.execute("TABLE distribution.person").fetchall()) == people
        with acting_as_limited_operator(1, [other.pk]):
            assert set(Message.objects.values_list("user__user_id", flat=True)) == {"eve", "new"}
            assert Message.objects.count() == 8
            assert Message.objects.exclude(user__application=other).update(content="x") == 0
        UserProfile.objects.filter(user_id="new").update(application=DEFAULT)
        with acting_as_limited_operator(1, [other.pk]):
            assert Message.objects.count() == 6

    def test_functions_redefined_by_a_migration_are_adapted_again(self, installed: Cluster) -> None:
        own = definitions()
        distribute()
        changed = definitions()
        assert changed != own
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE OR REPLACE FUNCTION memory_set(name text, value text) RETURNS text LANGUAGE sql "
                "AS 'SELECT pg_catalog.set_config(name, value, true)'"
            )
            cursor.execute(
                "SELECT replace(pg_get_functiondef(oid), 'user_id = $3 AND public', 'public') FROM pg_proc "
                "WHERE proname = 'recall_sessions_app_message'"
            )
            cursor.execute(cursor.fetchone()[0])
        assert definitions() != changed
        call_command("migrate", verbosity=0)
        assert definitions() == changed
        assert distribute() == "Nothing to do.\n"

    def test_a_later_migration_can_change_a_distributed_table(self, installed: Cluster) -> None:
        distribute()
        mood = TextField(db_default="none")
        mood.set_attributes_from_name("mood")
        mood.model = Message
        with connection.schema_editor() as editor:
            editor.add_field(Message, mood)
            editor.add_index(Message, Index(fields=["user", "created_at"], name="message_mood"))
            editor.execute(
                "CREATE FUNCTION brighten() RETURNS trigger LANGUAGE plpgsql "
                "AS 'BEGIN NEW.mood := upper(NEW.content); RETURN NEW; END'"
            )
            editor.execute(
                f"CREATE TRIGGER brighten BEFORE INSERT ON {TABLES[0]} FOR EACH ROW EXECUTE FUNCTION brighten()"
            )
        talk(UserProfile.objects.ensure("ada"), 1, session_id="s2", text="fine")
        assert set(found(f"SELECT mood FROM {TABLES[0]}")) == {("none",), ("FINE",)}

    def test_missing_requirements_are_reported(self, cluster: Cluster) -> None:
        def refused() -> str:
            with pytest.raises(CommandError) as error:
                distribute()
            return str(error.value)

        assert "lacks the extension citus" in refused()
        cluster.execute(0, "CREATE EXTENSION citus")
        assert "citus_set_coordinator_host" in refused()
        host, port = cluster.servers[0]
        cluster.execute(0, f"SELECT citus_set_coordinator_host('{host}', {port})")
        assert "The cluster has no workers" in refused()
        host, port = cluster.servers[1]
        cluster.execute(1, "CREATE EXTENSION citus")
        cluster.execute(0, f"SELECT citus_add_node('{host}', {port})")
        assert "Run manage.py migrate first" in refused()
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(connection.settings_dict, "PORT", str(port))
            assert "This server is a worker" in refused()
        call_command("migrate", verbosity=0)
        execute("SET ROLE memory_admin")
        assert "name a superuser" in refused()
        assert distributed() == set()


@pytest.mark.slow
def test_backup_and_restore_refuse_a_distributed_database(installed: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "all.backup"
    call_command("backup", str(path), stdout=StringIO())
    distribute()
    with pytest.raises(CommandError, match="several servers"):
        call_command("backup", str(tmp_path / "other.backup"))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with pytest.raises(BackupError, match="several servers"):
        restore(path, print)
