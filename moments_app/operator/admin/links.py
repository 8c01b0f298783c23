"""Links and chips in cells of lists."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

CHIPS = 4


def change_url(row: Model) -> str:
    """Address of a row's page."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def list_url(model: type[Model], **query: Any) -> str:
    """Address of a model's list, filtered."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist", query=query)


def link_to(row: Model | None, text: str = "") -> SafeString | str:
    """A link to a row's page that says its name, or what is given; a dash where there is no row."""
    if row is None:
        return "–"
    return format_html('<a class="rem-link rem-name-cell" href="{}">{}</a>', change_url(row), text or row)


def chips(tags: Sequence[str]) -> SafeString:
    """The first few of a row's tags."""
    shown = format_html_join("", '<span class="rem-chip">{}</span>', ((tag,) for tag in tags[:CHIPS]))
    return format_html('<span class="rem-tags">{}</span>', shown)
