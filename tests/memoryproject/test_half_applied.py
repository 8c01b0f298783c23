"""Data on which only some migrations were applied that a squashed one replaces: this release refuses them."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from memoryproject.database.verification import migration_problems, partly_applied
from memoryproject.status import checks
from tests.support import newer
from tests.support.processes import database_url, manage

pytestmark = pytest.mark.django_db(transaction=True)

# For the first, Django raises an error. For the second, it ignores the squashed migration.
MISSING = (("moments_app", "0107_help_texts"), ("sessions_app", "0064_roles_of_turns_with_words"))


@pytest.fixture(params=MISSING)
def told(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[str]:
    """The sentence."""
    app, name = request.param
    with newer.partly_applied(app, name):
        yield f"but {name} was not. Run manage.py migrate of a version that has {name}, and then of this version."


def test_row_33_migrate_refuses_data_of_a_version_between_two_releases(told: str) -> None:
    before = MigrationRecorder(connection).applied_migrations().keys()
    with pytest.raises(CommandError) as raised:
        call_command("migrate", verbosity=0)
    assert str(raised.value).endswith(told)
    assert MigrationRecorder(connection).applied_migrations().keys() == before


def test_a_web_process_on_such_data_is_not_ready(told: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "is_schema_current", False)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["migrations"].endswith(told)


def test_verify_reports_such_data(told: str) -> None:
    [sentence] = migration_problems()
    assert sentence.endswith(told)


of_one_app = pytest.mark.parametrize("told", MISSING[:1], indirect=True)


@pytest.mark.slow
@of_one_app
def test_workers_do_not_start_on_such_data(told: str) -> None:
    ended = manage("qcluster", DATABASE_URL=database_url())
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith(told)


@pytest.mark.slow
@of_one_app
def test_restore_refuses_a_backup_of_such_data(told: str, tmp_path: Path) -> None:
    call_command("backup", str(tmp_path / "half.backup"), stdout=StringIO())
    with pytest.raises(CommandError) as raised:
        call_command("restore", str(tmp_path / "half.backup"))
    assert str(raised.value).endswith(told)


def test_data_with_all_or_no_replaced_migrations_are_accepted() -> None:
    applied = {*MigrationRecorder(connection).applied_migrations()}
    assert partly_applied(applied) == partly_applied(set()) == ""
