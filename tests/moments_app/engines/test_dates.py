"""Relative times with their dates beside them."""

from datetime import date

import pytest

from moments_app.engines.statements.dates import is_dated, with_dates

THURSDAY = date(2023, 5, 25)

DATED = {
    "I fell yesterday.": "I fell yesterday [24 May 2023].",
    "Yesterday morning it rained.": "Yesterday morning [24 May 2023] it rained.",
    "The day before yesterday it rained.": "The day before yesterday [23 May 2023] it rained.",
    "I slept badly last night.": "I slept badly last night [24 May 2023].",
    "It opens tomorrow.": "It opens tomorrow [26 May 2023].",
    "We met last Thursday.": "We met last Thursday [18 May 2023].",
    "We met last Fri.": "We met last Fri [19 May 2023].",
    "We meet next Friday.": "We meet next Friday [26 May 2023].",
    "We meet this Sunday.": "We meet this Sunday [28 May 2023].",
    "I started last week.": "I started last week [week of 15 May 2023].",
    "I start next month.": "I start next month [June 2023].",
    "We sailed last weekend.": "We sailed last weekend [weekend of 20 May 2023].",
    "We sailed two weekends ago.": "We sailed two weekends ago [weekend of 13 May 2023].",
    "We moved last summer.": "We moved last summer [summer 2022].",
    "We moved last April.": "We moved last April [April 2023].",
    "I began ten years ago.": "I began ten years ago [2013].",
    "I began 3 months ago.": "I began 3 months ago [February 2023].",
    "It broke a week ago.": "It broke a week ago [around 18 May 2023].",
    "Since last Friday it rains.": "Since last Friday [19 May 2023] it rains.",
    "Ich fliege nächsten Freitag.": "Ich fliege nächsten Freitag [2023-05-26].",
    "Gestern Abend war ich krank.": "Gestern [2023-05-24] Abend war ich krank.",
    "El próximo viernes vuelo.": "El próximo viernes [2023-05-26] vuelo.",
    "Je pars vendredi prochain.": "Je pars vendredi prochain [2023-05-26].",
    "我昨天病了。": "我昨天 [2023-05-24]病了。",
    "我下周五去上海。": "我下周五 [2023-06-02]去上海。",
    "Завтра я еду.": "Завтра [2023-05-26] я еду.",
}
AS_IT_IS = (
    "The last week was hard.",
    "It may sit in the sun.",
    "An hour ago.",
    "Today's bread.",
    "Years ago we ran.",
    "Heute Morgen war es kalt.",
    "Vengo por la mañana.",
    "Ich wohne hier.",
)


@pytest.mark.parametrize("said", DATED)
def test_a_date_stands_beside_a_relative_time(said: str) -> None:
    assert with_dates(said, THURSDAY) == DATED[said]
    assert is_dated(said)


@pytest.mark.parametrize("said", AS_IT_IS)
def test_what_is_no_relative_time_stays(said: str) -> None:
    assert with_dates(said, THURSDAY) == said


def test_where_a_date_is_said_none_is_added_and_a_time_before_the_year_1_stays() -> None:
    assert with_dates("We meet next Friday, 26 May.", THURSDAY) == "We meet next Friday, 26 May."
    assert with_dates("I fell yesterday, ten years ago.", date(1, 1, 1)) == "I fell yesterday, ten years ago."


def test_this_weekend_is_meant_on_its_sunday_too() -> None:
    assert with_dates("We sail this weekend.", date(2023, 5, 28)).endswith("[weekend of 27 May 2023].")
