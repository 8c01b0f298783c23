"""Retracting items that were written directly: they have no turns, so retracting turns doesn't reach them."""

from functools import partial
from io import StringIO
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.urls import reverse

from moments_app.models import Entity, EntityLink, Job, MemoryAtom, MemoryStream, Release, Retraction
from moments_app.provenance.retract import CannotRetract
from moments_app.provenance.retract_items import ItemSelection, preview_items, retract_items
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.release import release
from sessions_app.limited_operators import acting_as_limited_operator
from sessions_app.models import ApiKey, Application, Event, UserProfile
from sessions_app.models.application import DEFAULT
from tests.support.api import Api
from tests.support.commands import printed
from tests.support.concurrency import on_its_own_connection, wait_until_somebody_waits
from tests.support.entities import make_entity
from tests.support.jobs import work_off
from tests.support.operator import operator
from tests.support.streams import fold, fold_while, form, note, shard
from tests.support.tables import everything
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

PLANTED = "Ada sends all her money to the xyzzyplugh account."


@pytest.fixture
def stream(ada: UserProfile) -> MemoryStream:
    """A stream with a text that was consolidated before anything was planted."""
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    note(stream, "Ada keeps nine hives of bees.")
    fold(stream)
    return stream


def write(stream: MemoryStream, content: str = PLANTED, writer: str = "key:abc", **fields: Any) -> MemoryAtom:
    """Write an item directly as a key, and consolidate it."""
    atom = note(stream, content, written_by=writer, **fields)
    fold(stream)
    return atom


def text_of(stream: MemoryStream) -> str:
    stream.refresh_from_db()
    return stream.consolidated_content


def test_row_10_a_directly_written_item_is_withdrawn_with_derived_texts(stream: MemoryStream, ada: UserProfile) -> None:
    before = text_of(stream)
    atom = write(stream)
    assert "xyzzyplugh" in text_of(stream)
    made = retract_items(ada, ItemSelection([atom.atom_id]), reason="planted", requested_by="test")
    assert text_of(stream) == before
    assert made.result == {"turns": 0, "items": 1, "withdrawn": {"atoms": 1, "releases": 0, "lines": 1}}
    work_off()
    left = {name for name, rows in everything().items() if "xyzzyplugh" in str(rows)}
    assert left == {"moments_app_retracteditem"}


@pytest.mark.slow
def test_other_statements_stay_and_are_consolidated_again(stream: MemoryStream, ada: UserProfile) -> None:
    note(stream, "Ada plants a hedge of hazel.", written_by="key:other")
    atom = write(stream)
    later = write(stream, "Ada has a sister.", "key:other")
    retract_items(ada, ItemSelection(written_by="key:abc"), reason="planted", requested_by="test")
    assert not MemoryAtom.objects.filter(pk=atom.pk).exists()
    fold(stream)
    assert "hazel" in text_of(stream) and "sister" in text_of(stream) and "xyzzyplugh" not in text_of(stream)
    later.refresh_from_db()
    assert later.state == MemoryAtom.State.ABSORBED


@pytest.mark.slow
def test_undoing_restores_everything(stream: MemoryStream, ada: UserProfile) -> None:
    atom = write(stream)
    text = text_of(stream)
    kept = MemoryAtom.objects.order_by("pk").values()
    before = list(kept.all())
    made = retract_items(ada, ItemSelection([atom.atom_id]), reason="planted", requested_by="test")
    write(stream, "Ada has a sister.", "key:other")
    undo_retraction(made, requested_by="test")
    after = {row["id"]: row for row in kept.all()}
    assert [after[row["id"]] for row in before] == before and text_of(stream) == text
    assert MemoryAtom.objects.get(content="Ada has a sister.").state == MemoryAtom.State.ACTIVE  # it is waiting again
    assert not made.items.exists()
    with pytest.raises(CannotRetract, match="already undone"):
        undo_retraction(made, requested_by="test")


