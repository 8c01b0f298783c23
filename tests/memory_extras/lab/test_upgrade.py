"""The extra takes over probes and trials that a release without it has stored."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from subprocess import CompletedProcess
from typing import NamedTuple

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.checks import Tags, run_checks
from django.core.management import call_command
from django.db import connection
from pytest_django import DjangoDbBlocker

from memory_extras.lab.models import Probe, ProbeResult, PromptTrial
from moments_app.models import PromptVersion, RetractedItem
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from tests.support.earlier import LAST, PROBES, fill
from tests.support.other_database import another_database, connected_to
from tests.support.processes import environment, manage_all

pytestmark = [pytest.mark.slow(seconds=30), pytest.mark.django_db(transaction=True)]

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
# A probe withdrawn by a retraction, and a custom group of operators.
BEFORE = """
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


def fill_with_probes() -> None:
    """Fill an empty database with the earlier state and probes."""
    fill(LAST, PROBES)
    with connection.cursor() as cursor:
        cursor.execute(BEFORE, [json.dumps(WITHDRAWN)])


class Upgrade(NamedTuple):
    """A database that was upgraded without the extra, and then with it.

    Args:
        name: the name of the database.
        types: the former content types by model.
        core: the upgrade without the extra.
        warnings: the warnings after the upgrade with it.
    """

    name: str
    types: dict[str, int]
    core: "CompletedProcess[str]"
    warnings: set[str]


@pytest.fixture(scope="module")
def upgrade(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Upgrade]:
    """The upgrade of one database for all tests."""
    stack = ExitStack()
    with django_db_blocker.unblock():
        name = stack.enter_context(another_database("upgraded"))
        with connected_to(name):
            fill_with_probes()
            with connection.cursor() as cursor:
                cursor.execute("SELECT model, id FROM django_content_type WHERE app_label = 'moments_app'")
                types = dict(cursor.fetchall())
            core = manage_all("migrate", "check --database default", **environment(EXTRAS=""))
            call_command("migrate", verbosity=0)
            warnings = {str(message.id) for message in run_checks(tags=[Tags.database], databases=["default"])}
    yield Upgrade(name, types, core, warnings)
    with django_db_blocker.unblock():
        stack.close()


@pytest.fixture
def upgraded(transactional_db: None, upgrade: Upgrade) -> Iterator[dict[str, int]]:
    """The former content types by model. The test runs on a copy of the upgraded database."""
    with another_database(template=upgrade.name) as copy, connected_to(copy):
        yield upgrade.types


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
    [item] = RetractedItem.objects.for_model(Probe)
    assert item.table is Probe
    RetractedItem.objects.restore(Probe)
    assert Probe.objects.get(pk=8).expected == "The ferry"


def test_row_11_an_erasure_after_the_upgrade_leaves_no_probe(upgraded: dict[str, int]) -> None:
    erase_user("ada", application=DEFAULT, actor="test")
    assert not Probe.objects.exists() and not ProbeResult.objects.exists()


def test_row_33_the_core_keeps_probes_and_warns_until_the_extra_is_installed(upgrade: Upgrade) -> None:
    told = upgrade.core.stderr
    assert upgrade.core.returncode == 0, told
    assert told.count("W005") == 2  # by `migrate` and `check`
    assert "moments_app_probe, moments_app_proberesult" in told and "can't be erased" in told
    assert "memoryproject.W005" not in upgrade.warnings
