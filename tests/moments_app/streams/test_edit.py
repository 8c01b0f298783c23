"""An operator evicts, restores and moves single items, each at once and without loss."""

from datetime import timedelta

import pytest
from django.db import transaction

from moments_app.context.assemble import ContextRequest, preview
from moments_app.jobs.process import InputChanged
from moments_app.models import EmbeddingModel, FactEmbedding, Job, MemoryAtom, MemoryStream
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from moments_app.streams.consolidate import Consolidate, ConsolidatedText, ConsolidationInput, Line
from moments_app.streams.edit import CannotCurate, evict, move, restore
from sessions_app.models import Session, UserProfile
from tests.support.streams import note, shard
from tests.support.transcript import START, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(ada: UserProfile) -> Session:
    session = talk(ada, 2)
    MemoryStream.objects.ensure_for(session)
    return session


@pytest.fixture
def own(session: Session) -> MemoryStream:
    """The user stream of Ada."""
    return MemoryStream.objects.get(stream_type="user")


@pytest.fixture
def of_session(session: Session) -> MemoryStream:
    return MemoryStream.objects.get(stream_type="session")


def context_of(session: Session) -> str:
    user = UserProfile.objects.get(pk=session.user_id)
    envelope = preview(user, session.session_id, ContextRequest())
    assert envelope is not None
    return str(envelope.context)


def found(user: UserProfile, query: str) -> list[str]:
    return [result.content for result in recall(user, "default", RecallRequest(query, ("fact",), mode="text"))]


def vector_of(atom: MemoryAtom) -> None:
    model = EmbeddingModel.objects.ensure("m", 3)
    FactEmbedding.objects.create(source=atom, model=model, user_id=atom.user_id, said_at=START, vector=[1, 0, 0])


class TestEvict:
    """Evicting an item from memory keeps its row."""

    def test_an_evicted_item_is_in_no_context_and_no_search(
        self, ada: UserProfile, session: Session, own: MemoryStream
    ) -> None:
        atom = note(own, "Felt wears out.", "fact", source_session=session, source_message_ids=[1])
        vector_of(atom)
        assert "Felt wears out." in context_of(session) and found(ada, "felt") == ["Felt wears out."]
        evict(atom, requested_by="test")
        assert "Felt wears out." not in context_of(session) and found(ada, "felt") == []
        assert not FactEmbedding.objects.exists()
        atom.refresh_from_db()
        assert (atom.state, atom.source_session, atom.source_message_ids) == ("evicted", session, [1])

    def test_an_eviction_restarts_a_running_consolidation(self, own: MemoryStream) -> None:
        atom = note(own, "Wants short answers.")
        asked = Job.objects.request(Consolidate.name, stream=own, requested_by="test", force=True)
        job = Job.objects.claim(asked.job_id)
        assert job is not None
        input = Consolidate().claim(job)
        assert isinstance(input, ConsolidationInput)
        evict(atom, requested_by="test")
        with pytest.raises(InputChanged), transaction.atomic():
            text = ConsolidatedText([Line("Wants short answers.", tuple(input.atom_ids))], engine="test")
            Consolidate().commit(job, input, text)
        own.refresh_from_db()
        assert own.consolidated_content == ""

    def test_an_item_cannot_be_evicted_twice(self, own: MemoryStream) -> None:
        atom = note(own, "Felt wears out.", "fact")
        evict(atom, requested_by="test")
        with pytest.raises(CannotCurate, match="was removed from memory"):
            evict(atom, requested_by="test")

    def test_the_error_says_that_an_item_was_deleted(self, own: MemoryStream) -> None:
        atom = note(own, "Felt wears out.", "fact")
        MemoryAtom.objects.all().delete()
        with pytest.raises(CannotCurate, match="in the meantime"):
            evict(atom, requested_by="test")


