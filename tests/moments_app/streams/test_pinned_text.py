"""The pinned text of a stream is a statement: it can be found, corrected, retracted and exported like any other."""

from importlib import import_module

import pytest
from django.apps import apps

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.provenance.correct import correct, replacement_request, undo_correction
from moments_app.provenance.retract_items import ItemSelection, retract_items
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.edit import pin_text
from sessions_app.models import UserProfile
from tests.support.api import Api
from tests.support.operator import operator
from tests.support.pages import change_url
from tests.support.streams import fold, note, shard
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

TEXT = "Never call before noon.\nAnswer in two sentences."


@pytest.fixture
def own(ada: UserProfile) -> MemoryStream:
    """The user stream of Ada."""
    talk(ada, 2)
    return MemoryStream.objects.ensure_of_person(ada, "default")


def pinned(stream: MemoryStream) -> str:
    stream.refresh_from_db()
    return stream.pinned_content


def context(service: Api, user_id: str = "ada") -> str:
    return str(service.get("memory/context", user_id=user_id, session_id="s1", layers="user").json()["context"])


def test_a_pinned_text_is_one_statement_and_the_next_replaces_it(own: MemoryStream, service: Api) -> None:
    for text in (TEXT, "Never call."):
        answer = service.patch(f"streams/{own.stream_id}", user_id="ada", pinned_content=text)
        assert answer.json()["pinned_content"] == text == pinned(own)
    before, now = own.atoms.in_order()
    assert (before.content, before.state, now.content, now.is_pinned) == (TEXT, "ended", "Never call.", True)
    assert [change.action for change in before.history.all()] == ["ended"]
    assert now.written_by.startswith("key:")
    assert service.patch(f"streams/{own.stream_id}", user_id="ada", pinned_content="").status_code == 200
    assert pinned(own) == "" and not own.atoms.active().exists()


def test_an_operator_writes_it_on_the_streams_page(own: MemoryStream) -> None:
    from django.forms import model_to_dict

    fields = {name: value for name, value in model_to_dict(own).items() if value is not None}
    assert operator().post(change_url(own), fields | {"pinned_content": TEXT}).status_code == 302
    assert pinned(own) == TEXT and own.atoms.get().written_by.startswith("operator:")


def test_each_line_is_in_a_context_once_and_not_in_the_profile(
    own: MemoryStream, ada: UserProfile, service: Api
) -> None:
    pin_text(own, TEXT, actor="operator:eve")
    note(own, "Ada likes tea.")
    fold(own)
    assert pinned(own) == TEXT
    ada.refresh_from_db()
    assert "noon" not in ada.summary
    assert [context(service).count(line) for line in TEXT.split("\n")] == [1, 1]


def test_users_of_a_shard_see_its_pinned_text(ada: UserProfile, own: MemoryStream, service: Api) -> None:
    made = service.post("streams", user_id="ada", name="kilns", extraction_prompt="Kilns.", pinned_content=TEXT).json()
    service.patch(f"streams/{made['stream_id']}", user_id="ada", pinned_content="Be kind.")
    kilns = MemoryStream.objects.get(name="kilns")
    assert pinned(kilns) == "Be kind."
    assert [(atom.content, atom.user_id) for atom in kilns.atoms.active()] == [("Be kind.", None)]


def test_two_shards_have_separate_pinned_texts(ada: UserProfile) -> None:
    kilns, looms = shard("kilns", pinned_content="Be kind."), shard("looms", pinned_content="Be brief.")
    pin_text(kilns, "", actor="operator:eve")
    assert (pinned(kilns), pinned(looms)) == ("", "Be brief.")


def test_a_correction_rewords_only_the_sentence_that_says_it(own: MemoryStream, ada: UserProfile) -> None:
    pin_text(own, "Maya is their daughter.\nAnswer in two sentences.", actor="operator:eve")
    fact = note(own, "Maya is their daughter.", "fact")
    correction = correct(fact, replacement_request("Mia is their daughter."), requested_by="key:test")
    assert pinned(own) == "Mia is their daughter.\nAnswer in two sentences."
    undo_correction(correction, requested_by="key:test")
    assert pinned(own) == "Maya is their daughter.\nAnswer in two sentences."


def test_a_pinned_text_is_retracted_and_restored(own: MemoryStream, ada: UserProfile) -> None:
    pin_text(own, TEXT, actor="key:stolen")
    retraction = retract_items(ada, ItemSelection(written_by="key:stolen"), reason="stolen", requested_by="test")
    assert pinned(own) == ""
    undo_retraction(retraction, requested_by="test")
    assert pinned(own) == TEXT


def test_pinned_texts_of_earlier_releases_become_statements_once(own: MemoryStream) -> None:
    kilns = shard("kilns")
    MemoryStream.objects.filter(pk__in=[own.pk, kilns.pk]).update(pinned_content=TEXT)
    note(kilns, TEXT)
    for _ in range(2):
        import_module("moments_app.migrations.0117_pinned_texts_are_statements").write(apps, None)
    for stream in (own, kilns):
        stream.refresh()
        assert pinned(stream) == TEXT
        assert MemoryAtom.objects.get(stream=stream).is_pinned