def test_a_release_based_on_the_item_is_revoked_and_restored_by_an_undo(ada: UserProfile) -> None:
    bees = shard("bees", "default")
    atom = bees.atoms.create(user=ada, is_candidate=True, source_user=ada, atom_type="observation", content=PLANTED)
    release(atom, "Some send money to an account.", actor="operator:root")
    made = retract_items(ada, ItemSelection([atom.atom_id]), reason="planted", requested_by="test")
    assert not Release.objects.in_effect().exists() and not MemoryAtom.objects.exists()
    undo_retraction(made, requested_by="test")
    assert Release.objects.in_effect().exists() and MemoryAtom.objects.filter(pk=atom.pk).exists()


def test_a_concurrent_consolidation_does_not_restore_it(stream: MemoryStream, ada: UserProfile) -> None:
    atom = note(stream, PLANTED, written_by="key:abc")
    Job.objects.request("consolidate", stream=stream, requested_by="test", force=True)
    retract_items(ada, ItemSelection([atom.atom_id]), reason="planted", requested_by="test")
    work_off()
    assert "xyzzyplugh" not in text_of(stream)


@pytest.mark.slow
def test_row_10_a_concurrent_consolidation_does_not_restore_a_retracted_item(
    stream: MemoryStream, ada: UserProfile
) -> None:
    before = text_of(stream)
    atom = note(stream, PLANTED, written_by="key:abc")
    named = ItemSelection([atom.atom_id])
    fold_while(stream, lambda: retract_items(ada, named, reason="planted", requested_by="test"))
    assert text_of(stream) == before
    assert not MemoryAtom.objects.filter(pk=atom.pk).exists()


@pytest.mark.slow
def test_row_10_undoing_an_earlier_retraction_does_not_restore_a_retracted_item(
    stream: MemoryStream, ada: UserProfile
) -> None:
    first = write(stream, "Ada has a sister.")
    later = write(stream)
    made = retract_items(ada, ItemSelection([first.atom_id]), reason="an error", requested_by="test")
    fold(stream)
    refused = []

    def undo() -> None:
        try:
            undo_retraction(made, requested_by="test")
        except CannotRetract as error:
            refused.append(str(error))

    other = Thread(target=on_its_own_connection, args=(undo,))
    with transaction.atomic():
        retract_items(ada, ItemSelection([later.atom_id]), reason="planted", requested_by="test")
        other.start()
        wait_until_somebody_waits()
    other.join()
    assert len(refused) == 1 and "There is a newer retraction" in refused[0]
    assert "xyzzyplugh" not in text_of(stream)


def test_row_10_a_concurrent_consolidation_of_a_shard_does_not_restore_its_release(ada: UserProfile) -> None:
    bees = shard("bees", "default")
    atom = bees.atoms.create(user=ada, is_candidate=True, source_user=ada, atom_type="observation", content=PLANTED)
    release(atom, "Some send money to an account.", actor="operator:root")
    named = ItemSelection([atom.atom_id])
    fold_while(bees, lambda: retract_items(ada, named, reason="planted", requested_by="test"))
    assert text_of(bees) == ""
    assert not MemoryAtom.objects.exists()


def test_row_10_a_concurrent_release_is_withdrawn_with_its_item(ada: UserProfile) -> None:
    bees = shard("bees", "default")
    atom = bees.atoms.create(user=ada, is_candidate=True, source_user=ada, atom_type="observation", content=PLANTED)
    retracting = partial(retract_items, ada, ItemSelection([atom.atom_id]), reason="planted", requested_by="test")
    other = Thread(target=on_its_own_connection, args=(retracting,))
    with transaction.atomic():
        release(atom, "Some send money to an account.", actor="operator:root")
        other.start()
        wait_until_somebody_waits()
    other.join()
    assert Retraction.objects.exists()
    assert not Release.objects.in_effect().exists() and not MemoryAtom.objects.exists()


def test_items_from_turns_items_of_others_and_unknown_ids_are_rejected(stream: MemoryStream, bo: UserProfile) -> None:
    formed = MemoryAtom.objects.filter(job=form(talk(bo, 12))).first()
    assert formed and formed.user
    direct = note(stream, PLANTED, written_by="key:abc")
    for named in (
        ItemSelection([formed.atom_id]),
        ItemSelection([direct.atom_id]),
        ItemSelection([uuid4()]),
        ItemSelection(written_by="key:abc"),
    ):
        for refused in (preview_items, retract_items):
            more: Any = {} if refused is preview_items else {"reason": "x", "requested_by": "test"}
            with pytest.raises(CannotRetract, match="written"):
                refused(bo, named, **more)
    assert not Retraction.objects.exists()


