"""The stems that index texts, and the stems that the words of a query are searched by."""

import numpy
import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions_app import lexemes
from tests.support import latin_model

SAMPLES = [
    ("Wie viele Töchter haben Sie?", "de"),
    ("Où habite ta sœur maintenant ?", "fr"),
    ("¿Cuándo tengo que ir al médico?", "es"),
    ("Onde mora a minha irmã agora?", "pt"),
    ("Kiedy muszę iść do lekarza?", "pl"),
    ("Dün akşam çok yoruldum.", "tr"),
    ("Ik heb gisteren een fiets gekocht.", "nl"),
    ("Where does my sister live now?", "en"),
    ("42!", "en"),
    ("", "en"),
]


def stems(text: str) -> set[str]:
    return {part.rpartition(":")[0].strip("'") for part in lexemes.vector(text).split()}


def meet(query: str, text: str) -> bool:
    """Return whether any word of the query is in the text."""
    return any(not stems(text).isdisjoint(word.stems) for word in lexemes.words_of_query(query))


@pytest.mark.parametrize(("text", "language"), SAMPLES)
def test_the_language_of_a_text_is_identified(text: str, language: str) -> None:
    assert lexemes.likely_languages(text) == (language,)


@pytest.mark.slow
def test_the_reduced_identifier_ranks_like_the_whole_model_in_a_third_of_its_memory() -> None:
    from py3langid import langid

    whole = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    whole.set_languages(list(lexemes._LATIN))
    ours = lexemes._identifier()
    assert len(ours.tk_nextmove.tobytes()) < 0.3 * len(whole.tk_nextmove.tobytes())
    latin = st.text(st.sampled_from(list(filter(lexemes._LATIN_RUN.fullmatch, map(chr, range(0x1F00))))))

    @given(st.lists(latin, max_size=30))
    def judge_alike(runs: list[str]) -> None:
        assert ours.rank(" ".join(runs)) == whole.rank(" ".join(runs))

    judge_alike()
    for text, _language in SAMPLES:
        runs = " ".join(lexemes._latin_runs(text))
        assert ours.rank(runs) == whole.rank(runs)


@pytest.mark.slow
def test_the_identifier_file_matches_the_installed_model() -> None:
    with numpy.load(lexemes.LATIN_MODEL) as file:
        for name, made in latin_model.made().items():
            assert numpy.array_equal(file[name], made), "Run python -m tests.support.latin_model."


def test_a_text_of_uncertain_language_is_indexed_in_each() -> None:
    doubtful = "Birthday 3 May"
    languages = lexemes.likely_languages(doubtful)
    assert len(languages) > 1 and lexemes.DEFAULT in languages
    assert meet("birthdays", doubtful)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("Tochter", "Meine Töchter haben morgen ihre Klavierprüfungen."),
        ("Klavierprüfung", "Meine Töchter haben morgen ihre Klavierprüfungen."),
        ("parc", "On s'est promenés dans les parcs de la ville."),
        ("lápices", "Me compré un lápiz nuevo para la escuela."),
        ("corações", "O meu coração bate depressa quando corro."),
        ("парк", "Вчера мы гуляли в парке."),
        ("ёлка", "Мы купили елку на рынке."),
        ("kot", "Wczoraj karmiłem koty mojej sąsiadki."),
        ("köpek", "Köpeğim her sabah parkta koşuyor."),
        ("Işık", "Dün akşam evdeki bütün ışıklar söndü."),
        ("سيارة", "اشتريت السيارة من معرض قريب"),
        ("مدرسة", "ذهبت إلى المدرسة صباحا"),
        ("बेटी", "मेरी बेटियाँ स्कूल जाती हैं"),
        ("σκύλος", "Έβγαλα βόλτα τον σκύλο μου."),
        ("公园", "我昨天在绿禾公园跑了五公里"),
        ("猫", "我养了一只猫"),
        ("ピアノ", "来週はピアノの試験です"),
        ("공원", "어제 공원에서 산책했어요"),
        ("กุ้ง", "ฉันชอบกินข้าวผัดกุ้ง"),
        ("paints", "She was painting three sunsets."),
        ("cafe", "We met at the Café Central."),
        ("Café", "We met at the cafe."),
        ("ｆｕｌｌ", "A full moon."),
    ],
)
def test_a_word_matches_its_other_forms(query: str, text: str) -> None:
    assert meet(query, text)


