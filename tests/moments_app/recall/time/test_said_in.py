"""If a query names a time, turns of that time come first, whatever their words."""

from collections.abc import Sequence
from cProfile import Profile
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from moments_app.context.assemble import ContextRequest, Envelope, preview
from moments_app.context.input import Item
from moments_app.models import MemoryAtom, MemoryStream, Moment
from moments_app.recall.request import RecallRequest, span_in
from moments_app.recall.search import recall_with_span
from sessions_app.imports.import_sessions import Record, SessionRef, import_sessions
from sessions_app.models import Message, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.retention.retain import retain
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage
from tests.moments_app.recall.time.questions import THIRTY
from tests.support.api import Api
from tests.support.moments import remember
from tests.support.retention import cover
from tests.support.streams import note

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("archive_folder")]

ASKED = datetime(2026, 11, 23, 15, tzinfo=UTC)
DAYS = {
    "2026-05-04": "The kiln in the cellar reaches twelve hundred degrees.",
    "2026-10-05": "My knee hurts when I climb stairs.",
    "2026-11-14": "I bought a bread machine from a neighbor.",
    "2026-11-16": "Our choir sings the Requiem in Advent.",
    "2026-11-17": "The roof over the porch leaks again.",
    "2026-11-18": "I adopted a greyhound called Pim.",
    "2026-11-19": "My nephew collects Roman coins.",
    "2026-11-20": "I signed up for an evening course in carpentry.",
    "2026-11-21": "The tomatoes froze in the garden.",
    "2026-11-22": "I met Lotte at the swimming pool.",
    "2026-11-23": "The dentist moved my appointment.",
}


def said(user: UserProfile, texts: dict[str, str], hour: int = 9) -> None:
    """Create a conversation on each of some days."""
    roles = ("user", "assistant")
    import_sessions(
        [
            Record(
                f"{day}-{number}",
                SessionRef(user.user_id, f"of-{day}"),
                NewMessage(
                    roles[number],
                    text,
                    created_at=datetime.fromisoformat(f"{day}T{hour:02}:00").replace(tzinfo=UTC),
                    external_id=f"{day}-{number}",
                ),
            )
            for day, content in texts.items()
            for number, text in enumerate((content, "I see."))
        ],
        application=DEFAULT,
    )


def context(user: UserProfile, query: str, *, as_of: datetime | None = ASKED, max_tokens: int = 1000) -> Envelope:
    recall = RecallRequest(query, as_of=as_of)
    request = ContextRequest(
        query=query, max_tokens=max_tokens, recall=recall, as_of=as_of, layers=("retrieved",), new_agent_id="a"
    )
    envelope = preview(user, "asking", request)
    assert envelope
    return envelope


def recalled(envelope: Envelope) -> Sequence[Item]:
    return [priced.item for priced in envelope.filled.layers["retrieved"]]


@pytest.fixture
def week(ada: UserProfile) -> UserProfile:
    said(ada, DAYS)
    return ada


@pytest.mark.slow
def test_the_right_day_comes_first(week: UserProfile) -> None:
    for question, day in THIRTY:
        assert recalled(context(week, question))[0].local_day == date.fromisoformat(day), question
    [nothing, *_] = recalled(context(week, "What did I tell you last night?"))
    assert nothing.text == "Nothing was said from 22 November 2026 to 23 November 2026."


def test_texts_of_a_span_are_in_time_order(week: UserProfile) -> None:
    days = [item.local_day for item in recalled(context(week, "What did we talk about last week?"))]
    assert days == sorted(days, key=str) and {str(day)[8:] for day in days} == {
        "16",
        "17",
        "18",
        "19",
        "20",
        "21",
        "22",
    }


def test_results_for_other_words_follow_those_of_the_span(week: UserProfile) -> None:
    items = recalled(context(week, "What did I say about the greyhound yesterday?"))
    assert str(items[0].local_day) == "2026-11-22"
    assert any("greyhound" in item.text for item in items)


def test_an_empty_span_is_reported(week: UserProfile) -> None:
    items = recalled(context(week, "What did we talk about on 3 March 2024?"))
    assert items[0].text == "Nothing was said on 3 March 2024."


def test_an_empty_span_is_not_reported_if_nothing_is_asked(week: UserProfile) -> None:
    items = recalled(context(week, "The blue kiln arrives on 14 March."))
    assert not any("Nothing was said" in item.text for item in items)


def test_yesterday_is_in_the_persons_time_zone(ada: UserProfile) -> None:
    said(ada, {"2026-11-22": "The roof leaks."}, hour=16)  # the 23rd in Tokyo
    assert "Nothing" not in recalled(context(ada, "What did we talk about yesterday?"))[0].text
    ada.timezone = "Asia/Tokyo"
    later = ASKED + timedelta(hours=12)  # noon of the 24th in Tokyo
    assert recalled(context(ada, "What did we talk about yesterday?", as_of=later))[0].text == "The roof leaks."


def test_the_current_context_has_what_was_said_yesterday(ada: UserProfile) -> None:
    yesterday = timezone.now() - timedelta(days=1)
    said(ada, {f"{yesterday:%Y-%m-%d}": "The roof leaks."}, hour=12)
    items = recalled(context(ada, "What did we talk about yesterday?", as_of=None))
    assert items[0].text == "The roof leaks."


def test_row_38_archived_turns_of_the_span_also_come_first(week: UserProfile) -> None:
    for session in week.sessions.all():
        cover(session, session.message_count)
        session.messages.update(arrived_at=timezone.now() - timedelta(days=40))
    week.sessions.update(last_arrived_at=timezone.now() - timedelta(days=40))
    assert retain().archived_turns == 2 * len(DAYS)
    assert DAYS["2026-11-17"] in recalled(context(week, "What did we discuss last Tuesday?"))[0].text