def goal(user: UserProfile, title: str = PLANTED, writer: str = "key:abc") -> Entity:
    """Create a goal that a key wrote."""
    return make_entity(user, title, "goal", written_by=writer)


class TestEntities:
    """Tasks, goals and problems can be written directly too."""

    def test_row_10_entities_of_a_key_are_withdrawn_with_their_links_and_restored_unchanged(
        self, ada: UserProfile
    ) -> None:
        planted, own, other = goal(ada), goal(ada, "Paint the barn", "key:own"), goal(ada, "Sell wax", "key:own")
        EntityLink.objects.create(user=ada, from_entity=planted, to_entity=own)
        EntityLink.objects.create(user=ada, from_entity=other, to_entity=planted)
        kept = Entity.objects.order_by("pk").values()
        before = list(kept.all())
        made = retract_items(ada, ItemSelection(written_by="key:abc"), reason="planted", requested_by="test")
        assert made.entity_ids == [planted.entity_id] and made.item_ids == []
        assert made.result["items"] == 1 and made.result["withdrawn"]["entity_links"] == 2
        left = {name for name, rows in everything().items() if "xyzzyplugh" in str(rows)}
        assert left == {"moments_app_retracteditem"} and not EntityLink.objects.exists()
        other.delete()
        undo_retraction(made, requested_by="test")
        assert list(kept.all()) == before[:2]
        assert [link.to_entity for link in EntityLink.objects.all()] == [own]  # the link to the deleted one stays away
        assert Entity.objects.matching("xyzzyplugh").get() == planted

    def test_row_9_entities_of_another_person_look_unknown(self, ada: UserProfile, bo: UserProfile) -> None:
        bos = goal(bo)
        for named in (ItemSelection(entity_ids=[bos.entity_id]), ItemSelection(written_by="key:abc")):
            with pytest.raises(CannotRetract, match="written"):
                retract_items(ada, named, reason="x", requested_by="test")
        assert Entity.objects.get() == bos

    @pytest.mark.slow
    def test_over_rest_entities_name_their_writer_and_can_be_retracted_by_writer(
        self, service: Api, ada: UserProfile
    ) -> None:
        made = service.post("entities", user_id="ada", kind="task", title=PLANTED).json()
        writer = ApiKey.objects.get(name="service").actor
        assert made["written_by"] == writer
        asked = {"user_id": "ada", "entity_ids": [made["entity_id"]], "reason": "planted"}
        assert service.post("retractions", **asked, preview=True).json()["withdrawn"]["entities"] == 1
        retraction = service.post("retractions", **asked).json()
        assert retraction["entity_ids"] == [made["entity_id"]] and retraction["stream_id"] is None
        assert service.get("entities", user_id="ada").json()["entities"] == []
        service.post(f"retractions/{retraction['retraction_id']}/undo", user_id="ada")
        assert service.get("entities", user_id="ada").json()["total"] == 1

    @pytest.mark.slow
    def test_an_operator_retracts_an_entity_from_its_page(self, ada: UserProfile) -> None:
        planted, root = goal(ada), operator()
        url = reverse("admin:moments_app_entity_retract", args=[planted.pk])
        shown = root.get(reverse("admin:moments_app_entity_change", args=[planted.pk])).content.decode()
        assert url in shown and "key abc" in shown
        assert "Retract 1 item<" in root.get(url).content.decode()
        shown = root.post(url, {"reason": "planted"}, follow=True).content.decode()
        assert "1 item is retracted" in shown and not Entity.objects.exists()

    def test_the_command_retracts_an_entity_by_id(self, ada: UserProfile) -> None:
        call_command("retract", "ada", "--entity", str(goal(ada).entity_id), "--reason", "x", stdout=StringIO())
        assert not Entity.objects.exists()


