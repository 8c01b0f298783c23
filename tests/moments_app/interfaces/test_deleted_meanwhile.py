"""A row that is deleted after a PATCH reads it and before the PATCH writes it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db.models import Model
from psycopg import sql
from pytest_django.fixtures import Settings

from memoryproject.conf import LimitSettings
from moments_app.models import MemoryStream, Moment
from sessions_app.models import ApiKey, Event, Session, UserProfile
from tests.support.api import Api
from tests.support.concurrency import on_its_own_connection, wait_until_somebody_waits
from tests.support.entities import make_entity
from tests.support.processes import database_url
from tests.support.transcript import START
from tests.support.waiting import TIMEOUT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def make_session(ada: UserProfile) -> tuple[Model, str]:
    session = Session.objects.create(user=ada, session_id="s1")
    return session, "sessions/s1"


def make_task(ada: UserProfile) -> tuple[Model, str]:
    entity = make_entity(ada, "Mend the press")
    return entity, f"entities/{entity.entity_id}"


def make_stream(ada: UserProfile) -> tuple[Model, str]:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    return stream, f"streams/{stream.stream_id}"


def make_moment(ada: UserProfile) -> tuple[Model, str]:
    times = {"starts_at": START, "ends_at": START, "first_sequence": 0, "last_sequence": 0}
    session = Session.objects.create(user=ada, session_id="s1")
    texts = {"key": "planting", "name": "planting", "summary": "They planted a quince.", "engine": "test"}
    moment = Moment.objects.create(user=ada, source_session=session, **texts, **times)
    return moment, f"moments/{moment.key}"


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (make_session, {"title": "Changed."}),
        (make_session, {"legal_hold": True}),
        (make_task, {"title": "Changed."}),
        (make_stream, {"pinned_content": "Changed."}),
        (make_moment, {"summary": "Changed."}),
    ],
)
def test_a_row_deleted_during_a_change_is_404(
    ada: UserProfile, settings: Settings, make: Callable[[UserProfile], tuple[Model, str]], change: dict[str, Any]
) -> None:
    settings.LIMITS = LimitSettings(lock_seconds=60, request_seconds=60)
    row, path = make(ada)
    admin = Api(ApiKey.objects.issue("application", scope=ApiKey.Scope.ADMIN)[1])
    delete = sql.SQL("DELETE FROM {} WHERE id = %s").format(sql.Identifier(row._meta.db_table))
    with psycopg.connect(database_url()) as other, ThreadPoolExecutor(1) as pool:
        other.execute(delete, [row.pk])
        asked = pool.submit(on_its_own_connection, lambda: admin.patch(path, user_id="ada", **change))
        wait_until_somebody_waits()
        other.commit()
        answer = asked.result(TIMEOUT)
    assert answer.status_code == 404, answer.content
    assert answer.json()["errors"][0]["code"] == "not_found"
    assert not type(row)._base_manager.filter(pk=row.pk).exists()
    assert not Event.objects.filter(type__in=("legal_hold_set", "moment_edited")).exists()
