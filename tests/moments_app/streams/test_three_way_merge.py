"""What people wrote into a text stays when the rest of it goes back."""

import pytest

from moments_app.streams.three_way_merge import merged, merged_text


def test_what_was_put_in_and_taken_out_is_done_again() -> None:
    assert merged(["a", "b"], before=["a", "b", "x"], after=["b", "x", "c"]) == ["b", "c"]


@pytest.mark.parametrize(
    ("base", "before", "after", "expected"),
    [
        ("One.  Two.", "One. Bad.", "One. Bad.", "One.  Two."),
        ("One. Two.", "One. Two. Bad.", "One. Bad. Mine.", "One. Mine."),
        ("", "Bad.", "Bad.\nMine.", "Mine."),
        ("One.", "One. Bad.", "", ""),
    ],
)
def test_a_text_goes_back_but_for_the_sentences_that_were_changed(
    base: str, before: str, after: str, expected: str
) -> None:
    assert merged_text(base, before, after) == expected
