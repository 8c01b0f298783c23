"""The history of a statement: who changed it, when and why, and its former state."""

from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from moments_app.models import Correction, MemoryAtom, MemoryStream, StatementChange
from moments_app.provenance.correct import correct, end_request, replacement_request, undo_correction
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.reports.housekeeping import housekeeping
from moments_app.streams import edit
from moments_app.streams.form import FormMemories
from moments_app.streams.texts import undo
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from tests.support.api import Api
from tests.support.lives import OSLO, say
from tests.support.operator import operator
from tests.support.pages import change_url
from tests.support.streams import fold, note, shard, written

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

EXACT = datetime(2025, 4, 5, 6, 7, 8, 987654, tzinfo=UTC)


@pytest.fixture
def own(ada: UserProfile) -> MemoryStream:
    """The user stream of Ada."""
    return MemoryStream.objects.ensure_of_person(ada, "default")


@pytest.fixture
def bees(own: MemoryStream) -> MemoryAtom:
    return note(own, "Keeps bees.", "fact")


def changes(atom: MemoryAtom) -> list[tuple[str, str, str]]:
    """Return the changes of a statement, oldest first: the action, the kind of actor and the kind of reason."""
    rows = atom.history.order_by("pk").values_list("action", "actor", "reason")
    return [(action, actor.split(":")[0], reason.split(":")[0]) for action, actor, reason in rows]


def history(service: Api, atom: MemoryAtom, **query: Any) -> Any:
    return service.get(f"facts/{atom.atom_id}/history", user_id="ada", **query).json()


def test_row_9_unknown_people_get_no_shared_items_as_facts(service: Api, as_stranger: Api) -> None:
    shared = note(shard("lessons"), "Answer briefly.", "fact")
    for path, status in (("facts", 200), (f"facts/{shared.atom_id}", 404), (f"facts/{shared.atom_id}/history", 404)):
        for answer in (service.get(path, user_id="nobody"), as_stranger.get(path, user_id="nobody")):
            assert answer.status_code == status
            assert "Answer briefly" not in answer.text


def test_row_9_the_history_of_another_persons_facts_cannot_be_read(
    bees: MemoryAtom, bo: UserProfile, service: Api, as_ada: Api, as_stranger: Api
) -> None:
    edit.evict(bees, requested_by="operator:eve")
    path = f"facts/{bees.atom_id}/history"
    assert service.get(path, user_id="bo").status_code == as_stranger.get(path).status_code == 404
    assert [one["action"] for one in as_ada.get(path).json()["history"]] == ["evicted"]
    with acting_for("bo", application=DEFAULT):
        assert not StatementChange.objects.exists()
    with acting_for("ada", application=DEFAULT):
        assert StatementChange.objects.count() == 1


def test_an_end_and_its_undo_record_actor_and_reason(bees: MemoryAtom, service: Api) -> None:
    made = service.patch(f"facts/{bees.atom_id}", user_id="ada", state="ended").json()
    service.post(f"corrections/{made['correction_id']}/undo", user_id="ada")
    undone, ended = history(service, bees)["history"]
    assert (ended["action"], undone["action"]) == ("ended", "undone")
    assert ended["reason"] == undone["reason"] == f"correction:{made['correction_id']}"
    assert ended["actor"] == undone["actor"] and ended["actor"].startswith("key:")
    assert ended["before"] == {"state": "active", "valid_until": None}
    assert undone["before"]["state"] == "ended"


def test_undoing_a_correction_restores_exact_times(bees: MemoryAtom) -> None:
    MemoryAtom.objects.filter(pk=bees.pk).update(valid_until=EXACT)
    correction = correct(bees, replacement_request("Keeps goats."), requested_by="key:test")
    assert changes(bees) == [("corrected", "key", "correction")]
    undo_correction(correction, requested_by="operator:eve")
    assert changes(bees)[1:] == [("undone", "operator", "correction")]
    bees.refresh_from_db()
    assert (bees.state, bees.valid_until, bees.is_wrong, bees.replaced_by) == ("active", EXACT, False, None)
    assert MemoryAtom.objects.get() == bees


