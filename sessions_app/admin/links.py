"""URLs of the admin's pages, and links and chips for the cells of lists."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator

CHIPS = 4
GIST = 140  # characters


def page_url(model: Model | type[Model], page: str, *arguments: Any, **query: Any) -> str:
    """Return the URL of a page of a model's list, by the `name` of its view."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
    return reverse(name, args=arguments, query=query or None)


def change_url(row: Model) -> str:
    """Return the URL of a row's page."""
    return page_url(row, "change", row.pk)


def list_url(model: type[Model], **query: Any) -> str:
    """Return the URL of a model's list, filtered."""
    return page_url(model, "changelist", **query)


def turn_url(session_pk: int, sequence: int) -> str:
    """Return the URL of a turn in its session's transcript."""
    session = reverse("admin:sessions_app_session_change", args=[session_pk])
    return f"{session}?at={sequence}#turn-{sequence}"


def link_to(row: Model | None, text: str = "") -> SafeString | str:
    """Link to a row's page by its name or the given text. Without a row, return a dash."""
    if row is None:
        return "–"
    return format_html('<a class="rem-link rem-name-cell" href="{}">{}</a>', change_url(row), text or row)


def link_column(column: str, description: str) -> Any:
    """Return a column of a list, or a field of a page, that links to the row that a foreign key refers to."""

    @admin.display(description=description)
    def link(row: Any) -> SafeString | str:
        return link_to(getattr(row, column))

    return staticmethod(link)


def chips(tags: Sequence[str]) -> SafeString:
    """Show the first few of a row's tags."""
    shown = format_html_join("", '<span class="rem-chip">{}</span>', ((tag,) for tag in tags[:CHIPS]))
    return format_html('<span class="rem-tags">{}</span>', shown)


def titled(name: str, text: str) -> SafeString:
    """Show a row's name, with the start of its text below it."""
    if not text.strip():
        return format_html("{}", name)
    gist = Truncator(" ".join(text.split())).chars(GIST)
    return format_html('<span>{}<br><span class="rem-meta">{}</span></span>', name, gist)
