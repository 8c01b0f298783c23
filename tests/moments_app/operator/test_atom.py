"""Items of streams: searched, added, edited, moved, evicted and restored by an operator."""

import re
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import transaction
from django.test import Client
from django.urls import reverse

from moments_app.models import EmbeddingModel, Entity, FactEmbedding, Job, MemoryAtom, MemoryStream
from sessions_app.models import UserProfile
from tests.support.concurrency import on_its_own_connection, wait_until_somebody_waits
from tests.support.entities import make_entity
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.streams import fold, form, note, rewrite, shard
from tests.support.transcript import START, talk

pytestmark = pytest.mark.django_db(transaction=True)

WHEN = {"formed_at_0": "2026-03-02", "formed_at_1": "08:00:00"}


@pytest.fixture
def repairs(transactional_db: None) -> MemoryStream:
    return shard("repairs")


@pytest.fixture
def own(ada: UserProfile) -> MemoryStream:
    """The user stream of Ada."""
    return MemoryStream.objects.ensure_of_person(ada, "default")


def url(atom: MemoryAtom, verb: str) -> str:
    return reverse(f"admin:moments_app_memoryatom_{verb}", args=[atom.pk])


def last_change(client: Client, atom: MemoryAtom) -> dict[str, str]:
    """Return the form field that identifies the last change of an item that is opened now."""
    return last_change_in(client.get(change_url(atom)))


def last_change_in(answer: Any) -> dict[str, str]:
    value = re.search('name="last_change" (?:value="([0-9]+)")?', answer.content.decode())
    assert value
    return {"last_change": value[1] or ""}


class TestWriting:
    """Adding and editing items."""

    def test_an_operators_item_is_pinned_and_gets_a_vector(self, root: Client, repairs: MemoryStream) -> None:
        before = repairs.last_updated_at
        fields = {"stream": repairs.pk, "atom_type": "fact", "content": "Felt wears out."}
        answer = root.post(reverse("admin:moments_app_memoryatom_add"), fields | WHEN)
        assert answer.status_code == 302 and answer["Location"] == change_url(repairs)
        atom = repairs.atoms.get()
        assert (atom.is_pinned, atom.user_id, atom.engine) == (True, None, "")
        repairs.refresh_from_db()
        assert repairs.last_updated_at > before
        assert Job.objects.get(process="count_words").stream == repairs

    def test_the_form_says_what_related_users_are(self, root: Client, own: MemoryStream) -> None:
        shown = page(root, change_url(note(own, "Felt wears out.", "fact")))
        assert "other people whom the item is about" in shown and "Enter one per line." in shown

    def test_a_corrected_item_is_pinned_and_found_only_by_its_new_words(
        self, root: Client, repairs: MemoryStream
    ) -> None:
        atom = note(repairs, "Felt wears out.", "fact", engine="extractive")
        model = EmbeddingModel.objects.ensure("m", 3)
        FactEmbedding.objects.create(source=atom, model=model, said_at=START, vector=[1, 0, 0])
        fields = {"content": "Felt wears out in a year."}
        assert root.post(change_url(atom), fields | WHEN).status_code == 302
        atom.refresh_from_db()
        assert (atom.content, atom.is_pinned, atom.engine) == ("Felt wears out in a year.", True, "extractive")
        assert not FactEmbedding.objects.exists()

    def test_a_written_task_that_is_reworded_stays_a_task_and_is_not_pinned(
        self, root: Client, ada: UserProfile
    ) -> None:
        task = make_entity(ada, "Order it", body="Soon.", external_id="7")
        content = "The element.\r\nFrom Oslo."
        assert root.post(change_url(MemoryAtom.objects.get()), WHEN | {"content": content}).status_code == 302
        reworded = Entity.objects.get()
        kept = (reworded.title, reworded.body, reworded.kind, reworded.external_id, reworded.is_pinned)
        assert kept == ("The element.", "From Oslo.", "task", "7", False)
        assert reworded.about_kind == task.about_kind and reworded.is_listed
        opened = last_change(root, MemoryAtom.objects.get())
        assert root.post(change_url(MemoryAtom.objects.get()), WHEN | {"content": content, "is_pinned": "on"} | opened)
        assert Entity.objects.get().is_pinned
        assert sum("content" in change.before for change in task.history.all()) == 1

    def test_a_plan_ends_with_its_day_in_the_persons_time_zone(self, root: Client, own: MemoryStream) -> None:
        UserProfile.objects.update(timezone="America/New_York")
        fields = {"stream": own.pk, "atom_type": "fact", "content": "Ada will fly to Rome on 3 December 2026."}
        assert root.post(reverse("admin:moments_app_memoryatom_add"), fields | WHEN).status_code == 302
        assert own.atoms.get().valid_until == datetime(2026, 12, 4, 5, tzinfo=UTC)

    def test_pinning_locks_the_person_before_the_stream(self, root: Client, own: MemoryStream) -> None:
        atom = note(own, "Felt wears out.", "fact")
        fields = {"content": atom.content, "is_pinned": "on"} | WHEN
        other = Thread(target=on_its_own_connection, args=(root.post, change_url(atom), fields))
        with transaction.atomic():
            UserProfile.objects.locked().get(user_id="ada")
            other.start()
            wait_until_somebody_waits()
            MemoryStream.objects.select_for_update(nowait=True).get(pk=own.pk)
            MemoryAtom.objects.select_for_update(nowait=True, of=("self",)).get(pk=atom.pk)
        other.join()
        atom.refresh_from_db()
        assert atom.is_pinned

    def test_saving_without_a_change_does_not_pin(self, root: Client, repairs: MemoryStream) -> None:
        atom = note(repairs, "A jack is of wood.", "fact")
        assert root.post(change_url(atom), {"content": atom.content} | WHEN).status_code == 302
        atom.refresh_from_db()
        assert not atom.is_pinned

    def test_a_form_opened_before_a_colleagues_change_warns_and_saves_nothing(
        self, root: Client, repairs: MemoryStream
    ) -> None:
        atom = note(repairs, "Felt wears out.", "fact")
        opened = last_change(root, atom)
        editor = operator("memoryatom", "change_memoryatom")
        assert editor.post(change_url(atom), {"content": "Felt lasts a year.", **opened} | WHEN).status_code == 302
        mine = {"content": "Felt lasts."} | WHEN
        answer = root.post(change_url(atom), mine | opened)
        shown = answer.content.decode()
        assert "memoryatom-change_memoryatom changed this item in the meantime. Nothing was saved." in shown
        assert "“Felt lasts a year.”" in shown and "Felt lasts.</textarea>" in shown
        atom.refresh_from_db()
        assert atom.content == "Felt lasts a year."
        assert root.post(change_url(atom), mine | last_change_in(answer)).status_code == 302
        atom.refresh_from_db()
        assert atom.content == "Felt lasts."

    def test_a_duplicate_in_the_stream_is_an_error(self, root: Client, repairs: MemoryStream) -> None:
        note(repairs, "Felt wears out.", "fact")
        fields = {"stream": repairs.pk, "atom_type": "fact", "content": "felt WEARS out"}
        answer = root.post(reverse("admin:moments_app_memoryatom_add"), fields | WHEN)
        assert "The memory text already has an item with these words." in answer.content.decode()
        assert repairs.atoms.count() == 1

    def test_an_evicted_item_cannot_be_changed(self, root: Client, repairs: MemoryStream) -> None:
        atom = note(repairs, "Felt wears out.", "fact", state="evicted")
        assert root.post(change_url(atom), {"content": "x"} | WHEN).status_code == 403
        atom.refresh_from_db()
        assert atom.content == "Felt wears out."


