"""Moments are ordered by time, in whatever order they were built, imported, retried or rebuilt."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from moments_app.models import Job, Moment
from moments_app.models.moment import RELINK_SQL
from moments_app.moments.rebuild import RebuildMoments
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.row_security import acting_for
from tests.moments_app.operator.test_moment_chain import chain_url, rows_of
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.jobs import assert_chain_is_whole, build, work_off
from tests.support.moments import remember
from tests.support.openai_server import OpenAIServer
from tests.support.pages import list_url, page
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

DAYS = {"first": 0, "second": 100, "third": 200}


def converse(user: UserProfile, name: str) -> Session:
    """Create a session on its day."""
    return talk(user, 45, session_id=name, days=DAYS[name])


def in_time(user: UserProfile) -> list[str]:
    """Return the keys, newest first, computed without the tested order."""
    rows = Moment.objects.for_user(user).values_list("source_session__session_id", "first_sequence", "key")
    return [key for *_, key in sorted(rows, key=lambda row: (DAYS[row[0]], row[1]), reverse=True)]


def assert_one_order_everywhere(user: UserProfile, service: Api, root: Client) -> None:
    """Check that list, chain, context, latest boundary and operator pages have the same order."""
    keys = in_time(user)
    assert_chain_is_whole(user)
    listed = service.get("moments", user_id=user.user_id, limit=200).json()["moments"]
    assert [moment["key"] for moment in listed] == keys
    chain = service.get(f"moments/{keys[0]}/chain", user_id=user.user_id, depth=50).json()["moments"]
    assert [moment["key"] for moment in chain] == keys[1:]
    layers = service.get("memory/context", user_id=user.user_id, session_id="first", refresh=True).json()["layers"]
    refs = [item["ref"] for layer in layers if layer["name"] == "moments" for item in layer["items"]]
    named = [ref.removeprefix("rem://moments/key/") for ref in refs if ref.startswith("rem://moments/key/")]
    assert named == keys[: len(named)] and named
    pks = dict(Moment.objects.for_user(user).values_list("pk", "key"))
    assert [pks[pk] for pk in rows_of(page(root, chain_url(user)))] == keys[:17]
    shown = page(root, list_url(Moment), user_id=user.user_id)
    assert sorted(keys, key=lambda key: shown.index(f">{key}<")) == keys


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [("first", "second", "third"), ("third", "second", "first"), ("third", "first", "second")]
)
def test_row_37_sessions_built_in_any_order_form_one_chain_with_one_order_everywhere(
    ada: UserProfile, bo: UserProfile, service: Api, root: Client, order: tuple[str, ...]
) -> None:
    sessions = {name: converse(ada, name) for name in DAYS}
    for name in order:
        build(sessions[name], lag=0)
        build(converse(bo, name), lag=0)
        assert_chain_is_whole(ada)
        assert_chain_is_whole(bo)
    assert_one_order_everywhere(ada, service, root)
    last = sessions[order[-1]].messages.partitions().get()
    assert last.payload and last.payload["last_n_moment_keys"] == in_time(ada)[:5]


@pytest.mark.slow
def test_row_37_the_moments_of_a_retried_build_are_in_order_of_time(
    ada: UserProfile, service: Api, root: Client, model_server: OpenAIServer
) -> None:
    sessions = {name: converse(ada, name) for name in DAYS}
    model_server.queue(*[behave.error(500)] * 3)
    assert build(sessions["first"], lag=0).status == "queued"
    for name in ("third", "second"):
        model_server.queue(behave.error(500))
        build(sessions[name], lag=0)
    work_off()
    for job in Job.objects.filter(status="failed"):
        job.restart()
    work_off()
    assert len({moment.source_session_id for moment in Moment.objects.all()}) == 3
    assert_one_order_everywhere(ada, service, root)


@pytest.mark.slow
def test_row_37_rebuilt_and_restored_moments_keep_their_place(ada: UserProfile, service: Api, root: Client) -> None:
    sessions = {name: converse(ada, name) for name in DAYS}
    for session in sessions.values():
        build(session, lag=0)
    Job.objects.request(RebuildMoments.name, sessions["first"], requested_by="test", force=True)
    work_off()
    assert_one_order_everywhere(ada, service, root)
    retraction = retract(sessions["second"], [3], reason="by mistake", requested_by="test")
    assert_chain_is_whole(ada)
    work_off()
    assert_one_order_everywhere(ada, service, root)
    undo_retraction(retraction, requested_by="test")
    assert_one_order_everywhere(ada, service, root)


@pytest.mark.slow
def test_row_37_imported_moments_are_linked_with_existing_ones(
    ada: UserProfile, service: Api, root: Client, tmp_path: Path
) -> None:
    for name in ("third", "first"):
        build(converse(ada, name), lag=0)
    call_command("export_user", "ada", str(tmp_path / "ada.zip"))
    erase_user("ada", application=DEFAULT, actor="test")
    again = UserProfile.objects.ensure("ada")
    build(converse(again, "second"), lag=0)
    call_command("import_user", str(tmp_path / "ada.zip"))
    assert_one_order_everywhere(again, service, root)


@pytest.mark.parametrize("where", [0, 1, 5, 17, 20])
def test_row_37_an_inserted_moment_changes_only_its_three_neighbors(ada: UserProfile, where: int) -> None:
    moments = remember(ada, 20)
    before = dict(Moment.objects.values_list("pk", "previous_moment_keys"))
    fields = {field.attname: getattr(moments[0], field.attname) for field in Moment._meta.concrete_fields}
    ends_at = moments[where].ends_at if where < 20 else moments[-1].ends_at + timedelta(days=1)
    fields |= {"id": None, "key": "between", "ends_at": ends_at - timedelta(minutes=1), "search_vector": None}
    came = Moment(**fields)
    came.save()
    Moment.objects.relink(ada.pk, [came])
    assert_chain_is_whole(ada)
    changed = [pk for pk, keys in Moment.objects.values_list("pk", "previous_moment_keys") if before.get(pk) != keys]
    assert sorted(changed) == sorted([*[moment.pk for moment in moments[where : where + 3]], came.pk])
    came.delete()
    assert_chain_is_whole(ada)
    assert dict(Moment.objects.values_list("pk", "previous_moment_keys")) == before


@pytest.mark.slow
def test_row_37_linking_takes_constant_work_however_many_moments_are_later(ada: UserProfile) -> None:
    """Count the rows that the plan reads: a few per place, by the index that starts with the person."""
    place = remember(ada, 200)[2]
    for number in range(3):
        remember(UserProfile.objects.ensure(f"person-{number}"), 100)
    assert 0 < _rows_read(ada, place) < 60
    remember(ada, 800, session_id="s2")
    assert 0 < _rows_read(ada, place) < 60


def _rows_read(user: UserProfile, moment: Moment) -> float:
    parameters: dict[str, Any] = {
        "user": user.pk,
        "ends": [moment.ends_at],
        "sequences": [moment.first_sequence],
        "ids": [moment.pk],
    }
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE moments_app_moment")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {RELINK_SQL}", parameters)
        [[plan]] = cursor.fetchall()
    return _read_by(plan[0]["Plan"])


def _read_by(node: dict[str, Any]) -> float:
    own: float = node["Actual Rows"] * node["Actual Loops"] if "Scan" in node["Node Type"] else 0
    passed_over: float = node.get("Rows Removed by Filter", 0)
    return own + passed_over + sum(map(_read_by, node.get("Plans", ())))


@pytest.mark.slow
def test_row_37_the_latest_moments_and_neighbors_are_read_by_one_index(ada: UserProfile) -> None:
    moments = remember(ada, 600)
    for number in range(4):
        remember(UserProfile.objects.ensure(f"person-{number}"), 300)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE moments_app_moment")
    wanted = [
        Moment.objects.for_user(ada).newest_first()[:5],
        Moment.objects.earlier_than(moments[300])[:5],
        Moment.objects.later_than(moments[300])[:5],
    ]
    with acting_for("ada", application=DEFAULT):
        in_requests = [rows.explain() for rows in wanted]
    for plan in (*in_requests, *(rows.explain() for rows in wanted)):
        assert "moment_user_in_time" in plan and "Sort" not in plan, plan


@pytest.mark.slow
def test_row_37_deleting_a_moment_closes_the_chain_in_order_of_time(ada: UserProfile, as_ada: Api) -> None:
    for name in ("third", "first", "second"):
        build(converse(ada, name), lag=0)
    while keys := in_time(ada):
        assert as_ada.delete(f"moments/{keys[len(keys) // 2]}").status_code == 204
        assert_chain_is_whole(ada)