@pytest.mark.parametrize("language", ["en", "de", "tr", "pl", "pt"])
@pytest.mark.parametrize("word", ["Klavierprüfungen", "bisikletini", "corazones", "rowerem", "harpsichords", "sœur"])
def test_a_word_matches_itself_in_a_text_of_any_identified_language(word: str, language: str) -> None:
    indexed = lexemes._stems_of(word, (language,))
    [asked] = lexemes.words_of_query(word)
    assert indexed and set(indexed) <= set(asked.stems)


def test_a_word_does_not_match_by_the_rules_of_another_language() -> None:
    assert not meet("corner", "We grow corn and wheat on the farm.")  # as German, corner would be a form of corn


def test_stop_words_of_the_text_language_are_omitted() -> None:
    assert stems("Who are you and what is it?") == stems("Was ist das und wie sind sie?") == set()
    assert lexemes.words_of_query("Who are you?") == []
    assert {word.word for word in lexemes.words_of_query("Wo ist die Katze?")} == {"katze"}


def test_forms_of_one_word_in_a_query_are_merged() -> None:
    [word] = lexemes.words_of_query("painting paints painted")
    assert word.word == "painting"


def test_positions_are_stored_for_phrases() -> None:
    assert lexemes.vector("kiln cold kiln") == "'kiln':1,3 'cold':2"


@pytest.mark.slow
@pytest.mark.django_db
def test_a_query_has_the_syntax_of_search_engines() -> None:
    def matches(query: str, text: str) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s::tsvector @@ %s::tsquery", [lexemes.vector(text), lexemes.all_words_query(query)])
            [found] = cursor.fetchone() or [None]
            return bool(found)

    text = "The kiln cracked, and the glaze with it."
    assert matches("kilns crack", text) and not matches("kiln oven", text)
    assert matches("kiln or oven", text) and matches("oven OR kiln", text)
    assert matches("kiln -oven", text) and not matches("kiln -glaze", text)
    assert matches('"kiln cracked"', text) and not matches('"cracked kiln"', text)
    assert matches("公园", "我昨天在绿禾公园跑了五公里") and not matches("公司", "我昨天在绿禾公园跑了五公里")
    assert not matches("the", text) and not matches("", text) and not matches('"', text)


@pytest.mark.slow
@pytest.mark.django_db
@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=200))
def test_postgresql_can_parse_the_vector_and_queries_of_any_text(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::tsvector, %s::tsquery", [lexemes.vector(text), lexemes.all_words_query(text)])
        cursor.execute("SELECT %s::tsquery", [lexemes.any_word_query(text, 64)[0]])
    lexemes.likely_languages(text)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(SAMPLES).map(lambda sample: sample[0]) | st.text(st.characters(max_codepoint=127)), max_size=4
    )
)
def test_an_ascii_text_has_the_same_words_with_other_characters_added(texts: list[str]) -> None:
    text = " ".join(text for text in texts if text.isascii())[:190]
    assert lexemes.vector(text) == lexemes.vector(f"{text}。")
    assert lexemes.likely_languages(text) == lexemes.likely_languages(f"{text}。")


def test_the_vector_of_a_long_text_is_within_the_limit_of_postgresql() -> None:
    assert len(lexemes.vector("漢字" * 100_000)) < 1_000_000
    assert len(lexemes.vector(" ".join(f"wort{n}" for n in range(50_000)))) < 1_000_000
    assert lexemes.vector("x" * 100_000) == ""
