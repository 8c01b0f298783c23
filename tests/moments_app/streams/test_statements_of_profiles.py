"""Profiles of earlier releases: an upgrade or an import converts their lines and phrases to statements."""

import json
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from moments_app.models import FactEmbedding, Job, MemoryAtom, MemoryStream, RetractedItem
from moments_app.models.atom import content_hash
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.former_profile import FormerLine, FormerProfile, statements_of
from sessions_app.models import UserProfile
from tests.support.jobs import count, work_off
from tests.support.streams import note
from tests.support.transcript import talk

UPGRADE = import_module("moments_app.migrations.0109_statements_of_profiles_found")
MARCH = datetime(2026, 3, 4, 8, tzinfo=UTC)


def former(*lines: FormerLine, summary: str = "", **fields: Any) -> FormerProfile:
    values: dict[str, Any] = {"interests": [], "preferred_topics": [], "sources": {}, "updated_at": MARCH} | fields
    return FormerProfile(summary, lines, **values)


def told(profile: FormerProfile, *known: str) -> dict[str, dict[str, Any]]:
    return {one["content"]: one for one in statements_of(profile, {content_hash(text) for text in known})}


def test_lines_that_no_statement_says_become_current_statements_with_sources() -> None:
    lines = [
        FormerLine("- User: I live in Turin. (2026-03-02)", "Home:", [7], "job:1", created_at=MARCH),
        FormerLine("- hazelnuts", "Allergies:", [8], "job:1", engine="model", created_at=MARCH),
    ]
    found = told(former(*lines), "User: I live in Turin.")
    assert list(found) == ["Allergies: hazelnuts"]
    one = found["Allergies: hazelnuts"]
    assert (one["state"], one["source_message_ids"], one["engine"], one["is_pinned"]) == ("active", [8], "model", False)
    home = told(former(*lines))["User: I live in Turin."]
    assert (home["kind"], home["attribute"], home["value"]) == ("home", "home", "Turin")
    assert home["formed_at"] == datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_handwritten_lines_come_first_and_edited_lines_are_pinned() -> None:
    lines = [
        FormerLine("Keeps bees.", actor="key:a", created_at=MARCH),
        FormerLine("Answer briefly.", actor="operator:eve", created_at=MARCH),
        FormerLine("- Has two dogs and a cat.", "Pets:", [7], "operator:eve", is_pinned=True, created_at=MARCH),
    ]
    found = told(former(*lines))
    opening, edited = found["Keeps bees.\nAnswer briefly."], found["Has two dogs and a cat."]
    assert (opening["attribute"], opening["is_pinned"]) == ("summary", True)
    assert (edited["attribute"], edited["is_pinned"], edited["source_message_ids"]) == ("", True, [7])


def test_a_handwritten_line_stays_although_an_equal_statement_has_ended() -> None:
    by_hand = FormerLine("Keeps bees.", actor="key:a", created_at=MARCH)
    by_engine = FormerLine("- User: I live in Oslo.", sources=[7], actor="job:1", created_at=MARCH)
    profile = former(by_hand, by_engine)
    ended = {one["content_hash"] for one in statements_of(profile, ())}
    assert [one["content"] for one in statements_of(profile, ended, holding=())] == ["Keeps bees."]


@pytest.mark.django_db(transaction=True)
def test_undoing_the_retraction_of_a_profile_line_restores_its_statement(ada: UserProfile) -> None:
    session = talk(ada, 2)
    retraction = retract(session, [0], reason="mistaken", requested_by="test")
    pk = session.messages.get(sequence=0).pk
    line = {"text": "- Has a dog called Pepper. (2026-03-02)", "heading": "Pets:", "actor": "job:1", "engine": "model"}
    ends = {"created_at": "2026-03-04T08:00:00Z", "ended_at": None, "ended_by": "", "is_pinned": False}
    data = line | ends | {"source_message_ids": json.dumps([str(pk)])}
    RetractedItem.objects.create(
        retraction=retraction, user=ada, model="moments_app.profileline", object_pk=1, data=data
    )
    import_module("moments_app.migrations.0099_statements_of_profiles")._keep_retracted(apps, ada)
    undo_retraction(retraction, requested_by="test")
    [statement] = MemoryAtom.objects.filter(user=ada)
    assert (statement.content, statement.source_message_ids) == ("Has a dog called Pepper.", [pk])


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("embeddings_server")
def test_an_upgrade_requests_vectors_and_word_counts_of_the_statements(ada: UserProfile, bo: UserProfile) -> None:
    for user in (ada, bo):
        note(MemoryStream.objects.ensure_of_person(user, "default"), "User is interested in kilns.", "fact")
    count(bo)
    Job.objects.all().delete()
    UPGRADE.ask(apps, None)
    UPGRADE.ask(apps, None)
    jobs = Job.objects.order_by("process", "user").values_list("process", "user__user_id")
    assert list(jobs) == [("count_words", "ada"), ("embed", "ada"), ("embed", "bo")]
    work_off()
    assert set(FactEmbedding.objects.values_list("user_id", flat=True)) == {ada.pk, bo.pk}
    UPGRADE.ask(apps, None)
    assert not Job.objects.open().exists()


def test_ended_lines_become_history() -> None:
    over = MARCH + timedelta(days=1)
    [one] = told(former(FormerLine("Lives in Oslo.", created_at=MARCH, ended_at=over, ended_by="job:1"))).values()
    assert (one["state"], one["valid_until"], one["ended_by"]) == ("ended", over, "job:1")


def test_texts_without_lines_and_phrases_become_statements() -> None:
    sources = {("interest", "kilns"): [3]}
    profile = former(summary="Ada sails. Ada sings.", interests=["Kilns"], preferred_topics=["rent"], sources=sources)
    found = told(profile)
    assert list(found) == [
        "Ada sails.",
        "Ada sings.",
        "User is interested in Kilns.",
        "User likes to talk about rent.",
    ]
    assert found["User is interested in Kilns."]["source_message_ids"] == [3]
    assert not statements_of(profile, {one["content_hash"] for one in found.values()})