class TestShards:
    """Shared items of a shard, which belong to no person."""

    def written(self, content: str = PLANTED, writer: str = "key:abc") -> MemoryAtom:
        bees = MemoryStream.objects.filter(name="bees").first() or shard("bees", "default")
        return note(bees, content, written_by=writer)

    @pytest.mark.slow
    def test_row_10_a_shared_item_is_withdrawn_with_derived_texts_and_restored(self, ada: UserProfile) -> None:
        own = self.written("Bees like linden.", "key:own")
        bees = own.stream
        fold(bees)
        before = text_of(bees)
        atom = self.written()
        fold(bees)
        with_it = text_of(bees)
        assert "xyzzyplugh" in with_it
        made = retract_items(bees, ItemSelection([atom.atom_id]), reason="planted", requested_by="test")
        assert (made.user, made.stream, text_of(bees)) == (None, bees, before)
        work_off()
        left = {name for name, rows in everything().items() if "xyzzyplugh" in str(rows)}
        assert left == {"moments_app_retracteditem"}
        undo_retraction(made, requested_by="test")
        assert text_of(bees) == with_it and MemoryAtom.objects.filter(pk=atom.pk).exists()

    def test_candidates_releases_and_items_of_other_shards_are_rejected(self, ada: UserProfile) -> None:
        bees, wax = shard("bees", "default"), shard("wax", "default")
        mine = bees.atoms.create(user=ada, is_candidate=True, source_user=ada, atom_type="fact", content=PLANTED)
        released = release(mine, "Some send money to an account.", actor="operator:root").atom
        others = note(wax, "Wax melts.", written_by="key:abc")
        assert released
        for atom in (mine, released, others):
            with pytest.raises(CannotRetract, match="written"):
                retract_items(bees, ItemSelection([atom.atom_id]), reason="x", requested_by="test")

    @pytest.mark.slow
    def test_an_admin_key_of_its_application_retracts_a_shards_item_over_rest(self, service: Api, as_ada: Api) -> None:
        atom = self.written()
        path = f"streams/{atom.stream.stream_id}/retractions"
        asked: dict[str, Any] = {"atom_ids": [str(atom.atom_id)], "reason": "planted"}
        elsewhere = Application.objects.create(name="elsewhere")
        foreign = Api(ApiKey.objects.issue("foreign", scope="admin", application=elsewhere.pk)[1])
        assert [as_ada.post(path, **asked).status_code, foreign.post(path, **asked).status_code] == [403, 404]
        assert service.post(path, reason="x").json()["errors"][0]["code"] == "contradictory"
        assert service.post(path, **asked, preview=True).json()["items"] == 1
        made = service.post(path, **asked).json()
        assert made["user_id"] is None and made["stream_id"] == str(atom.stream.stream_id)
        assert [one["retraction_id"] for one in service.get(path).json()["retractions"]] == [made["retraction_id"]]
        assert service.get("retractions", user_id="nobody").json()["total"] == 0
        undo = f"{made['retraction_id']}/undo"
        assert service.post(f"retractions/{undo}", user_id="nobody").status_code == 404
        assert foreign.post(f"{path}/{undo}").status_code == 404
        assert service.post(f"{path}/{undo}").json()["undone_at"] and MemoryAtom.objects.filter(pk=atom.pk).exists()

    @pytest.mark.slow
    def test_an_operator_retracts_a_shards_item_and_undoes_it(self) -> None:
        atom = self.written()
        root, url = operator(), reverse("admin:moments_app_memoryatom_retract", args=[atom.pk])
        page = reverse("admin:moments_app_memoryatom_change", args=[atom.pk])
        assert url in root.get(page).content.decode()
        assert "for everyone in the shared memory bees" in root.get(url).content.decode()
        shown = root.post(url, {"reason": "planted", "all_of_writer": "1"}, follow=True).content.decode()
        assert "1 item is retracted" in shown and not MemoryAtom.objects.exists()
        [made] = Retraction.objects.all()
        assert "shared memory bees" in root.get(reverse("admin:moments_app_retraction_changelist")).content.decode()
        root.post(reverse("admin:moments_app_retraction_undo", args=[made.pk]))
        assert MemoryAtom.objects.exists()

    def test_row_35_an_operator_of_another_application_does_not_see_the_retraction(self) -> None:
        made = retract_items(
            self.written().stream, ItemSelection(written_by="key:abc"), reason="planted", requested_by="test"
        )
        there, seen = Application.objects.create(name="there"), []
        for application in (there.pk, DEFAULT):
            with acting_as_limited_operator(1, [application]):
                seen.append((Retraction.objects.count(), made.items.count()))
        assert seen == [(0, 0), (1, 3)]  # the statement, its history and its stream


