"""Row 31: an observation is absorbed only if the remaining text carries it. Otherwise it waits and can be found."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.models.atom import content_hash
from moments_app.provenance.retract import retract
from moments_app.provenance.retract_items import ItemSelection, retract_items
from moments_app.provenance.undo import undo_retraction
from moments_app.streams import edit
from moments_app.streams.add_atoms import add_statements, is_due
from moments_app.streams.texts import undo, write_text
from sessions_app.imports.import_sessions import Statement
from sessions_app.models import Session, UserProfile
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.lives import OSLO, say
from tests.support.openai_server import OpenAIServer, labeled
from tests.support.streams import fold, note, rewrite
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

THINGS = (
    "anvil bellows chisel dowel easel felt gasket hinge inkwell jigsaw kiln lathe mallet nozzle oboe pliers quill rasp "
    "saddle trowel"
).split()


@pytest.fixture
def session(ada: UserProfile) -> Session:
    return talk(ada, 2)


@pytest.fixture
def stream(session: Session) -> MemoryStream:
    """The user stream of Ada."""
    MemoryStream.objects.ensure_for(session)
    return MemoryStream.objects.get(stream_type="user")


def note_all(stream: MemoryStream, things: list[str]) -> None:
    for thing in things:
        note(stream, f"Owns one {thing}.")


def answering(change: Callable[[list[dict[str, str]]], list[dict[str, Any]]]) -> behave.Behaviour:
    """Return a model behavior that derives its lines from the request."""

    def behaviour(handler: Any, body: dict[str, Any]) -> None:
        lines = change(labeled(body))
        behave.content(json.dumps({"lines": lines}))(handler, body)

    return behaviour


def said(text: str, *labels: str) -> dict[str, Any]:
    return {"text": text, "carries": list(labels)}


def in_text(stream: MemoryStream) -> set[str]:
    """Return the content that the lines of the text carry."""
    carried = {pk for line in stream.atoms.lines() for pk in line.carries}
    return set(MemoryAtom.objects.filter(pk__in=carried).values_list("content", flat=True))


def waiting(stream: MemoryStream) -> set[str]:
    return set(stream.atoms.waiting().values_list("content", flat=True))


def absorbed(stream: MemoryStream) -> set[str]:
    return set(stream.atoms.filter(state="absorbed").values_list("content", flat=True))


def found(api: Api, query: str) -> list[str]:
    body = {"user_id": "ada", "query": query, "kinds": ["fact"], "mode": "text"}
    return [result["content"] for result in api.post("memory/search", body).json()["results"]]


def assert_nothing_is_lost(stream: MemoryStream, api: Api) -> None:
    """Check that each thing is either in the text or waiting, and can be found."""
    owned = {f"Owns one {thing}." for thing in THINGS}
    assert in_text(stream) == absorbed(stream)
    assert absorbed(stream) | waiting(stream) == owned
    assert not absorbed(stream) & waiting(stream)
    for thing in THINGS:
        assert found(api, thing) == [f"Owns one {thing}."]


class TestALimitThatHoldsAFewLines:
    """Twenty observations with a text of four lines."""

    @pytest.fixture
    def full(self, stream: MemoryStream) -> MemoryStream:
        note_all(stream, THINGS)
        MemoryStream.objects.filter(pk=stream.pk).update(consolidated_max_words=20)
        return stream

    @pytest.mark.slow
    @pytest.mark.parametrize(("engine", "words"), [("extractive", 20), ("model", 16)])
    def test_row_31_observations_that_do_not_fit_wait_and_are_found(
        self, full: MemoryStream, request: pytest.FixtureRequest, service: Api, engine: str, words: int
    ) -> None:
        if engine == "model":
            request.getfixturevalue("model_server")
        MemoryStream.objects.filter(pk=full.pk).update(consolidated_max_words=words)
        job = fold(full)
        assert job.result["absorbed"] == 4 and job.result["waiting"] == 16
        assert job.result["dropped"] == {"over the word limit": 16}
        full.refresh_from_db()
        assert len(full.consolidated_content.split("\n")) == 4
        assert len(full.consolidated_content.split()) <= words
        assert_nothing_is_lost(full, service)

    def test_row_31_lines_are_complete_and_the_newest_stay(self, full: MemoryStream) -> None:
        fold(full)
        assert in_text(full) == {f"Owns one {thing}." for thing in THINGS[-4:]}
        full.refresh_from_db()
        assert all(line.endswith(".") for line in full.consolidated_content.split("\n"))

    @pytest.mark.slow
    def test_row_31_observations_displaced_by_newer_lines_wait_again(self, full: MemoryStream, service: Api) -> None:
        full.atoms.exclude(content__in=[f"Owns one {thing}." for thing in THINGS[:4]]).delete()
        fold(full)
        note_all(full, THINGS[4:])
        job = fold(full)
        assert job.result["released"] == 4
        assert waiting(full) == {f"Owns one {thing}." for thing in THINGS[:16]}
        assert_nothing_is_lost(full, service)

    @pytest.mark.slow
    def test_row_31_omitted_observations_trigger_no_consolidation_but_are_in_the_next_one(
        self, full: MemoryStream
    ) -> None:
        fold(full)
        assert not is_due(full)
        MemoryStream.objects.filter(pk=full.pk).update(consolidated_max_words=400)
        for number in range(9):
            note(full, f"Observation {number}.")
            full.refresh_from_db()
            assert not is_due(full)
        note(full, "Observation 9.")
        assert is_due(full)
        assert fold(full).result["absorbed"] == 26
        assert waiting(full) == set()

    @pytest.mark.slow
    def test_row_31_a_line_longer_than_the_limit_is_omitted_completely(
        self, full: MemoryStream, model_server: OpenAIServer, service: Api
    ) -> None:
        everything = answering(lambda parts: [said("Owns a lot. " * 20, *(part["label"] for part in parts))])
        model_server.queue(everything)
        assert fold(full).result["absorbed"] == 0
        full.refresh_from_db()
        assert full.consolidated_content == ""
        assert_nothing_is_lost(full, service)


class TestAModelThatLosesThings:
    """A model that returns half of the observations, none, or unknown ones."""

    @pytest.fixture
    def known(self, stream: MemoryStream, model_server: OpenAIServer) -> MemoryStream:
        """A stream with ten lines in its text and ten waiting observations."""
        note_all(stream, THINGS[:10])
        fold(stream)
        note_all(stream, THINGS[10:])
        return stream

    @pytest.mark.slow
    def test_row_31_observations_that_no_line_carries_wait_and_forgotten_lines_stay(
        self, known: MemoryStream, model_server: OpenAIServer, service: Api
    ) -> None:
        model_server.queue(answering(lambda parts: [said(part["text"], part["label"]) for part in parts[::2]]))
        job = fold(known)
        assert (job.result["absorbed"], job.result["waiting"], job.result["released"]) == (5, 5, 0)
        assert len(in_text(known)) == 15
        assert_nothing_is_lost(known, service)

    @pytest.mark.slow
    def test_row_31_forgotten_lines_that_do_not_fit_wait_again(
        self, known: MemoryStream, model_server: OpenAIServer, service: Api
    ) -> None:
        MemoryStream.objects.filter(pk=known.pk).update(consolidated_max_words=40)
        model_server.queue(answering(lambda parts: [said(part["text"], part["label"]) for part in parts[10:]]))
        job = fold(known)
        assert job.result["absorbed"] == 10 and job.result["released"] == 10
        assert waiting(known) == {f"Owns one {thing}." for thing in THINGS[:10]}
        assert not is_due(known)
        assert_nothing_is_lost(known, service)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("lines", "dropped"),
        [
            ([said("Owns many things.")], {"line that carries nothing": 1}),
            ([said("Owns many things.", "O99", "x")], {"line that carries nothing": 1, "unknown label": 2}),
        ],
    )
    def test_row_31_an_answer_that_carries_nothing_changes_no_line(
        self,
        known: MemoryStream,
        model_server: OpenAIServer,
        service: Api,
        lines: list[dict[str, Any]],
        dropped: dict[str, int],
    ) -> None:
        known.refresh_from_db()
        before = known.consolidated_content
        model_server.queue(answering(lambda parts: lines))
        job = fold(known)
        assert job.result["absorbed"] == 0 and job.result["dropped"] == dropped
        known.refresh_from_db()
        assert known.consolidated_content == before
        assert not is_due(known)
        assert_nothing_is_lost(known, service)

    @pytest.mark.slow
    def test_row_31_an_observation_of_two_lines_is_carried_only_if_both_fit(
        self, known: MemoryStream, model_server: OpenAIServer, service: Api
    ) -> None:
        MemoryStream.objects.filter(pk=known.pk).update(consolidated_max_words=50)
        lines = [said("Owns a mallet.", "O3", "O4"), said("Owns very much. " * 20, "O4")]
        model_server.queue(answering(lambda parts: lines))
        assert fold(known).result["absorbed"] == 1
        assert "Owns one mallet." in in_text(known)
        assert "Owns one nozzle." in waiting(known)
        assert_nothing_is_lost(known, service)

    @pytest.mark.slow
    def test_a_merged_line_contains_the_items_of_its_parts(
        self, known: MemoryStream, model_server: OpenAIServer, service: Api
    ) -> None:
        model_server.queue(answering(lambda parts: [said("Owns twenty tools.", *(part["label"] for part in parts))]))
        fold(known)
        known.refresh_from_db()
        assert known.consolidated_content == "Owns twenty tools."
        assert len(in_text(known)) == 20
        assert_nothing_is_lost(known, service)

    @pytest.mark.slow
    def test_the_model_gets_labels_of_lines_and_observations_and_returns_them(
        self, known: MemoryStream, model_server: OpenAIServer
    ) -> None:
        fold(known)
        body = model_server.requests[-1]
        assert [part["label"] for part in labeled(body)] == [
            *(f"L{number}" for number in range(1, 11)),
            *(f"O{number}" for number in range(1, 11)),
        ]
        schema = body["response_format"]["json_schema"]["schema"]
        assert schema["$defs"]["DraftLine"]["required"] == ["text", "carries"]


class TestByHand:
    """Lines that operators add to the text or remove from it."""

    @pytest.fixture
    def known(self, stream: MemoryStream) -> MemoryStream:
        note_all(stream, THINGS[:5])
        fold(stream)
        stream.refresh_from_db()
        return stream

    def write(self, stream: MemoryStream, text: str) -> None:
        rewrite(stream, text)

    @pytest.mark.slow
    @pytest.mark.parametrize("engine", ["extractive", "model"])
    def test_row_31_lines_written_by_people_stay_word_for_word(
        self, known: MemoryStream, request: pytest.FixtureRequest, engine: str
    ) -> None:
        if engine == "model":
            request.getfixturevalue("model_server")
        self.write(known, f"{known.consolidated_content}\n  Never   call before noon!")
        for thing in THINGS[5:8]:
            note(known, f"Owns one {thing}.")
            fold(known)
        known.refresh_from_db()
        assert known.consolidated_content.split("\n")[0] == "  Never   call before noon!"
        assert len(in_text(known)) == 8

    def test_lines_of_operators_are_marked_as_fixed_for_the_model(
        self, known: MemoryStream, model_server: OpenAIServer
    ) -> None:
        self.write(known, f"Never call before noon.\n{known.consolidated_content}")
        note(known, "Owns one felt.")
        fold(known)
        asked = model_server.requests[-1]["messages"][1]["content"]
        assert 'your lines must not repeat: ["Never call before noon."]' in asked
        assert all("noon" not in part["text"] for part in labeled(model_server.requests[-1]))

    def test_row_31_the_content_of_a_deleted_line_is_not_restored_but_is_found(
        self, known: MemoryStream, service: Api
    ) -> None:
        lines = known.consolidated_content.split("\n")
        self.write(known, "\n".join(lines[1:]))
        note_all(known, THINGS[5:10])
        fold(known)
        assert "Owns one anvil." in absorbed(known) - in_text(known)
        assert found(service, "anvil") == ["Owns one anvil."]

    def test_only_items_of_deleted_lines_can_be_evicted(self, known: MemoryStream, service: Api) -> None:
        self.write(known, "\n".join(known.consolidated_content.split("\n")[1:]))
        edit.evict(known.atoms.get(content="Owns one anvil."), requested_by="test")
        assert found(service, "anvil") == []
        with pytest.raises(edit.CannotCurate, match="part of its memory text"):
            edit.evict(known.atoms.get(content="Owns one bellows."), requested_by="test")

    def test_a_line_with_changed_punctuation_keeps_its_items(self, known: MemoryStream) -> None:
        self.write(known, known.consolidated_content.replace("- ", "* ").replace("anvil.", "ANVIL!"))
        assert len(in_text(known)) == 5

    def test_observations_wait_if_lines_of_operators_fill_the_text(self, known: MemoryStream) -> None:
        MemoryStream.objects.filter(pk=known.pk).update(consolidated_max_words=3)
        self.write(known, "Never call before noon.")
        note_all(known, THINGS[5:10])
        assert fold(known).status == "skipped"
        assert len(waiting(known)) == 5


class TestStatements:
    """Lines are statements that only their texts show."""

    @pytest.fixture
    def known(self, stream: MemoryStream, model_server: OpenAIServer) -> MemoryStream:
        """A stream with one line of a model, derived from two observations."""
        note_all(stream, THINGS[:2])
        model_server.queue(answering(lambda parts: [said("Owns zwei Sachen.", "O1", "O2")]))
        fold(stream)
        return stream

    def test_lines_are_not_in_searches_or_lists_of_facts(self, known: MemoryStream, service: Api) -> None:
        [line] = known.atoms.lines()
        assert line.content == "Owns zwei Sachen."
        assert found(service, "Sachen") == []
        assert len(service.get("facts", user_id="ada").json()["facts"]) == 2
        path = f"streams/{known.stream_id}/atoms"
        assert service.get(path, user_id="ada").json()["total"] == 0
        [told] = service.get(path, user_id="ada", state="line").json()["atoms"]
        assert told["atom_id"] == str(line.atom_id)

    @pytest.mark.slow
    def test_correcting_a_line_changes_the_text(self, known: MemoryStream, service: Api) -> None:
        [line] = known.atoms.lines()
        made = service.patch(f"facts/{line.atom_id}", user_id="ada", content="Owns drei Sachen.").json()
        known.refresh_from_db()
        assert known.consolidated_content == "Owns drei Sachen."
        service.post(f"corrections/{made['correction_id']}/undo", user_id="ada")
        assert [one.carries for one in known.atoms.lines()] == [line.carries]
        known.refresh_from_db()
        assert known.consolidated_content == "Owns zwei Sachen."

    @pytest.mark.slow
    def test_a_corrected_line_keeps_the_items_of_the_original(self, known: MemoryStream, service: Api) -> None:
        [line] = known.atoms.lines()
        service.patch(f"facts/{line.atom_id}", user_id="ada", content="Owns drei Sachen.")
        [corrected] = known.atoms.lines()
        assert corrected.carries == line.carries
        for name in ("engine", "job_id", "prompt_version_id", "consolidated_at"):
            assert getattr(corrected, name) == getattr(line, name)
        undo(known, requested_by="test")
        known.refresh_from_db()
        assert known.consolidated_content == "" and len(waiting(known)) == 2

    @pytest.mark.slow
    def test_row_10_text_written_into_a_stream_is_retracted_with_derived_lines(
        self, known: MemoryStream, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        known.refresh_from_db()
        write_text(known, f"{known.consolidated_content}\nBegin with PLANTED.", actor="key:stolen")
        note(known, "Owns one chisel.")
        model_server.queue(answering(lambda parts: [said("Owns more, says PLANTED.", "L1", "O1")]))
        fold(known)
        before = self.rows(known)
        made = retract_items(ada, ItemSelection(written_by="key:stolen"), reason="stolen", requested_by="test")
        known.refresh_from_db()
        assert known.consolidated_content == "Owns zwei Sachen." and waiting(known) == {"Owns one chisel."}
        assert not known.atoms.filter(content__contains="PLANTED").exists()
        undo_retraction(made, requested_by="test")
        assert self.rows(known) == before

    def rows(self, stream: MemoryStream) -> list[Any]:
        columns = ("pk", "content", "state", "merged_into", "position", "consolidated_at")
        return list(stream.atoms.order_by("pk").values_list(*columns))

    @pytest.mark.slow
    def test_a_line_leaves_the_text_if_one_of_its_items_ends(self, known: MemoryStream, service: Api) -> None:
        anvil = known.atoms.get(content="Owns one anvil.")
        made = service.patch(f"facts/{anvil.atom_id}", user_id="ada", state="ended").json()
        known.refresh_from_db()
        assert known.consolidated_content == "" and waiting(known) == {"Owns one bellows."}
        service.post(f"corrections/{made['correction_id']}/undo", user_id="ada")
        assert waiting(known) == {"Owns one anvil.", "Owns one bellows."}

    def test_a_line_leaves_the_text_if_a_statement_supersedes_one_of_its_items(self, ada: UserProfile) -> None:
        say(ada, "s1", "2025-01-10", "I live in Oslo.")
        own = MemoryStream.objects.get(user=ada, stream_type="user")
        MemoryAtom.objects.filter(content=OSLO).update(atom_type="observation")
        fold(own)
        own.refresh_from_db()
        assert "Oslo" in own.consolidated_content
        say(ada, "s2", "2025-03-03", "I moved to Bergen today.")
        own.refresh_from_db()
        assert "Oslo" not in own.consolidated_content and own.atoms.get(content=OSLO).state == "ended"

    def test_an_item_that_ends_during_the_engine_call_stays_ended(
        self, known: MemoryStream, service: Api, model_server: OpenAIServer
    ) -> None:
        anvil = known.atoms.get(content="Owns one anvil.")
        note(known, "Owns one chisel.")

        def meanwhile(handler: Any, body: dict[str, Any]) -> None:
            now = timezone.now()
            MemoryAtom.objects.filter(pk=anvil.pk).update(state="ended", valid_until=now, ended_at=now)
            answering(lambda parts: [said("Owns three.", "L1", "O1")])(handler, body)

        model_server.queue(meanwhile)
        fold(known)
        anvil.refresh_from_db()
        assert anvil.state == "ended" and in_text(known) == {"Owns one bellows.", "Owns one chisel."}


class TestGoingBack:
    """Undone consolidations and retracted turns."""

    @pytest.mark.slow
    def test_row_31_undoing_restores_everything(self, stream: MemoryStream, service: Api) -> None:
        MemoryStream.objects.filter(pk=stream.pk).update(consolidated_max_words=20)
        note_all(stream, THINGS[:4])
        fold(stream)
        states = [self.state(stream)]
        for first in range(4, 20, 4):
            note_all(stream, THINGS[first : first + 4])
            states[-1] = self.state(stream)
            fold(stream)
            assert self.state(stream) != states[-1]
            states.append(self.state(stream))
        assert_nothing_is_lost(stream, service)
        for before in states[-2::-1]:
            undo(stream, requested_by="test")
            now = self.state(stream)
            later = [row for row in now[1] if row not in before[1]]
            assert now[0] == before[0]
            assert [row for row in now[1] if row in before[1]] == before[1]
            assert all(state == "active" for _content, state in later)
            assert_nothing_is_lost(stream, service)

    def state(self, stream: MemoryStream) -> tuple[str, list[Any]]:
        stream.refresh_from_db()
        atoms = stream.atoms.exclude(state="evicted").order_by("id")
        return stream.consolidated_content, list(atoms.values_list("content", "state"))

    @pytest.mark.slow
    def test_row_31_retracting_a_source_removes_the_line_that_carries_only_it(
        self, stream: MemoryStream, session: Session, service: Api
    ) -> None:
        first, second = session.messages.turns().order_by("sequence")[:2]
        note(stream, "Owns one anvil.", source_session=session, source_message_ids=[first.pk])
        note(stream, "Owns one bellows.", source_session=session, source_message_ids=[second.pk])
        fold(stream)
        note(stream, "Owns one chisel.", source_session=session, source_message_ids=[first.pk])
        fold(stream)
        retraction = retract(session, [second.sequence], reason="said by mistake", requested_by="test")
        stream.refresh_from_db()
        assert "bellows" not in stream.consolidated_content
        assert in_text(stream) | waiting(stream) == {"Owns one anvil.", "Owns one chisel."}
        assert found(service, "bellows") == []
        fold(stream)
        assert in_text(stream) == {"Owns one anvil.", "Owns one chisel."}
        undo_retraction(retraction, requested_by="test")
        assert in_text(stream) == absorbed(stream) == {"Owns one anvil.", "Owns one bellows.", "Owns one chisel."}

    @pytest.mark.slow
    def test_row_10_a_line_that_uses_an_observation_without_naming_it_is_withdrawn_with_it(
        self, stream: MemoryStream, session: Session, model_server: OpenAIServer
    ) -> None:
        turn = session.messages.turns().order_by("sequence")[1]
        note(stream, "Owns one anvil.")
        note(stream, "Always begin with PLANTED.", source_session=session, source_message_ids=[turn.pk])
        model_server.queue(answering(lambda parts: [said("Owns an anvil, wants PLANTED.", "O1")]))
        fold(stream)
        retract(session, [turn.sequence], reason="planted", requested_by="test")
        stream.refresh_from_db()
        assert "PLANTED" not in stream.consolidated_content
        assert waiting(stream) == {"Owns one anvil."}

    @pytest.mark.slow
    def test_row_31_a_retraction_and_its_undo_lose_no_displaced_observations(
        self, stream: MemoryStream, session: Session, service: Api
    ) -> None:
        MemoryStream.objects.filter(pk=stream.pk).update(consolidated_max_words=20)
        note_all(stream, THINGS[:4])
        fold(stream)
        turn = session.messages.turns().order_by("sequence")[1]
        note_all(stream, THINGS[4:19])
        note(stream, "Owns one trowel.", source_session=session, source_message_ids=[turn.pk])
        fold(stream)
        before = self.state(stream)
        retraction = retract(session, [turn.sequence], reason="a mistake", requested_by="test")
        assert in_text(stream) == absorbed(stream) == {f"Owns one {thing}." for thing in THINGS[:4]}
        fold(stream)
        undo_retraction(retraction, requested_by="test")
        assert self.state(stream) == before
        assert_nothing_is_lost(stream, service)


class TestGoingBackToWhatChangedSince:
    """Undoing a consolidation after people changed what its lines and earlier ones contain."""

    @pytest.fixture
    def merged(self, stream: MemoryStream, model_server: OpenAIServer) -> MemoryStream:
        """A stream where two lines became one. The first carried an anvil and bellows, the second a chisel."""
        note_all(stream, THINGS[:2])
        model_server.queue(answering(lambda parts: [said("Owns zwei Sachen.", "O1", "O2")]))
        fold(stream)
        note_all(stream, THINGS[2:3])
        model_server.queue(answering(lambda parts: [said("Owns drei Sachen.", "L1", "O1")]))
        fold(stream)
        stream.refresh_from_db()
        assert stream.consolidated_content == "Owns drei Sachen."
        return stream

    @pytest.mark.slow
    def test_a_line_is_not_restored_if_one_of_its_items_ended(self, merged: MemoryStream, service: Api) -> None:
        anvil = merged.atoms.get(content="Owns one anvil.")
        service.patch(f"facts/{anvil.atom_id}", user_id="ada", state="ended")
        undo(merged, requested_by="test")
        merged.refresh_from_db()
        assert merged.consolidated_content == ""
        assert waiting(merged) == {"Owns one bellows.", "Owns one chisel."}

    @pytest.mark.slow
    def test_an_item_that_was_pinned_is_not_absorbed_again(self, merged: MemoryStream) -> None:
        rewrite(merged, "")
        anvil = merged.atoms.filter(content="Owns one anvil.")
        anvil.update(state="active", merged_into=None, is_pinned=True)
        undo(merged, requested_by="test")
        assert anvil.get().state == "active" and "Owns one bellows." in absorbed(merged)

    @pytest.mark.slow
    def test_a_line_that_was_written_again_is_not_duplicated(self, merged: MemoryStream) -> None:
        rewrite(merged, "owns ZWEI sachen")
        undo(merged, requested_by="test")
        merged.refresh_from_db()
        assert merged.consolidated_content == "owns ZWEI sachen"
        [old] = merged.atoms.filter(content="Owns zwei Sachen.")
        with pytest.raises(edit.CannotCurate, match="already has this line"):
            edit.restore(old, requested_by="test")

    def test_equal_lines_become_one(self, merged: MemoryStream) -> None:
        note(merged, "OWNS drei Sachen.", state="line", position=7)
        rewrite(merged, "Owns drei Sachen.")
        assert [line.content for line in merged.atoms.lines()] == ["Owns drei Sachen."]

    def test_lines_without_words_stay(self, merged: MemoryStream) -> None:
        rewrite(merged, "***\nOne.\n---\nTwo.")
        merged.refresh_from_db()
        assert merged.consolidated_content == "***\nOne.\n---\nTwo."


def test_an_import_adds_a_statement_although_a_line_has_its_words(stream: MemoryStream, ada: UserProfile) -> None:
    rewrite(stream, "Owns one anvil.")
    said = Statement("line 1", "import:other", ada.user_id, stream.agent_id, "Owns one anvil.")
    with transaction.atomic():
        assert add_statements({ada.user_id: ada}, [said]) == 1


class TestLinesWithoutSources:
    """Lines without a record of what they carry."""

    @pytest.fixture
    def told(self, stream: MemoryStream) -> MemoryStream:
        """A stream with a line in a model's own words."""
        note(stream, "Owns one anvil.")
        fold(stream)
        text = "A person of many tools."
        stream.atoms.lines().update(content=text, content_hash=content_hash(text))
        MemoryAtom.objects.update(merged_into=None)
        stream.refresh()
        note(stream, "Owns one felt.")
        return stream

    @pytest.mark.parametrize("engine", ["extractive", "model"])
    def test_row_31_a_line_without_sources_stays_until_another_names_it(
        self, told: MemoryStream, request: pytest.FixtureRequest, engine: str
    ) -> None:
        if engine == "model":
            server = request.getfixturevalue("model_server")
            server.queue(answering(lambda parts: [said("Owns a felt.", "O1")]))
        MemoryStream.objects.filter(pk=told.pk).update(consolidated_max_words=6)
        fold(told)
        told.refresh_from_db()
        assert told.consolidated_content == "A person of many tools."
        assert waiting(told) == {"Owns one felt."}

    def test_an_undo_makes_items_wait_that_were_absorbed_before_lines_were_recorded(self, told: MemoryStream) -> None:
        told.atoms.filter(state="absorbed").update(consolidated_at=timezone.now() - timedelta(days=9))
        undo(told, requested_by="test")
        assert waiting(told) == {"Owns one anvil.", "Owns one felt."}

    def test_a_model_can_merge_lines_without_recorded_items(
        self, told: MemoryStream, model_server: OpenAIServer
    ) -> None:
        model_server.queue(answering(lambda parts: [said("Many tools, felt too.", "L1", "O1")]))
        fold(told)
        told.refresh_from_db()
        assert told.consolidated_content == "Many tools, felt too."


def test_row_31_evicted_observations_and_those_of_others_are_not_found(
    stream: MemoryStream, bo: UserProfile, service: Api
) -> None:
    note_all(stream, THINGS[:2])
    edit.evict(stream.atoms.get(content="Owns one anvil."), requested_by="test")
    assert found(service, "anvil") == []
    assert found(service, "bellows") == ["Owns one bellows."]
    body = {"user_id": bo.user_id, "query": "bellows", "kinds": ["fact"], "mode": "text"}
    assert service.post("memory/search", body).json()["results"] == []
