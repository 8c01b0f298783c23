"""Text that people wrote stays when the rest of it is undone."""

import pytest

from moments_app.streams.texts import merged, merged_text


def test_additions_and_removals_are_applied_again() -> None:
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
def test_a_text_is_restored_except_for_changed_sentences(base: str, before: str, after: str, expected: str) -> None:
    assert merged_text(base, before, after) == expected
