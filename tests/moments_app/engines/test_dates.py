"""Relative times are followed by their dates."""

import os
import subprocess
import sys
from datetime import date

import pytest

from moments_app.engines.statements.dates import has_relative_time, with_dates

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
    "Gestern Abend war ich krank.": "Gestern Abend [2023-05-24] war ich krank.",
    "Heute Morgen war es kalt.": "Heute Morgen [2023-05-25] war es kalt.",
    "Ich ziehe nächsten Monat um.": "Ich ziehe nächsten Monat [2023-06] um.",
    "Seit letztem Sommer wohne ich hier.": "Seit letztem Sommer [2022-06-01 – 2022-08-31] wohne ich hier.",
    "In zwei Wochen heirate ich.": "In zwei Wochen [2023-06-08] heirate ich.",
    "Je déménage la semaine prochaine.": "Je déménage la semaine prochaine [2023-05-29 – 2023-06-04].",
    "Nos mudamos el año que viene.": "Nos mudamos el año que viene [2024].",
    "Мы познакомились три года назад.": "Мы познакомились три года назад [2020].",
    "我三天后去北京。": "我三天后 [2023-05-28]去北京。",
    "อาทิตย์ที่แล้วฉันป่วย": "อาทิตย์ที่แล้ว [2023-05-15 – 2023-05-21]ฉันป่วย",
    "My first exam's in two weeks.": "My first exam's in two weeks [around 8 June 2023].",
    "The first guests arrive in two days.": "The first guests arrive in two days [27 May 2023].",
    "My first exam in two weeks scares me.": "My first exam in two weeks [around 8 June 2023] scares me.",
    "I haven't packed, we fly in two days.": "I haven't packed, we fly in two days [27 May 2023].",
    "I was hired and start in two weeks.": "I was hired and start in two weeks [around 8 June 2023].",
    "I had a call, the visit is in two days.": "I had a call, the visit is in two days [27 May 2023].",
    "I'd like that yesterday.": "I'd like that yesterday [24 May 2023].",
    "I fly in twenty-five days.": "I fly in twenty-five days [19 June 2023].",
    "El próximo viernes vuelo.": "El próximo viernes [2023-05-26] vuelo.",
    "Je pars vendredi prochain.": "Je pars vendredi prochain [2023-05-26].",
    "我昨天病了。": "我昨天 [2023-05-24]病了。",
    "我下周五去上海。": "我下周五 [2023-06-02]去上海。",
    "明日期末考试。": "明日 [2023-05-26]期末考试。",
    "Завтра я еду.": "Завтра [2023-05-26] я еду.",
}
IN_EACH_LANGUAGE = {
    "سأسافر إلى القاهرة غدا مع أخي.": "غدا [2023-05-26]",
    "Zítra letím s bratrem do Prahy.": "Zítra [2023-05-26]",
    "Jeg rejser til København i morgen med min bror.": "i morgen [2023-05-26]",
    "Ich fliege morgen mit meinem Bruder nach Wien.": "morgen [2023-05-26]",
    "Πετάω αύριο στην Αθήνα με τον αδελφό μου.": "αύριο [2023-05-26]",
    "I fly to Vienna tomorrow with my brother.": "tomorrow [26 May 2023]",
    "Mañana vuelo a Viena con mi hermano.": "Mañana [2023-05-26]",
    "من فردا با برادرم به تهران می‌روم.": "فردا [2023-05-26]",
    "Lennän huomenna veljeni kanssa Helsinkiin.": "huomenna [2023-05-26]",
    "Je pars demain à Vienne avec mon frère.": "demain [2023-05-26]",
    "मैं अगले हफ्ते दिल्ली जा रहा हूँ।": "अगले हफ्ते [2023-05-29 – 2023-06-04]",
    "Holnap a testvéremmel Budapestre utazom.": "Holnap [2023-05-26]",
    "Ես վաղը մեկնում եմ Երևան։": "վաղը [2023-05-26]",
    "Saya akan terbang ke Jakarta besok dengan kakak saya.": "besok [2023-05-26]",
    "Domani parto per Vienna con mio fratello.": "Domani [2023-05-26]",
    "明日、兄と京都へ行きます。": "明日 [2023-05-26]",
    "저는 내일 형과 부산에 갑니다.": "내일 [2023-05-26]",
    "Ik vlieg morgen met mijn broer naar Wenen.": "morgen [2023-05-26]",
    "Jeg flyr til Oslo i morgen sammen med broren min.": "i morgen [2023-05-26]",
    "Jutro lecę z bratem do Krakowa.": "Jutro [2023-05-26]",
    "Amanhã eu viajo para Lisboa com meu irmão.": "Amanhã [2023-05-26]",
    "Mâine plec la București cu fratele meu.": "Mâine [2023-05-26]",
    "Завтра я лечу с братом в Москву.": "Завтра [2023-05-26]",
    "Jag flyger till Stockholm i morgon med min bror.": "i morgon [2023-05-26]",
    "நாளை நான் சென்னைக்குப் போகிறேன்.": "நாளை [2023-05-26]",
    "พรุ่งนี้ฉันจะไปเชียงใหม่กับพี่ชาย": "พรุ่งนี้ [2023-05-26]",
    "Yarın kardeşimle Ankara'ya uçuyorum.": "Yarın [2023-05-26]",
    "Завтра я лечу з братом до Києва.": "Завтра [2023-05-26]",
    "我明天和哥哥去上海。": "明天 [2023-05-26]",
}
AS_IT_IS = (
    "The last week was hard.",
    "It's our first trip without Elin in nine years.",
    "I haven't slept in two days.",
    "It's the first time in three weeks.",
    "That's our first comedy show in nine years.",
    "The barn was built in a day.",
    "We had three floods in two weeks.",
    "I lost nine kilos in two months.",
    "I wrote the thesis in six weeks.",
    "The house has been painted in two days.",
    "They didn't answer in three weeks.",
    "It feels like yesterday that we met.",
    "It seems like just yesterday.",
    "It may sit in the sun.",
    "An hour ago.",
    "Today's bread.",
    "Years ago we ran.",
    "Guten Morgen, ich habe Hunger.",
    "Vengo por la mañana.",
    "Ich wohne hier.",
    "请写明日期。",
)


