"""URLs of the admin's pages, and links, chips and highlighted words for the cells of lists."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from unfold.decorators import display

from sessions_app import lexemes
from sessions_app.text.invisible_characters import with_invisible_shown

MAX_CHIPS = 4
GIST_CHARS = 140  # maximum characters of the text below a name
CHARS_BEFORE = 80  # characters before the first match


def page_url(model: Model | type[Model], page: str, *arguments: Any, **query: Any) -> str:
    """Return the URL of one of a model's admin pages, by the name of its view."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
    return reverse(name, args=arguments, query=query or None)


def change_url(row: Model) -> str:
    return page_url(row, "change", row.pk)


def list_url(model: type[Model], **query: Any) -> str:
    return page_url(model, "changelist", **query)


def turn_url(session_pk: int, sequence: int) -> str:
    session = reverse("admin:sessions_app_session_change", args=[session_pk])
    return f"{session}?at={sequence}#turn-{sequence}"


def link_to(row: Model | None, text: str = "") -> SafeString | str:
    """Return a link to a row's page, labeled with the row's name or the given text. Without a row, return a dash."""
    if row is None:
        return "–"
    return format_html('<a class="rem-link rem-name-cell" href="{}">{}</a>', change_url(row), text or row)


def column(path: str, description: str, show: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    """Return a column of a list, or a field of a page, that shows an attribute of a row.

    `path` may have dots for attributes of related rows. `show` formats the value. The options are those of Unfold's
    `display`.
    """
    read = attrgetter(path)

    @display(description=description, **options)  # type: ignore[untyped-decorator]
    def shown(row: Any) -> Any:
        return show(read(row)) if show else read(row)

    return staticmethod(shown)


def link_column(name: str, description: str) -> Any:
    return column(name, description, link_to)


def chips(tags: Sequence[str]) -> SafeString:
    shown = format_html_join("", '<span class="rem-chip">{}</span>', ((tag,) for tag in tags[:MAX_CHIPS]))
    return format_html('<span class="rem-tags">{}</span>', shown)


def name_with_gist(name: str, text: str) -> SafeString:
    if not text.strip():
        return format_html("{}", name)
    gist = Truncator(" ".join(text.split())).chars(GIST_CHARS)
    return format_html('<span>{}<br><span class="rem-meta">{}</span></span>', name, gist)


def highlighted(text: str, words: Iterable[lexemes.QueryWord], max_chars: int = 0) -> SafeString:
    """Escape a text, and highlight the words of a query in any inflected form.

    With `max_chars`, show only an excerpt that starts shortly before the first match.
    """
    places = list(lexemes.occurrences(text, words))
    start, end = _cut(text, places[0][0] if places else 0, max_chars)
    return mark_safe("".join(_parts(text, start, end, places)))  # noqa: S308 (each part is escaped)


def _cut(text: str, first: int, max_chars: int) -> tuple[int, int]:
    """Return the start and end of the excerpt to show. The excerpt starts with a whole word."""
    if not max_chars or len(text) <= max_chars:
        return 0, len(text)
    start = text.rfind(" ", 0, max(first - CHARS_BEFORE, 0)) + 1
    return start, start + max_chars


def _parts(text: str, start: int, end: int, places: list[tuple[int, int]]) -> Iterator[SafeString]:
    at = start
    if start:
        yield SafeString("… ")
    for first, last in places:
        if first >= at and last <= end:
            yield format_html("{}<mark>{}</mark>", *map(with_invisible_shown, (text[at:first], text[first:last])))
            at = last
    yield format_html("{}{}", with_invisible_shown(text[at:end]), " …" if end < len(text) else "")
