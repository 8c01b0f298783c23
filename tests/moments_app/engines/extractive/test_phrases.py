"""Key phrases: runs of words between stop words."""

import pytest

from moments_app.engines.extractive.moments import phrases_of

NAMED = {
    ("I joined a support group in Oslo.", "en"): ("joined", "support group", "oslo"),
    ("My pottery class is so cute.", "en"): ("pottery class",),
    ("Der Brennofen ist gestern ausgefallen.", "de"): ("brennofen", "gestern ausgefallen"),
    ("Ninapenda kupika chakula cha jioni", ""): (),
}


@pytest.mark.parametrize("said", NAMED)
def test_phrases_are_runs_between_stop_words(said: tuple[str, str]) -> None:
    assert phrases_of(*said) == NAMED[said]


def test_chinese_phrases_are_short_character_runs() -> None:
    assert phrases_of("晚饭以后窑坏了", "zh") == ("晚饭", "窑坏")
    assert all(2 <= len(phrase) <= 4 for phrase in phrases_of("我对花生过敏，我的狗也对花生过敏。", "zh"))
