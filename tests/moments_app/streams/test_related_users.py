"""An item names the people it is about. That doesn't show it to them, but it is erased with them."""

import json
from pathlib import Path

import pytest
from django.db import IntegrityError, connection, transaction

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.release import release
from sessions_app.models import Application, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import import_user
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.jobs import work_off
from tests.support.reach import reached
from tests.support.streams import candidate, note, shard
from tests.support.tables import everything

pytestmark = pytest.mark.django_db(transaction=True)

MARKER = "quincejam"


@pytest.fixture
def atom(ada: UserProfile, bo: UserProfile) -> MemoryAtom:
    """A fact of Ada about Bo."""
    session = append(ada, "s1", [NewMessage("user", f"Bo is a patient in the clinic for {MARKER}.")]).session
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    turns = list(session.messages.values_list("pk", flat=True))
    about = {"related_users": ["bo"], "source_session": session, "source_message_ids": turns}
    return note(stream, f"Bo is a patient in the clinic for {MARKER}.", "fact", **about)


@pytest.mark.slow
def test_row_9_a_person_named_in_an_item_cannot_see_it_over_any_interface(
    service: Api, ada: UserProfile, bo: UserProfile, atom: MemoryAtom
) -> None:
    work_off()
    for name, text in reached(service, "ada").items():
        assert MARKER in text or name in ("streams", "lines", "atoms"), name
    for name, text in reached(service, "bo").items():
        assert MARKER not in text, name
    address = f"streams/{atom.stream.stream_id}/atoms"
    assert service.get(address, user_id="bo", related_user="bo").status_code == 404
    assert service.get(address, user_id="ada", related_user="bo").json()["total"] == 1
    assert service.get(address, user_id="ada", related_user="cy").json()["total"] == 0


def test_row_9_an_unfiltered_query_does_not_see_items_that_name_the_person(
    ada: UserProfile, bo: UserProfile, atom: MemoryAtom
) -> None:
    learned = candidate(ada, shard("kilns"), f"Bo fears {MARKER}.")
    MemoryAtom.objects.filter(pk=learned.pk).update(related_users=["bo"])
    for person, number in (("ada", 2), ("bo", 0), (None, 0)):
        with acting_for(person, application=DEFAULT), connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM moments_app_memoryatom WHERE related_users @> '{bo}'")
            assert cursor.fetchone() == (number,)


@pytest.mark.slow
def test_row_24_a_shared_item_names_no_people(service: Api, ada: UserProfile, bo: UserProfile) -> None:
    kilns = shard("kilns", "default")
    body = {"user_id": "ada", "atom_type": "fact", "content": "Kilns are hot.", "related_users": ["bo"]}
    refused = service.post(f"streams/{kilns.stream_id}/atoms", **body)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "names_people")
    with pytest.raises(IntegrityError, match="atom_shared_names_nobody"), transaction.atomic():
        note(kilns, "Kilns are hot.", related_users=["bo"])
    learned = candidate(ada, kilns, f"Ask before you order {MARKER}.")
    MemoryAtom.objects.filter(pk=learned.pk).update(related_users=["bo"])
    made = release(MemoryAtom.objects.get(pk=learned.pk), "Orders need a question first.", actor="operator:eve")
    assert made.atom is not None and made.atom.related_users == []
    assert "Orders need a question" in reached(service, "bo")["context"]


def test_a_related_user_is_written_and_read_over_rest(service: Api, ada: UserProfile) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    address, body = f"streams/{stream.stream_id}/atoms", {"user_id": "ada", "atom_type": "fact", "content": "Tea."}
    assert service.post(address, **body, related_users=["bo", "cy"]).json()["related_users"] == ["bo", "cy"]
    for wrong in ("bo", [""], ["a/b"], ["x"] * 51, [7]):
        assert service.post(address, **body, related_users=wrong).status_code == 400


@pytest.mark.slow
def test_row_11_an_erasure_removes_the_person_from_items_of_others(
    ada: UserProfile, bo: UserProfile, atom: MemoryAtom
) -> None:
    other = Application.objects.create(name="other")
    cy = UserProfile.objects.ensure("cy", other.pk)
    elsewhere = note(MemoryStream.objects.ensure_of_person(cy, ""), "Another Bo.", related_users=["bo", "dee"])
    withdrawn = note(atom.stream, "Withdrawn.", related_users=["bo", "cy"], source_session=atom.source_session)
    MemoryAtom.objects.filter(pk=withdrawn.pk).update(source_message_ids=atom.source_message_ids)
    assert atom.source_session is not None
    made = retract(atom.source_session, None, reason="Planted.", requested_by="test")
    kept = note(atom.stream, "Kept.", related_users=["cy", "bo"])
    erase_user("bo", application=DEFAULT, actor="test")
    kept.refresh_from_db()
    elsewhere.refresh_from_db()
    assert (kept.related_users, elsewhere.related_users) == (["cy"], ["bo", "dee"])
    undo_retraction(made, requested_by="test")
    found = dict(MemoryAtom.objects.filter(user=ada).values_list("content", "related_users"))
    assert found == {"Kept.": ["cy"], "Withdrawn.": ["cy"], atom.content: []}
    assert '"bo"' not in json.dumps(everything()["moments_app_retracteditem"])


def test_an_import_restores_related_users(ada: UserProfile, atom: MemoryAtom, tmp_path: Path) -> None:
    path = tmp_path / "ada.zip"
    with path.open("wb") as file:
        export_user("ada", file, application=DEFAULT)
    erase_user("ada", application=DEFAULT, actor="test")
    import_user(path, application=DEFAULT)
    assert MemoryAtom.objects.get().related_users == ["bo"]