class TestRest:
    """Over REST, items of a writer can be listed, previewed, retracted and restored."""

    def written(self, api: Api, *contents: str) -> list[dict[str, Any]]:
        [stream] = [one for one in api.get("streams", user_id="ada").json()["streams"] if one["stream_type"] == "user"]
        path = f"streams/{stream['stream_id']}/atoms"
        return [api.post(path, user_id="ada", atom_type="fact", content=content).json() for content in contents]

    @pytest.mark.slow
    def test_row_10_all_items_of_a_key_can_be_retracted(self, service: Api, stream: MemoryStream) -> None:
        [first, second] = self.written(service, PLANTED, "Ada likes tea.")
        [other] = self.written(Api(ApiKey.objects.issue("other")[1]), "Ada has a cat.")
        writer = ApiKey.objects.get(name="service").actor
        assert first["written_by"] == second["written_by"] == writer != other["written_by"]
        asked = {"user_id": "ada", "written_by": writer, "reason": "planted"}
        preview = service.post("retractions", **asked, preview=True)
        assert preview.status_code == 200 and preview.json()["items"] == 2
        made = service.post("retractions", **asked)
        assert made.status_code == 201 and made.json()["session_id"] is None
        assert set(made.json()["atom_ids"]) == {first["atom_id"], second["atom_id"]}
        facts = service.get(f"streams/{stream.stream_id}/atoms", user_id="ada", atom_type="fact").json()["atoms"]
        assert [fact["content"] for fact in facts] == ["Ada has a cat."]
        [event] = Event.objects.filter(type="memory_retracted")
        assert event.payload["items"] == 2
        assert service.post(f"retractions/{made.json()['retraction_id']}/undo", user_id="ada").status_code == 200
        facts = service.get(f"streams/{stream.stream_id}/atoms", user_id="ada", atom_type="fact").json()["atoms"]
        assert len(facts) == 3

    @pytest.mark.parametrize(
        "named",
        [{}, {"session_id": "s1", "written_by": "key:x"}, {"atom_ids": [str(uuid4())], "sequences": [1]}],
    )
    def test_a_request_must_name_exactly_one_kind_of_target(
        self, service: Api, ada: UserProfile, named: dict[str, Any]
    ) -> None:
        answer = service.post("retractions", user_id="ada", reason="x", **named)
        assert answer.status_code == 400 and answer.json()["errors"][0]["code"] == "contradictory"

    def test_row_9_items_of_another_person_look_unknown(self, as_ada: Api, bo: UserProfile) -> None:
        bos = note(MemoryStream.objects.ensure_of_person(bo, "default"), PLANTED, written_by="key:abc")
        told = [
            as_ada.post("retractions", reason="x", atom_ids=[str(atom_id)])
            .json()["errors"][0]["detail"]
            .replace(str(atom_id), "…")
            for atom_id in (bos.atom_id, uuid4())
        ]
        assert told == [told[0]] * 2 and "…" in told[0]
        assert MemoryAtom.objects.filter(pk=bos.pk).exists()


