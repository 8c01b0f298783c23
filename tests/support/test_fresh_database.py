"""The database is restored between tests."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django_q.models import Schedule

from memoryproject.schedules import schedules
from moments_app.models import EmbeddingModel, Job, PromptResource
from moments_app.prompts import MOMENT_BUILDER_URI
from sessions_app.models import Message, UserProfile
from sessions_app.models.application import DEFAULT
from tests.support.fresh_database import FreshDatabase
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fresh(transactional_db: None) -> Iterator[FreshDatabase]:
    """Yield a second `FreshDatabase`, created before the test writes anything."""
    with closing(FreshDatabase()) as made:
        made.restore()  # from now on, it compares only rows of changed tables
        yield made


def everything() -> dict[str, list[tuple[str]]]:
    """Return all rows of all models, and all indexes."""
    tables = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname::text FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1")
        found = {"indexes": cursor.fetchall()}
        for table in tables:
            cursor.execute(f"SELECT t::text FROM {table} t ORDER BY 1")
            found[table] = cursor.fetchall()
    return found


def test_a_test_starts_with_the_rows_of_migrate_only() -> None:
    filled = {table for table, rows in everything().items() if rows}
    assert filled == {
        "indexes",
        "auth_group",
        "auth_group_permissions",
        "auth_permission",
        "django_content_type",
        "django_q_schedule",
        "moments_app_promptresource",
        "moments_app_promptversion",
        "sessions_app_application",
    }
    assert Permission.objects.filter(codename="change_moment").exists()
    assert Schedule.objects.count() == len(schedules())
    assert PromptResource.objects.version_in_force(MOMENT_BUILDER_URI, DEFAULT).created_by == "shipped"


@pytest.mark.parametrize("turns", [1, 1_000])
def test_new_rows_and_indexes_are_removed(fresh: FreshDatabase, turns: int) -> None:
    before = everything()
    talk(UserProfile.objects.ensure("ada"), turns)
    Job.objects.request("count_words", user_id=UserProfile.objects.get().pk, requested_by="test")
    EmbeddingModel.objects.ensure("m", 64)
    assert Message.objects.count() == turns
    fresh.restore()
    assert everything() == before


def test_planner_statistics_are_reset(fresh: FreshDatabase) -> None:
    def told() -> list[tuple[float, int]]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT reltuples, (SELECT count(*) FROM pg_statistic WHERE starelid = pg_class.oid) FROM pg_class"
                " WHERE oid = 'sessions_app_message'::regclass AND reloptions = '{autovacuum_enabled=false}'"
            )
            return list(cursor.fetchall())

    fresh.forget_statistics()
    talk(UserProfile.objects.ensure("ada"), 10)
    assert told() == [(-1, 0)]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE sessions_app_message")
    assert told()[0][0] == 10
    fresh.restore()
    assert told() == [(-1, 0)]


def test_changed_and_deleted_rows_are_restored(fresh: FreshDatabase) -> None:
    before = everything()
    resource = PromptResource.objects.get(uri=MOMENT_BUILDER_URI)
    resource.activate(resource.add_version("own", created_by="operator:eve"))
    Schedule.objects.update(minutes=99)
    Schedule.objects.create(name="own", func="x")
    Permission.objects.filter(codename__startswith="view").delete()
    ContentType.objects.filter(model="moment").delete()
    fresh.restore()
    assert everything() == before


def test_restoring_does_not_wait_for_an_open_transaction(fresh: FreshDatabase) -> None:
    before = everything()
    connection.set_autocommit(False)
    UserProfile.objects.ensure("ada")
    fresh.restore()
    assert everything() == before