class TestChanging:
    """Evicting, restoring and moving items."""

    @pytest.mark.slow
    def test_evicting_and_restoring_are_in_the_history(self, root: Client, own: MemoryStream) -> None:
        atom = note(own, "Felt wears out.", "fact")
        shown = root.post(url(atom, "evict"), follow=True).content.decode()
        assert "Contexts and searches no longer include this item" in shown and "Restore" in shown
        atom.refresh_from_db()
        assert atom.state == "evicted"
        refused = root.post(url(atom, "evict"), follow=True).content.decode()
        assert "The item was removed from memory. Restore it first." in refused
        root.post(url(atom, "restore"))
        atom.refresh_from_db()
        assert atom.state == "active"
        assert [str(entry) for entry in LogEntry.objects.order_by("pk")][-1].endswith("Restored.")

    @pytest.mark.slow
    def test_an_item_moves_between_streams_of_its_person(
        self, root: Client, own: MemoryStream, bo: UserProfile, repairs: MemoryStream
    ) -> None:
        other = MemoryStream.objects.ensure_of_person(own.user, "other")  # type: ignore[arg-type]
        bos = MemoryStream.objects.ensure_of_person(bo, "default")
        atom = note(own, "Felt wears out.", "fact")
        shown = page(root, change_url(atom))
        assert "text about ada, agent other" in shown and "about bo" not in shown and "memory repairs" not in shown
        assert (
            "Moved to the text about ada, agent other."
            in root.post(url(atom, "move"), {"stream": other.pk}, follow=True).content.decode()
        )
        atom.refresh_from_db()
        assert atom.stream == other
        for wrong in (bos.pk, repairs.pk, "x", ""):
            answer = root.post(url(atom, "move"), {"stream": wrong}, follow=True).content.decode()
            assert "Choose another memory text of the same person." in answer
        note(own, "felt wears OUT", "fact")
        assert (
            "already has an item with these words"
            in root.post(url(atom, "move"), {"stream": own.pk}, follow=True).content.decode()
        )
        atom.refresh_from_db()
        assert atom.stream == other


