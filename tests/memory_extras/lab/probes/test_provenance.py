"""Probes are deleted with the turns that they derive from, and with their person."""

import json
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory_extras.lab.models import Probe, ProbeResult
from memory_extras.lab.probes.run import run_probes
from memory_extras.lab.probes.save import draft_from, save_probe
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.reports.housekeeping import HousekeepingResult, housekeeping
from sessions_app.limited_operators import acting_as_limited_operator
from sessions_app.models import Application, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import delete_session, erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import import_user
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.tables import everything

pytestmark = pytest.mark.django_db(transaction=True)

MARKER = "xyzzyplugh"
SAID = [
    NewMessage("user", "Good morning."),
    NewMessage("user", f"Where is the {MARKER} key?"),
    NewMessage("assistant", f"The {MARKER} key is under the pot."),
]
RUN = "11111111-1111-1111-1111-111111111111"


@pytest.fixture
def probe(ada: UserProfile) -> Probe:
    """A probe derived from turns 1 and 2 of Ada, asked once."""
    draft = draft_from(append(ada, "s1", SAID).session, 1)
    assert draft is not None
    made, _ = save_probe(ada, draft, created_by="operator:eve")
    list(run_probes(Probe.objects.all(), made.probe_id, requested_by="test"))
    return made


def session_of(probe: Probe) -> Session:
    return Session.objects.get(user=probe.user, session_id="s1")


def rows(*tables: str) -> str:
    found = everything()
    return json.dumps([found[f"moments_app_{table}"] for table in tables or ("probe", "proberesult")])


@pytest.mark.slow
@pytest.mark.parametrize("sequences", [[1], [2], None], ids=["question", "answer", "session"])
def test_row_10_a_probe_of_retracted_turns_is_withdrawn_with_its_results_and_restored(
    probe: Probe, sequences: list[int] | None
) -> None:
    before = rows()
    assert before.count(MARKER) == 2 and ProbeResult.objects.exists()
    made = retract(session_of(probe), sequences, reason="Planted.", requested_by="test")
    assert made.result["withdrawn"]["probes"] == 1
    assert rows() == json.dumps([[], []])
    undo_retraction(made, requested_by="test")
    assert rows() == before


def test_undoing_a_retraction_keeps_a_newer_probe_with_the_same_question(probe: Probe) -> None:
    made = retract(session_of(probe), [2], reason="Planted.", requested_by="test")
    again = Probe.objects.create(
        user=probe.user, session=probe.session, question=probe.question, expected="Elsewhere", created_by="test"
    )
    undo_retraction(made, requested_by="test")
    assert list(Probe.objects.all()) == [again]


@pytest.mark.slow
def test_undoing_a_retraction_takes_the_same_number_of_statements_for_many_rows(probe: Probe) -> None:
    counts = []
    for number in (1, 20):
        Probe.objects.bulk_create(
            Probe(
                user=probe.user,
                question=f"{number} {place}",
                question_hash=f"{number} {place}",
                source_session=probe.source_session,
                source_message_ids=probe.source_message_ids,
            )
            for place in range(number)
        )
        before = rows()
        made = retract(session_of(probe), [2], reason="Planted.", requested_by="test")
        assert not Probe.objects.exists()
        with CaptureQueriesContext(connection) as statements:
            undo_retraction(made, requested_by="test")
        assert rows() == before
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_retracting_unrelated_turns_keeps_a_probe(probe: Probe) -> None:
    retract(session_of(probe), [0], reason="Planted.", requested_by="test")
    assert list(Probe.objects.all()) == [probe]


def test_a_probe_with_changed_evidence_still_derives_from_its_source_session(service: Api, probe: Probe) -> None:
    append(probe.user, "s2", [NewMessage("user", "Under the pot, yes.")])
    fields = {"evidence_session_id": "s2", "evidence_sequences": [0]}
    assert service.patch(f"probes/{probe.probe_id}", user_id="ada", **fields).status_code == 200
    retract(session_of(probe), None, reason="Planted.", requested_by="test")
    assert not Probe.objects.exists()


def test_a_probe_is_deleted_with_its_session(probe: Probe) -> None:
    with transaction.atomic():
        delete_session(session_of(probe), actor="key:test")
    assert rows() == json.dumps([[], []])


def test_row_11_an_erasure_leaves_no_probe(probe: Probe, bo: UserProfile) -> None:
    other = Probe.objects.create(user=bo, question="What?", expected="Quince", created_by="test")
    erase_user("ada", application=DEFAULT, actor="test")
    assert list(Probe.objects.all()) == [other] and not ProbeResult.objects.exists()
    assert MARKER not in json.dumps(everything())


@pytest.mark.slow
def test_probes_can_be_exported_and_imported(probe: Probe, tmp_path: Path) -> None:
    path = tmp_path / "ada.zip"
    with path.open("wb") as file:
        export_user("ada", file, application=DEFAULT)
    erase_user("ada", application=DEFAULT, actor="test")
    import_user(path, application=DEFAULT)
    back = Probe.objects.get()
    assert (back.probe_id, back.question, back.expected) == (probe.probe_id, probe.question, probe.expected)
    assert (back.session, back.source_session) == (session_of(back), session_of(back))
    assert back.evidence_sequences == [2] and len(back.source_message_ids) == 2
    assert back.question_hash == probe.question_hash
    assert not ProbeResult.objects.exists()


def test_an_import_skips_an_existing_question(probe: Probe, tmp_path: Path) -> None:
    path = tmp_path / "ada.zip"
    with path.open("wb") as file:
        export_user("ada", file, application=DEFAULT)
    Probe.objects.update(probe_id=RUN, expected="Elsewhere")
    assert import_user(path, application=DEFAULT)["probes"] == 0
    assert Probe.objects.get().expected == "Elsewhere"


def test_an_import_skips_an_existing_question_without_a_session(ada: UserProfile, tmp_path: Path) -> None:
    Probe.objects.create(user=ada, question="Where?", expected="Here", created_by="test")
    path = tmp_path / "ada.zip"
    with path.open("wb") as file:
        export_user("ada", file, application=DEFAULT)
    Probe.objects.update(probe_id=RUN, expected="Elsewhere")
    assert import_user(path, application=DEFAULT)["probes"] == 0


def test_row_24_an_application_cannot_access_the_probes_of_another(service: Api, probe: Probe) -> None:
    other = Application.objects.create(name="other")
    stranger = UserProfile.objects.ensure("ada", other.pk)
    Probe.objects.create(user=stranger, question="What?", expected="Walnut", created_by="test")
    shown = service.get("probes", user_id="ada").json()
    assert [found["expected"] for found in shown["probes"]] == [probe.expected]
    assert MARKER not in str(list(Probe.objects.of_application(other.pk).values()))
    for application, expected in ((DEFAULT, probe.expected), (other.pk, "Walnut")):
        with acting_as_limited_operator(1, [application]):
            assert [found.expected for found in Probe.objects.all()] == [expected]
            assert {found.user_id for found in ProbeResult.objects.all()} <= {probe.user_id}
    with acting_as_limited_operator(1, [other.pk]):
        assert not ProbeResult.objects.exists()


def test_results_of_probes_expire(ada: UserProfile) -> None:
    probe = Probe.objects.create(user=ada, question="What?", expected="Quince", created_by="test")
    for days in (399, 401):
        at = timezone.now() - timedelta(days=days)
        probe.results.create(run_id=uuid.uuid4(), user=ada, is_met=True, requested_by="test", created_at=at)
    assert housekeeping() == HousekeepingResult(extra_rows={"probe_results": 1})