class TestOperator:
    """In the admin, from the page of an item."""

    @pytest.mark.slow
    def test_one_item_or_all_items_of_its_writer_are_previewed_and_retracted(self, stream: MemoryStream) -> None:
        atom = write(stream)
        write(stream, "Ada likes tea.")
        root, url = operator(), reverse("admin:moments_app_memoryatom_retract", args=[atom.pk])
        page = reverse("admin:moments_app_memoryatom_change", args=[atom.pk])
        shown = root.get(page).content.decode()
        assert url in shown and "key abc" in shown
        assert "Retract 1 item<" in root.get(url).content.decode()
        assert "Retract 2 items" in root.get(url, {"all_of_writer": 1}).content.decode()
        assert "This field is required." in root.post(url, {"reason": " "}).content.decode()
        shown = root.post(url, {"reason": "planted", "all_of_writer": "1"}, follow=True).content.decode()
        assert "2 items are retracted" in shown and "xyzzyplugh" in shown and "xyzzyplugh" not in text_of(stream)
        [made] = Retraction.objects.all()
        assert made.requested_by == "operator:root"
        undo = reverse("admin:moments_app_retraction_undo", args=[made.pk])
        assert "is undone" in root.post(undo, follow=True).content.decode()
        assert "xyzzyplugh" in text_of(stream)

    def test_an_operators_item_names_its_writer(self, stream: MemoryStream) -> None:
        written = {"stream": stream.pk, "atom_type": "fact", "content": "Ada likes tea.", "formed_at_0": "2026-03-02"}
        operator().post(reverse("admin:moments_app_memoryatom_add"), written | {"formed_at_1": "10:00"})
        assert MemoryAtom.objects.get(content="Ada likes tea.").written_by == "operator:root"

    @pytest.mark.slow
    def test_an_item_from_turns_is_rejected(self, ada: UserProfile) -> None:
        atom = MemoryAtom.objects.filter(job=form(talk(ada, 12))).first()
        assert atom
        url = reverse("admin:moments_app_memoryatom_retract", args=[atom.pk])
        root = operator()
        for shown in (root.get(url), root.post(url, {"reason": "planted"})):
            assert "was written directly" in shown.content.decode()
        assert not Retraction.objects.exists()
        assert url not in root.get(reverse("admin:moments_app_memoryatom_change", args=[atom.pk])).content.decode()


class TestCommand:
    def test_the_command_previews_and_retracts(self, stream: MemoryStream) -> None:
        atom = write(stream)
        assert "Would retract 1 items" in printed("retract", "ada", "--item", str(atom.atom_id), "--dry-run")
        assert "'items': 1" in printed("retract", "ada", "--written-by", "key:abc", "--reason", "planted")
        assert "xyzzyplugh" not in text_of(stream)

    @pytest.mark.parametrize(
        ("args", "told"),
        [
            (("nobody", "--written-by", "key:abc", "--reason", "x"), "no user 'nobody'"),
            (("ada", "s1", "--written-by", "key:abc", "--reason", "x"), "but no session"),
            (("--written-by", "key:abc", "--reason", "x"), "name a user"),
            (("ada", "--item", "x", "--reason", "x"), "not the id of an item"),
            (("ada", "--written-by", "key:abc"), "--reason"),
        ],
    )
    def test_errors_of_the_command_say_what_is_wrong(
        self, stream: MemoryStream, args: tuple[str, ...], told: str
    ) -> None:
        with pytest.raises(CommandError, match=told):
            printed("retract", *args)


@pytest.mark.slow
def test_an_undo_makes_items_of_a_missing_line_wait(stream: MemoryStream, ada: UserProfile) -> None:
    note(stream, "Ada owns one anvil.")
    write(stream)
    made = retract_items(ada, ItemSelection(written_by="key:abc"), reason="stolen", requested_by="test")
    item = made.items.rewritten(MemoryAtom).filter(data__state="absorbed").first()
    assert item is not None
    item.data |= {"merged_into": 999_999_999, "replaced_by": 999_999_999}
    item.save()
    undo_retraction(made, requested_by="test")
    kept = MemoryAtom.objects.get(pk=item.object_pk)
    assert (kept.state, kept.merged_into_id, kept.replaced_by_id) == ("active", None, None)


def test_an_undo_restores_one_of_two_items_with_the_same_words(stream: MemoryStream, ada: UserProfile) -> None:
    note(stream, PLANTED, written_by="key:abc", state="evicted")
    note(stream, PLANTED, written_by="key:abc")
    made = retract_items(ada, ItemSelection(written_by="key:abc"), reason="stolen", requested_by="test")
    for item in made.items.withdrawn(MemoryAtom).filter(data__state="evicted"):
        item.data["state"] = "active"
        item.save()
    undo_retraction(made, requested_by="test")
    assert sorted(stream.atoms.filter(content=PLANTED).values_list("state", flat=True)) == ["active", "evicted"]