@pytest.mark.parametrize("said", DATED)
def test_a_relative_time_gets_its_date(said: str) -> None:
    assert with_dates(said, THURSDAY) == DATED[said]
    assert has_relative_time(said)


@pytest.mark.parametrize("said", IN_EACH_LANGUAGE)
def test_a_plan_gets_its_date_in_each_language(said: str) -> None:
    assert IN_EACH_LANGUAGE[said] in with_dates(said, THURSDAY)


@pytest.mark.parametrize("said", AS_IT_IS)
def test_other_words_are_unchanged(said: str) -> None:
    assert with_dates(said, THURSDAY) == said


def test_no_date_is_added_to_a_date_or_before_the_year_1() -> None:
    assert with_dates("We meet next Friday, 26 May.", THURSDAY) == "We meet next Friday, 26 May."
    assert with_dates("I fell yesterday, ten years ago.", date(1, 1, 1)) == "I fell yesterday, ten years ago."


def test_this_weekend_on_a_sunday_includes_that_day() -> None:
    assert with_dates("We sail this weekend.", date(2023, 5, 28)).endswith("[weekend of 27 May 2023].")


@pytest.mark.slow
def test_every_process_adds_the_same_date_to_ambiguous_words() -> None:
    """The words mean "last week" or "last Sunday"."""
    dates = "from moments_app.engines.statements.dates import with_dates; from datetime import date"
    code = f"{dates}; print(ascii(with_dates('อาทิตย์ที่แล้ว', date(2023, 5, 25))))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(found) == 1
