"""Relative times said as dates."""

from datetime import date

import pytest

from moments_app.engines.extractive.times import dated, is_dated, with_dates_beside

THURSDAY = date(2023, 5, 25)

DATED = {
    "I fell yesterday.": "I fell on 24 May 2023.",
    "Yesterday morning it rained.": "On the morning of 24 May 2023 it rained.",
    "The day before yesterday it rained.": "On 23 May 2023 it rained.",
    "I slept badly last night.": "I slept badly on the night of 24 May 2023.",
    "It opens tomorrow.": "It opens on 26 May 2023.",
    "We met last Saturday.": "We met on 20 May 2023.",
    "We met last Thursday.": "We met on 18 May 2023.",
    "We met last Fri.": "We met on 19 May 2023.",
    "We meet next Friday.": "We meet on 26 May 2023.",
    "We meet this Sunday.": "We meet on 28 May 2023.",
    "I started last week.": "I started in the week before 25 May 2023.",
    "I start next week.": "I start in the week after 25 May 2023.",
    "I start next month.": "I start in June 2023.",
    "We sailed last weekend.": "We sailed on the weekend of 20 May 2023.",
    "We sailed two weekends ago.": "We sailed on the weekend of 13 May 2023.",
    "We moved last summer.": "We moved in the summer of 2022.",
    "We moved last April.": "We moved in April 2023.",
    "We moved last year.": "We moved in 2022.",
    "I began ten years ago.": "I began in 2013.",
    "I began 3 months ago.": "I began in February 2023.",
    "It broke seven days ago.": "It broke on 18 May 2023.",
    "It broke a week ago.": "It broke around 18 May 2023.",
    "It broke a few weeks ago.": "It broke a few weeks before 25 May 2023.",
    "We meet next Friday, 26 May.": "We meet on 26 May.",
    "We meet next Friday, May 26th, at noon.": "We meet on May 26th, at noon.",
    "From tomorrow, the 26th of May 2023, it is shut.": "From the 26th of May 2023, it is shut.",
    "We moved last year, 3 May.": "We moved in 2022, 3 May.",
    "Last week was hard.": "The week before 25 May 2023 was hard.",
    "Tomorrow will be better.": "26 May 2023 will be better.",
    "We know since yesterday.": "We know since 24 May 2023.",
}
AS_IT_IS = ("The last week was hard.", "It may sit in the sun.", "An hour ago.", "Today's bread.", "Years ago we ran.")


@pytest.mark.parametrize("said", DATED)
def test_a_relative_time_is_a_date_afterwards(said: str) -> None:
    assert dated(said, THURSDAY) == DATED[said]
    assert is_dated(said)


@pytest.mark.parametrize("said", AS_IT_IS)
def test_what_is_no_relative_time_stays(said: str) -> None:
    assert dated(said, THURSDAY) == said


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("I fell yesterday.", "I fell yesterday (24 May 2023)."),
        ("Since last Friday it rains.", "Since last Friday (19 May 2023) it rains."),
        ("We met last week!", "We met last week (the week before 25 May 2023)!"),
        ("We meet next Friday, 26 May.", "We meet next Friday, 26 May."),
        ("The last week was hard.", "The last week was hard."),
    ],
)
def test_a_date_stands_beside_a_relative_time(said: str, shown: str) -> None:
    assert with_dates_beside(said, THURSDAY) == shown


def test_a_time_before_the_year_1_stays() -> None:
    assert dated("I fell yesterday, ten years ago.", date(1, 1, 1)) == "I fell yesterday, ten years ago."


def test_this_weekend_is_meant_on_its_sunday_too() -> None:
    assert dated("We sail this weekend.", date(2023, 5, 28)) == "We sail on the weekend of 27 May 2023."