class TestList:
    @pytest.mark.slow
    def test_an_item_is_found_by_words_and_by_person(self, root: Client, own: MemoryStream, bo: UserProfile) -> None:
        felt, jack = note(own, "Felt wears out.", "fact"), note(own, "A jack is of wood.", "fact")
        other = note(MemoryStream.objects.ensure_of_person(bo, "default"), "Felt is green.", "fact")

        def listed(**query: object) -> list[bool]:
            shown = page(root, list_url(MemoryAtom), **query)
            return [change_url(atom) in shown for atom in (felt, jack, other)]

        assert listed(q="wearing felt") == [True, False, False]
        assert listed(q="felt") == [True, False, True]
        assert listed(q="ada") == [True, True, False]
        assert listed(user_id="bo") == [False, False, True]
        assert listed(user_id="ada", q="felt") == [True, False, False]
        assert listed(stream__id__exact=own.pk, q="felt") == [True, False, False]
        assert listed(q="\0") == [True, True, True]

    def test_a_list_of_one_stream_says_so(self, root: Client, own: MemoryStream) -> None:
        shown = page(root, list_url(MemoryAtom), stream__id__exact=own.pk, state__exact="evicted")
        assert "The list shows only items of this text." in shown and change_url(own) in shown


class TestProvenance:
    """The sources of an item."""

    @pytest.mark.usefixtures("forming")
    def test_the_page_shows_source_turns_job_prompt_and_last_recall(self, root: Client, ada: UserProfile) -> None:
        session = talk(ada, 8, text="I love kilns and I live in Turin.")
        job = form(session)
        atom = MemoryAtom.objects.earliest("pk")
        MemoryAtom.objects.update(access_count=4, last_accessed_at=START)
        shown = page(root, change_url(atom))
        assert "I love kilns" in shown and change_url(session) in shown and change_url(job) in shown
        assert "4×, last 2026-03-02" in shown

    def test_the_page_says_that_source_turns_are_gone(self, root: Client, own: MemoryStream) -> None:
        atom = note(own, "Felt wears out.", "fact", source_message_ids=[1, 2, 3])
        assert "3 of this item's 3 source turns are no longer in the transcript." in page(root, change_url(atom))

    @pytest.mark.slow
    def test_an_absorbed_item_links_to_its_line_which_can_be_evicted(self, root: Client, own: MemoryStream) -> None:
        atom = note(own, "Wants short answers.")
        job = fold(own)
        [line] = own.atoms.lines()
        shown = page(root, change_url(atom))
        assert change_url(line) in shown and "Remove from memory<" not in shown and "Restore<" not in shown
        shown = page(root, change_url(line))
        assert (
            "Remove from memory<" in shown
            and change_url(own) in shown
            and change_url(line) in page(root, change_url(job))
        )
        for verb, text in (("evict", ""), ("restore", line.content)):
            root.post(url(line, verb))
            own.refresh_from_db()
            assert own.consolidated_content == text

    def test_an_item_whose_line_was_removed_from_the_text_can_be_evicted(self, root: Client, own: MemoryStream) -> None:
        atom = note(own, "Wants short answers.")
        fold(own)
        rewrite(own, "Never call early.")
        shown = page(root, change_url(atom))
        assert "Remove from memory<" in shown and "Searches still find the item" in shown and "Move<" not in shown
        root.post(url(atom, "evict"))
        atom.refresh_from_db()
        assert atom.state == "evicted"
        root.post(url(atom, "restore"))
        atom.refresh_from_db()
        assert (atom.state, atom.merged_into) == ("active", None)


@pytest.mark.slow
def test_pages_take_a_constant_number_of_queries(root: Client, own: MemoryStream) -> None:
    session = talk(own.user, 40)  # type: ignore[arg-type]
    ids = list(session.messages.values_list("pk", flat=True))
    atom = note(own, "Felt wears out.", "fact", source_session=session, source_message_ids=ids[:1])

    def asked() -> list[int]:
        return [queries_of(root, address) for address in (list_url(MemoryAtom), change_url(atom))]

    MemoryStream.objects.ensure_for(session)
    few = asked()
    for number in range(60):
        MemoryStream.objects.ensure_for(talk(own.user, 2, session_id=f"s{number}"))  # type: ignore[arg-type]
        note(own, f"Fact {number}.", "fact", source_session=session, source_message_ids=ids)
    MemoryAtom.objects.update(source_message_ids=ids)
    assert asked() == few
    assert max(few) <= MAX_QUERIES
