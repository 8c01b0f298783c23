"""The extra takes over probes and trials that a release without it has stored."""

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from pytest_django import DjangoDbBlocker

from memory_extras.lab.models import Probe, ProbeResult, PromptTrial
from moments_app.models import PromptVersion, RetractedItem
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from tests.earlier import test_upgrade as earlier
from tests.support.other_database import another_database, connected_to, empty_database
from tests.support.processes import environment, manage

pytestmark = [pytest.mark.slow(seconds=30), pytest.mark.django_db(transaction=True)]

STATE = Path(earlier.__file__).with_name("6_phrases.sql.gz")
MIGRATE_AND_CHECK = """
from django.core.management import call_command
call_command("migrate")
call_command("check", databases=["default"])
"""
WITHDRAWN = {
    "probe_id": "22222222-2222-2222-2222-222222222222",
    "user": 1,
    "session": None,
    "question": "Which boat?",
    "question_hash": "withdrawn",
    "expected": "The ferry",
    "source_session": 1,
    "evidence_sequences": [],
    "source_message_ids": [1],
    "created_by": "key:app",
    "created_at": "2026-03-02T08:00:00Z",
    "updated_at": "2026-03-02T08:00:00Z",
}
# A probe with a result, a trial, a probe withdrawn by a retraction, and a custom group of operators.
BEFORE = """
INSERT INTO moments_app_probe (id, probe_id, question, question_hash, expected, evidence_sequences, source_message_ids,
    created_by, created_at, updated_at, user_id)
VALUES (7, '11111111-1111-1111-1111-111111111111', 'When does the ferry leave?', 'hash', 'On Thursdays at seven',
    '{}', '{}', 'key:app', now(), now(), 1);
INSERT INTO moments_app_proberesult (run_id, is_met, words_found, words_count, missing_words, evidence_found,
    evidence_count, tokens, refs, setup, problem, requested_by, created_at, probe_id, user_id)
VALUES ('33333333-3333-3333-3333-333333333333', true, 2, 2, '{}', 0, 0, 90, '{}', '{}', '', 'test', now(), 7, 1);
INSERT INTO moments_app_prompttrial (size, tried, differing, requested_by, created_at, version_id)
SELECT 3, 3, 1, 'operator:eve', now(), min(id) FROM moments_app_promptversion;
INSERT INTO moments_app_retraction (retraction_id, sequences, reason, requested_by, result, waiting, created_at,
    user_id, session_id)
VALUES ('44444444-4444-4444-4444-444444444444', NULL, 'test', 'test', '{"turns": 0}', '{}', now(), 1, 1);
INSERT INTO moments_app_retracteditem (model, object_pk, is_rewritten, data, retraction_id, user_id)
SELECT 'moments_app.probe', 8, false, %s::jsonb, id, 1 FROM moments_app_retraction;
INSERT INTO auth_group (name) VALUES ('auditors');
INSERT INTO auth_group_permissions (group_id, permission_id)
SELECT auth_group.id, auth_permission.id FROM auth_group, auth_permission
WHERE auth_group.name = 'auditors' AND codename IN ('view_probe', 'add_probe');
"""


def fill() -> None:
    """Fill an empty database with the earlier state, including probes."""
    sql = gzip.decompress(STATE.read_bytes()).decode()
    with connection.cursor() as cursor:
        cursor.execute(sql)
        cursor.execute("SET search_path = public")
        cursor.execute(BEFORE, [json.dumps(WITHDRAWN)])
    connection.close()


@pytest.fixture(scope="module")
def upgrade(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[tuple[str, dict[str, int]]]:
    """The name of an upgraded database, and its former content types by model."""
    stack = ExitStack()
    with django_db_blocker.unblock():
        name = stack.enter_context(another_database("upgraded"))
        with connected_to(name):
            fill()
            with connection.cursor() as cursor:
                cursor.execute("SELECT model, id FROM django_content_type WHERE app_label = 'moments_app'")
                types = dict(cursor.fetchall())
            call_command("migrate", verbosity=0)
    yield name, types
    with django_db_blocker.unblock():
        stack.close()


@pytest.fixture
def upgraded(transactional_db: None, upgrade: tuple[str, dict[str, int]]) -> Iterator[dict[str, int]]:
    """The former content types by model. The test runs on a copy of the upgraded database."""
    name, types = upgrade
    with another_database(template=name) as copy, connected_to(copy):
        yield types


def test_row_33_probes_trials_and_grants_are_kept(upgraded: dict[str, int]) -> None:
    probe = Probe.objects.get()
    assert (probe.pk, probe.question, probe.results.get().is_met) == (7, "When does the ferry leave?", True)
    trial = PromptTrial.objects.get()
    assert [version.pk for version in PromptVersion.objects.filter(is_tried=True)] == [trial.version_id]
    types = ContentType.objects.get_for_models(Probe, ProbeResult, PromptTrial)
    assert {model: found.pk for model, found in types.items()} == {
        model: upgraded[str(model._meta.model_name)] for model in types
    }
    assert not ContentType.objects.filter(app_label="moments_app", model__contains="probe").exists()
    granted = Permission.objects.filter(group=Group.objects.get(name="auditors"))
    assert {f"{one.content_type.app_label}.{one.codename}" for one in granted} == {"lab.view_probe", "lab.add_probe"}
    assert Permission.objects.filter(group__name="editors", codename="add_probe").exists()
    assert not Permission.objects.filter(group__name="viewers", codename="add_probe").exists()


def test_row_33_a_probe_withdrawn_before_the_upgrade_can_be_restored(upgraded: dict[str, int]) -> None:
    [item] = RetractedItem.objects.of(Probe)
    assert item.table is Probe
    RetractedItem.objects.restore(Probe)
    assert Probe.objects.get(pk=8).expected == "The ferry"


def test_row_11_an_erasure_after_the_upgrade_leaves_no_probe(upgraded: dict[str, int]) -> None:
    erase_user("ada", application=DEFAULT, actor="test")
    assert not Probe.objects.exists() and not ProbeResult.objects.exists()


def test_row_33_the_core_keeps_probes_and_warns_until_the_extra_is_installed(transactional_db: None) -> None:
    with empty_database():
        fill()
        core = manage("shell", "-c", MIGRATE_AND_CHECK, **environment(EXTRAS=""))
        whole = manage("shell", "-c", MIGRATE_AND_CHECK, **environment())
        assert (core.returncode, whole.returncode) == (0, 0), core.stderr + whole.stderr
        assert "moments_app_probe, moments_app_proberesult" in core.stderr and "can't be erased" in core.stderr
        assert Probe.objects.get().pk == 7
        assert "W005" not in whole.stderr
