"""Times in queries are converted to spans of days."""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from moments_app.recall.request import Span, span_in
from tests.moments_app.recall.time.questions import MORE, NONE, THIRTY

NOW = datetime(2026, 11, 23, 15, tzinfo=ZoneInfo("America/New_York"))


def read(text: str) -> Span:
    span = span_in(text, NOW)
    assert span
    return span


def bounds(text: str) -> tuple[str, str]:
    return f"{read(text).since:%Y-%m-%d %H:%M}", f"{read(text).until:%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(("question", "day"), [*THIRTY, *MORE])
def test_the_span_of_a_question_has_its_day(question: str, day: str) -> None:
    span = read(question)
    assert span.since.date() <= date.fromisoformat(day) <= (span.until - timedelta(seconds=1)).date()


@pytest.mark.parametrize("question", NONE)
def test_words_that_are_not_times_give_no_span(question: str) -> None:
    assert span_in(question, NOW) is None


@pytest.mark.parametrize(
    ("question", "since", "until"),
    [
        ("yesterday", "2026-11-22 00:00", "2026-11-23 00:00"),
        ("last week", "2026-11-16 00:00", "2026-11-23 00:00"),
        ("two weeks ago", "2026-11-09 00:00", "2026-11-16 00:00"),
        ("three months ago", "2026-08-01 00:00", "2026-09-01 00:00"),
        ("last weekend", "2026-11-21 00:00", "2026-11-23 00:00"),
        ("in December", "2025-12-01 00:00", "2026-01-01 00:00"),
        ("in December 2024", "2024-12-01 00:00", "2025-01-01 00:00"),
        ("last year", "2025-01-01 00:00", "2026-01-01 00:00"),
        ("this morning", "2026-11-23 00:00", "2026-11-23 12:00"),
        ("last night", "2026-11-22 17:00", "2026-11-23 05:00"),
        ("on 30 November", "2025-11-30 00:00", "2025-12-01 00:00"),
        ("am 3.5.2026", "2026-05-03 00:00", "2026-05-04 00:00"),
    ],
)
def test_the_bounds_of_a_span(question: str, since: str, until: str) -> None:
    assert bounds(f"What did I say {question}?") == (since, until)


def test_days_begin_in_the_persons_time_zone() -> None:
    late = datetime(2026, 11, 23, 1, tzinfo=ZoneInfo("Asia/Tokyo"))
    span = span_in("What did we talk about yesterday?", late)
    assert span and span.since.isoformat() == "2026-11-22T00:00:00+09:00"


def test_a_query_can_have_other_words() -> None:
    assert read("What did we talk about last Tuesday?").is_whole_query
    other = read("What did I say about my trip to Rome in May?")
    assert not other.is_whole_query and "rome" in other.other_words and "may" not in other.other_words


@pytest.mark.parametrize(
    "question", ["What should I cook today?", "Was ziehe ich heute Abend an?", "今天吃什么好吃的菜?"]
)
def test_the_current_day_is_a_span_only_if_the_query_asks_what_was_said(question: str) -> None:
    assert span_in(question, NOW) is None
    assert read("What did we talk about today?").is_whole_query


def test_a_long_text_gives_no_span() -> None:
    assert span_in(f"Yesterday it rained. {'We stayed in. ' * 30}", NOW) is None


def test_a_nonexistent_day_gives_no_span() -> None:
    assert span_in("What did I say on 31 November?", NOW) is None