def test_a_superseding_statement_is_recorded(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    say(ada, "s2", "2025-03-03", "I moved to Bergen today.")
    oslo = MemoryAtom.objects.get(content=OSLO, stream__stream_type="user")
    assert changes(oslo) == [("superseded", "job", "")]
    assert oslo.history.get().before["state"] == "active"


def test_actions_of_operators_are_recorded(bees: MemoryAtom, ada: UserProfile) -> None:
    root = operator()
    other = MemoryStream.objects.ensure_of_person(ada, "other")
    edit.move(bees, other, requested_by="operator:eve")
    bees.refresh_from_db()
    edit.evict(bees, requested_by="operator:eve")
    edit.restore(bees, requested_by="operator:eve")
    when = {"formed_at_0": f"{bees.formed_at:%Y-%m-%d}", "formed_at_1": f"{bees.formed_at:%H:%M:%S}"}
    edited = {"content": "Keeps two hives of bees.", "last_change": bees.history.newest_first()[0].pk}
    assert root.post(change_url(bees), edited | when).status_code == 302
    actions = [(action, actor) for action, actor, _ in changes(bees)]
    assert actions == [(action, "operator") for action in ("moved", "evicted", "restored", "edited")]
    last = bees.history.newest_first()[0]
    assert (last.before["content"], last.before["is_pinned"]) == ("Keeps bees.", False)
    page = root.get(change_url(bees)).content.decode()
    assert "History" in page and "Content: Keeps bees.; " in page and "Pinned: no" in page


def test_replaced_text_of_a_profile_ends(ada: UserProfile) -> None:
    written(ada, summary="Keeps bees.")
    bees = MemoryAtom.objects.get()
    written(ada, summary="keeps bees!")
    written(ada, summary="Keeps goats.")
    assert changes(bees) == [("edited", "operator", ""), ("ended", "operator", "")]


def test_consolidations_and_their_undo_are_recorded(own: MemoryStream, service: Api) -> None:
    for stream in (own, shard("kilns")):
        atom = note(stream, "Felt wears out.")
        assert fold(stream).status == "completed"
        assert service.post(f"streams/{stream.stream_id}/undo", {"user_id": "ada"}).status_code == 200
        assert changes(atom) == [("merged", "job", "consolidation"), ("split", "key", "")]
    with acting_for("ada", application=DEFAULT):
        assert not atom.history.exists()


@pytest.mark.slow
def test_retraction_and_its_undo_keep_the_history(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    oslo = MemoryAtom.objects.get(content=OSLO, stream__stream_type="user")
    correction = correct(oslo, end_request(), requested_by="key:test")
    session = Session.objects.get(session_id="s1")
    retraction = retract(session, [0], reason="mistaken", requested_by="operator:eve")
    assert not StatementChange.objects.exists()
    undo_retraction(retraction, requested_by="operator:eve")
    expected = [("ended", "key", "correction"), ("retracted", "operator", "retraction")]
    assert changes(oslo) == [*expected, ("undone", "operator", "retraction")]
    undo_correction(correction, requested_by="key:test")
    oslo.refresh_from_db()
    assert (oslo.state, oslo.ended_at) == ("active", None)


def test_the_history_of_a_plan_shows_its_moved_and_reached_end(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2026-11-20", "I will fly to Rome in May 2027 with my sister Greta.")
    plan = MemoryAtom.objects.get(user=ada, kind="plan")
    service.patch("users/ada", timezone="Asia/Tokyo")
    moved = plan.history.get()
    assert changes(plan) == [("edited", "key", "timezone")]
    assert moved.columns == {"valid_until": datetime(2027, 6, 1, tzinfo=UTC)}
    past = {"content": "Nora will fly to Rome in May 2020.", "formed_at": datetime(2020, 4, 1, tzinfo=UTC)}
    MemoryAtom.objects.filter(pk=plan.pk).update(**past, valid_until=datetime(2020, 6, 2, tzinfo=UTC))
    assert housekeeping().plans_ended == 1
    assert changes(plan)[1:] == [("edited", "date", "timezone"), ("ended", "date", "")]


def test_facts_removed_by_a_repeated_formation_are_recorded(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    again = say(ada, "s2", "2025-03-03", "I moved to Bergen today.")
    oslo = MemoryAtom.objects.get(content=OSLO, stream__stream_type="user")
    with transaction.atomic():
        assert FormMemories().rewind(again)
    assert changes(oslo) == [("superseded", "job", ""), ("reopened", "job", "")]
    assert oslo.history.newest_first()[0].actor == f"job:{again.job_id}"
    for atom in MemoryAtom.objects.filter(state="evicted"):
        assert changes(atom) == [("evicted", "job", "")]


@pytest.mark.slow
def test_undoing_all_changes_of_a_history_restores_the_first_state(life: UserProfile, service: Api) -> None:
    own = MemoryStream.objects.get(user=life, stream_type="user")
    written(life, summary=f"{OSLO} They like tea.", interests=["tea"])
    written(life, interests=["coffee"])
    for content in ("Wants short answers.", "Keeps bees."):
        note(own, content)
        fold(own)
    undo(own, requested_by="test")
    bees = own.atoms.get(content="Keeps bees.")
    edit.evict(bees, requested_by="test")
    for statement in MemoryAtom.objects.filter(state="active", attribute__in=("home", "daughter")):
        service.patch(f"facts/{statement.atom_id}", user_id="ada", content="User: I live in Turin with Ida.")
    for correction in service.get("corrections", user_id="ada").json()["corrections"]:
        service.post(f"corrections/{correction['correction_id']}/undo", user_id="ada")
    retraction = retract(Session.objects.get(session_id="on-2025-03-03"), None, reason="mistaken", requested_by="test")
    edit.restore(bees, requested_by="test")
    undo_retraction(retraction, requested_by="test")
    added = {"state": "active", "is_wrong": False, "ended_at": None, "ended_by": ""}
    for statement in MemoryAtom.objects.all():
        columns = {name: getattr(statement, name) for name in added}
        for change in statement.history.newest_first():
            columns |= {name: value for name, value in change.columns.items() if name in added}
        first = "active" if statement.position is None else "line"
        assert columns == added | {"state": first}, statement
    assert {"superseded", "corrected", "retracted", "split"} <= {
        *StatementChange.objects.values_list("action", flat=True)
    }


@pytest.mark.slow
def test_pages_of_a_history_take_a_constant_number_of_queries(bees: MemoryAtom, service: Api) -> None:
    for _ in range(4):
        edit.evict(bees, requested_by="operator:eve")
        edit.restore(bees, requested_by="operator:eve")
    first = history(service, bees, limit=3)
    rest = history(service, bees, limit=5, after=first["history"][-1]["change_id"])
    assert first["has_more"] and not rest["has_more"]
    found = [*first["history"], *rest["history"]]
    assert [one["action"] for one in found] == ["restored", "evicted"] * 4
    assert len({one["change_id"] for one in found}) == 8
    counts = []
    for limit in (1, 8):
        with CaptureQueriesContext(connection) as captured:
            history(service, bees, limit=limit)
        counts.append(len(captured))
    assert counts[0] == counts[1]


# --- corrections of earlier releases ---


def as_before(correction: Correction, atom: MemoryAtom) -> None:
    """Store the former state of a fact in its correction, as before there was a history."""
    columns = ("state", "valid_until", "ended_at", "ended_by", "end_message_ids", "is_wrong", "replaced_by_id")
    was = atom.history.get(reason=correction.reason).before
    now = MemoryAtom.objects.get(pk=atom.pk)
    [change] = [change for change in correction.changes if change["pk"] == atom.pk]
    change["was"] = {name: was.get(name, getattr(now, name)) for name in columns} | {"absorbed_in_id": None}
    correction.save()
    StatementChange.objects.all().delete()


def upgrade() -> None:
    import_module("moments_app.migrations.0116_corrections_in_history").write(apps, None)


def test_corrections_of_earlier_releases_can_be_undone(bees: MemoryAtom) -> None:
    correction = correct(bees, end_request(), requested_by="key:test")
    as_before(correction, bees)
    for _ in range(2):
        upgrade()
    correction.refresh_from_db()
    assert "was" not in correction.changes[0] and changes(bees) == [("ended", "key", "correction")]
    undo_correction(correction, requested_by="key:test")
    bees.refresh_from_db()
    assert (bees.state, bees.ended_at, bees.ended_by) == ("active", None, "")


@pytest.mark.slow
def test_a_correction_that_was_retracted_before_the_upgrade_can_be_undone(ada: UserProfile) -> None:
    say(ada, "s1", "2025-01-10", "I live in Oslo.")
    oslo = MemoryAtom.objects.get(content=OSLO, stream__stream_type="user")
    correction = correct(oslo, end_request(), requested_by="key:test")
    as_before(correction, oslo)
    retraction = retract(Session.objects.get(session_id="s1"), [0], reason="mistaken", requested_by="test")
    retraction.items.for_model(StatementChange).delete()
    for _ in range(2):
        upgrade()
    undo_retraction(retraction, requested_by="test")
    undo_correction(correction, requested_by="key:test")
    oslo.refresh_from_db()
    assert (oslo.state, oslo.ended_at, oslo.ended_by) == ("active", None, "")
