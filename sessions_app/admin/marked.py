"""Highlights the words of a search query in the texts it found."""

from collections.abc import Iterable, Iterator

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from sessions_app import lexemes
from sessions_app.text.invisible_characters import with_unseen_written

AROUND = 80  # characters before the first match


def marked(text: str, words: Iterable[lexemes.QueryWord], most: int = 0) -> SafeString:
    """Escape a text, and mark the words of a query in it, in any inflected form.

    Args:
        most: The maximum number of characters to show, from shortly before the first match. 0 shows all.
    """
    places = list(lexemes.places_of(text, words))
    start, end = _cut(text, places[0][0] if places else 0, most)
    return mark_safe("".join(_parts(text, start, end, places)))  # noqa: S308 (each part is escaped)


def _cut(text: str, first: int, most: int) -> tuple[int, int]:
    """Return the start and end of the excerpt to show. It starts at a word."""
    if not most or len(text) <= most:
        return 0, len(text)
    start = text.rfind(" ", 0, max(first - AROUND, 0)) + 1
    return start, start + most


def _parts(text: str, start: int, end: int, places: list[tuple[int, int]]) -> Iterator[SafeString]:
    at = start
    if start:
        yield SafeString("… ")
    for first, last in places:
        if first >= at and last <= end:
            yield format_html("{}<mark>{}</mark>", *map(with_unseen_written, (text[at:first], text[first:last])))
            at = last
    yield format_html("{}{}", with_unseen_written(text[at:end]), " …" if end < len(text) else "")
