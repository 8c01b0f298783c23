"""The names and pages of the rows at addresses."""

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from moments_app.models import MemoryStream
from moments_app.models.stream import USER_DEFAULTS
from moments_app.operator.addresses import Pages, Source
from sessions_app.models import Session, UserProfile
from tests.support.entities import make_entity
from tests.support.moments import remember
from tests.support.pages import change_url
from tests.support.streams import note, shard
from tests.support.transcript import START, talk

pytestmark = pytest.mark.django_db(transaction=True)

SAID = f"{START:%-d %b}" if timezone.now().year == START.year else f"{START:%-d %b %Y}"


def stream_of(user: UserProfile) -> MemoryStream:
    return MemoryStream.objects.create(stream_type="user", agent_id="default", user=user, **vars(USER_DEFAULTS))


def test_a_fact_is_named_by_its_kind_its_day_and_its_first_source_turn(ada: UserProfile) -> None:
    session = talk(ada, 6, session_id="chat/1")
    turns = session.messages.turns().filter(sequence__in=(4, 5)).order_by("sequence")
    pks = list(turns.values_list("pk", flat=True))
    fact = note(stream_of(ada), "Fires at night.", "fact", formed_at=START, source_message_ids=pks)
    found = Pages(ada, [fact.uri]).source(fact.uri)
    assert found == Source(fact.uri, f"fact, {SAID}, from chat/1 turn 4", change_url(fact))
    fact.formed_at = datetime(2024, 11, 21, tzinfo=UTC)
    fact.save()
    turns.update(kind="archived")
    assert Pages(ada, [fact.uri]).source(fact.uri).name == "fact, 21 Nov 2024, from chat/1 turn 4"


def test_every_kind_of_row_has_a_name(ada: UserProfile) -> None:
    moment = remember(ada, 2)[1]
    session = Session.objects.get()
    task = make_entity(ada, "Pay the rent", source_session=session)
    lesson = note(shard("repairs"), "Felt wears out.", formed_at=START)
    text = stream_of(ada)
    names = {
        moment.uri: f"moment, {SAID}, from s1 turn 2",
        task.uri: f"task, {task.created_at:%-d %b}, from s1",
        lesson.uri: f"observation, {SAID}",
        text.uri: "a memory text",
        ada.uri: "the profile",
        "rem://prompts/moment-builder": "the prompt moment-builder",
        "rem://sessions/s1/messages/3": "turn 3 of s1",
        "rem://sessions/s1/messages/3#event": "the boundary after turn 3 of s1",
        "rem://sessions/s1/summary": "the summary of s1",
    }
    pages = Pages(ada, names)
    assert {ref: pages.source(ref).name for ref in names} == names
    assert all(pages.source(ref).url for ref in names)


def test_a_row_of_another_person_has_no_name_and_no_source(ada: UserProfile, bo: UserProfile) -> None:
    theirs, turn = remember(bo, 1)[0], Session.objects.get().messages.turns().order_by("sequence")[0]
    learned = note(shard("repairs"), "Felt wears out.", formed_at=START, source_message_ids=[turn.pk])
    pages = Pages(ada, [theirs.uri, learned.uri])
    assert pages.source(theirs.uri) == Source(theirs.uri, f"the moment {theirs.key} (deleted)")
    assert pages.source(learned.uri).name == f"observation, {SAID}"


def test_all_rows_are_found_with_two_queries(ada: UserProfile) -> None:
    moments, stream = remember(ada, 5), stream_of(ada)
    turns = Session.objects.get().messages.turns().order_by("sequence")
    facts = [note(stream, f"Fact {turn.sequence}.", "fact", source_message_ids=[turn.pk]) for turn in turns]
    refs = [*(moment.uri for moment in moments), *(fact.uri for fact in facts), stream.uri]
    with CaptureQueriesContext(connection) as captured:
        pages = Pages(ada, refs)
    assert len(captured) == 2
    assert all(pages.source(ref).url for ref in refs)
