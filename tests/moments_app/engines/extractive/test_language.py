"""Sentence boundaries."""

import pytest

from moments_app.engines.extractive.language import sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Am 3. Mai habe ich einen Termin bei Dr. Weiß, z. B. um 14.30 Uhr.",
        "Vom 3. bis 5. Juni sind wir in Köln.",
        "Meine Tochter geht in die 3. Klasse.",
        "Am 3. habe ich einen Termin.",
        "Den 3. maj flytter jeg til Aarhus.",
        "Muutan Ouluun 3. toukokuuta.",
        "Do Brna se stěhuji 3. května.",
        "2026. május 3-án költözöm Szegedre.",
        "The deadline moved to Monday, Sept. 7 at noon.",
        "Dr. Patel moved me to 3 p.m. on the 10th.",
        "I moved to the U.S. in 2019.",
    ],
)
def test_a_period_in_a_date_or_abbreviation_does_not_end_a_sentence(sentence: str) -> None:
    assert sentences(f"{sentence} Right.") == [sentence, "Right."]


@pytest.mark.parametrize("sentence", ["Dr. Lund saw him.", "(Mr. Berg paid.)", "Z. B. am 3. Mai."])
def test_a_sentence_can_begin_with_an_abbreviation(sentence: str) -> None:
    assert sentences(f"Rufus was ill. {sentence}") == ["Rufus was ill.", sentence]


@pytest.mark.parametrize(
    "text",
    [
        "I am 30. Mary is 28.",
        "Ich bin 30. Wir wohnen in Köln.",
        "The train goes at 3 p.m. We meet at the station.",
        "We moved in 2019. Life is good.",
        "I am going to school in Sept. We move then.",
    ],
)
def test_a_period_after_a_number_or_abbreviation_ends_a_sentence_before_another(text: str) -> None:
    assert len(sentences(text)) == 2


@pytest.mark.parametrize(
    "found",
    [
        ["I am 5'10\".", "I live in Leeds.", "My brother is 6'1\"."],
        ["Er sagte: „Ich wohne in Gera. Ich bin Koch.“", "Ich wohne in Kassel."],
        ["Elle dit : « Je vis à Metz. Je suis boulanger. »", "Je vis à Lyon."],
        ["他说：“我住在洛阳。我是牙医。”", "我住在上海。"],
        ["我的朋友都叫我“老王”，我住在上海"],
        ['My dog is called "Rex" and I live in Leeds.', "I like 寿司."],
        ["Il est parti ».", "J'habite à Lyon.", "Il dit « bonjour »."],
        ["She left.", '"I stay."'],
    ],
)
def test_a_sentence_ends_outside_of_quotations(found: list[str]) -> None:
    wide = any(character >= "\u4e00" for character in found[0])
    assert sentences(("" if wide else " ").join(found)) == found
