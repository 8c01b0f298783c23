"""The words by which memory compares texts."""

from moments_app.engines.words import words_of


def test_words_of_a_text_do_not_depend_on_non_ascii_letters() -> None:
    for mark in map(chr, range(128)):
        said = f"The KILN{mark}2 is{mark}{mark} warm_er"
        assert words_of(said) == words_of(f"{said} ä")[:-1], mark


def test_words_are_letters_digits_and_underscores_in_lowercase() -> None:
    assert words_of("Öfen, don't: SNAKE_case 42.") == ["öfen", "don", "t", "snake_case", "42"]


def test_a_mark_after_a_word_distinguishes_it() -> None:
    assert words_of("C, C++ and c#; A- or AB−, B-12.") == ["c", "c++", "and", "c#", "a-", "or", "ab-", "b", "12"]
    assert words_of("#kilns - a co-op's well-known + rest") == ["kilns", "a", "co", "op", "s", "well", "known", "rest"]