class TestRestore:
    """Restoring an evicted item."""

    def test_a_restored_item_is_in_contexts_and_searches(
        self, ada: UserProfile, session: Session, own: MemoryStream
    ) -> None:
        atom = note(own, "Felt wears out.", "fact", state="evicted")
        assert "Felt wears out." not in context_of(session)
        restore(atom, requested_by="test")
        assert "Felt wears out." in context_of(session) and found(ada, "felt") == ["Felt wears out."]

    def test_an_item_cannot_be_restored_if_it_was_added_again(self, own: MemoryStream) -> None:
        atom = note(own, "Felt wears out.", "fact", state="evicted")
        note(own, "felt WEARS out", "fact")
        with pytest.raises(CannotCurate, match="already has an item with these words"):
            restore(atom, requested_by="test")
        atom.refresh_from_db()
        assert atom.state == "evicted"

    def test_a_restored_item_displaces_no_other(self, own: MemoryStream) -> None:
        MemoryStream.objects.filter(pk=own.pk).update(fact_buffer_max=1)
        newer = note(own, "A jack is of wood.", "fact", formed_at=START + timedelta(days=1))
        older = note(own, "Felt wears out.", "fact", formed_at=START, state="evicted")
        restore(older, requested_by="test")
        assert set(own.atoms.active()) == {newer, older}


class TestMove:
    """Moving an item to another stream of the same person."""

    def test_a_moved_item_is_only_in_its_new_stream(
        self, ada: UserProfile, session: Session, own: MemoryStream, of_session: MemoryStream
    ) -> None:
        atom = note(of_session, "Felt wears out.", "fact", access_count=3)
        before = [MemoryStream.objects.get(pk=stream.pk).last_updated_at for stream in (own, of_session)]
        move(atom, own, requested_by="test")
        atom.refresh_from_db()
        assert (atom.stream, atom.user, atom.access_count) == (own, ada, 3)
        after = [MemoryStream.objects.get(pk=stream.pk).last_updated_at for stream in (own, of_session)]
        assert all(now > then for now, then in zip(after, before, strict=True))
        assert found(ada, "felt") == ["Felt wears out."]
        assert Job.objects.filter(process="count_words", user=ada).exists()

    def test_other_sessions_get_an_item_after_a_move_to_the_user_stream(
        self, ada: UserProfile, own: MemoryStream, of_session: MemoryStream
    ) -> None:
        other = talk(ada, 2, session_id="other")
        atom = note(of_session, "Felt wears out.", "fact")
        assert "Felt wears out." not in context_of(other)
        move(atom, own, requested_by="test")
        assert "Felt wears out." in context_of(other)

    def test_a_move_that_reaches_the_threshold_requests_a_consolidation(
        self, own: MemoryStream, of_session: MemoryStream
    ) -> None:
        for number in range(9):
            note(own, f"Observation {number}.")
        move(note(of_session, "Wants short answers."), own, requested_by="operator:x")
        job = Job.objects.get(process="consolidate")
        assert (job.stream, job.requested_by) == (own, "operator:x")

    def test_an_item_cannot_be_moved_to_a_stream_that_has_its_text(
        self, own: MemoryStream, of_session: MemoryStream
    ) -> None:
        note(own, "Felt wears out.", "fact")
        atom = note(of_session, "felt wears OUT", "fact")
        with pytest.raises(CannotCurate, match="already has an item with these words"):
            move(atom, own, requested_by="test")
        atom.refresh_from_db()
        assert atom.stream == of_session

    def test_an_item_cannot_be_moved_to_another_person(self, bo: UserProfile, own: MemoryStream) -> None:
        atom = note(own, "Felt wears out.", "fact")
        for stream in (MemoryStream.objects.ensure_of_person(bo, "default"), shard("repairs")):
            with pytest.raises(CannotCurate, match="belongs to one person"):
                move(atom, stream, requested_by="test")
        with pytest.raises(CannotCurate, match="is already in this memory text"):
            move(atom, own, requested_by="test")

    def test_a_shards_item_moves_to_another_shard_and_is_found_by_its_agent(self, ada: UserProfile) -> None:
        talk(ada, 2)
        atom = note(shard("repairs", "other"), "Felt wears out.", "fact", source_user=ada)
        assert found(ada, "felt") == []
        move(atom, shard("repairs", "default"), requested_by="test")
        assert found(ada, "felt") == ["Felt wears out."]
        atom.refresh_from_db()
        assert atom.source_user == ada