def test_retracted_turns_are_not_found_by_time(week: UserProfile) -> None:
    Message.objects.filter(content=DAYS["2026-11-22"]).update(retracted_at=timezone.now())
    assert DAYS["2026-11-22"] not in [item.text for item in recalled(context(week, "What did I say yesterday?"))]


def test_a_span_takes_a_constant_number_of_queries(ada: UserProfile) -> None:
    counts = []
    for day in (date(2026, 11, 22), date(2026, 11, 21)):
        said(ada, {str(day - timedelta(days=number)): f"On day {number} I rest." for number in range(20)})
        with CaptureQueriesContext(
            connection,
        ) as queries:
            context(ada, "What did we say about rest last month?")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_facts_of_one_time_keep_their_order_after_an_update(ada: UserProfile) -> None:
    stream = MemoryStream.objects.create(user=ada, stream_type="user")
    facts = [note(stream, text, "fact") for text in ("The roof leaks.", "The dog limps.", "The kiln cracked.")]
    MemoryAtom.objects.update(formed_at=ASKED - timedelta(days=1))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE moments_app_memoryatom")  # so that PostgreSQL doesn't read an index for a few rows

    def found() -> Sequence[str]:
        request = RecallRequest("What happened yesterday?", as_of=ASKED, mode="text")
        return [result.ref for result in recall_with_span(ada, "", request, most=10)[0]]

    before = found()
    MemoryAtom.objects.filter(pk=facts[0].pk).update(access_count=1)
    assert len(before) == 3 and found() == before


@pytest.mark.slow(seconds=20)
def test_a_span_is_read_by_indexes(ada: UserProfile, bo: UserProfile) -> None:
    for user in (ada, bo):
        _fill(user)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with acting_for("ada", application=DEFAULT) as acting, CaptureQueriesContext(connection) as queries:
        assert acting
        context(acting, "What did we talk about yesterday?")
        scans = [query["sql"] for query in queries if "row_number() OVER (ORDER BY created_at" in query["sql"]]
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {scans[0]}")
            plan = "\n".join(row[0] for row in cursor)
    assert len(scans) == 1
    assert {name for name in ("message_user_newest", "moment_user_in_time", "atom_user_newest") if name in plan} == {
        "message_user_newest",
        "moment_user_in_time",
        "atom_user_newest",
    }


def _fill(user: UserProfile, number: int = 1_000) -> None:
    """Create many turns, moments and facts of a person, one of each per hour."""
    said(user, {"2026-11-22": "The roof leaks."})
    moment = remember(user, 1)[0]
    stream = MemoryStream.objects.create(user=user, stream_type="user")
    fact = note(stream, "The roof leaks.", "fact")
    turn = Message.objects.filter(session__user=user).order_by("id")[0]
    examples: tuple[tuple[Any, str], ...] = ((turn, "created_at"), (moment, "ends_at"), (fact, "formed_at"))
    for row, time in examples:
        kept = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
        plain = {name: value for name, value in kept.items() if name not in ("id", "search_vector", "external_id")}
        type(row).objects.bulk_create(
            type(row)(**plain | _unique(row, hour) | {time: ASKED - timedelta(hours=hour)}) for hour in range(number)
        )


def _unique(row: Model, hour: int) -> dict[str, object]:
    if isinstance(row, Message):
        return {"sequence": 10 + hour}
    if isinstance(row, Moment):
        return {"key": f"k{hour}", "starts_at": ASKED - timedelta(hours=hour, minutes=5)}
    return {"atom_id": uuid4(), "content_hash": f"{hour:064}"}


class TestSearch:
    """REST reports the recognized span."""

    def test_texts_of_the_querys_span_come_first(self, week: UserProfile, service: Api) -> None:
        asked = {"user_id": week.user_id, "query": "What did we discuss on 17 November 2026?"}
        answer = service.post("memory/search", **asked).json()
        assert answer["results"][0]["content"] == DAYS["2026-11-17"]
        assert answer["span"] == {"since": "2026-11-17T00:00:00Z", "until": "2026-11-18T00:00:00Z"}

    def test_since_and_until_define_a_span(self, week: UserProfile, service: Api) -> None:
        span = {"since": "2026-11-18T00:00:00Z", "until": "2026-11-21T00:00:00Z"}
        answer = service.post("memory/search", user_id=week.user_id, query="I see", kinds=["turn"], **span).json()
        assert {result["time"][:10] for result in answer["results"]} == {"2026-11-18", "2026-11-19", "2026-11-20"}
        assert answer["span"] == span

    def test_a_query_without_a_time_has_no_span(self, week: UserProfile, service: Api) -> None:
        assert service.post("memory/search", user_id=week.user_id, query="greyhound").json()["span"] is None


def test_half_of_the_results_are_from_the_span_if_the_query_has_other_words(week: UserProfile) -> None:
    request = RecallRequest("Did I mention a greyhound or a dentist last week?", ("turn",), as_of=ASKED)
    found, span = recall_with_span(week, "", request, most=4)
    assert span and sum(span.has(result.time) for result in found[:2]) == 2


def test_the_time_in_a_query_is_read_once(week: UserProfile) -> None:
    query = "Which greyhound?"
    for search in (
        partial(context, week, query, as_of=None),
        partial(recall_with_span, week, "", RecallRequest(query), most=4),
    ):
        with Profile() as profile:
            search()
        assert [entry.callcount for entry in profile.getstats() if entry.code is span_in.__code__] == [1]
