"""The admin's sidebar and tabs, and the headings of the pages that they link to."""

import re
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django.utils.text import capfirst

from memoryproject.admin_menu import ENTRIES, NAVIGATION, SEPARATE_PAGES, SHARED
from moments_app.models import Summary
from sessions_app.models import Session
from tests.support.operator import operator
from tests.support.pages import list_url, page

pytestmark = pytest.mark.django_db(transaction=True)

admin.autodiscover()

MAX_ENTRIES = 18


def entries() -> list[dict[str, Any]]:
    return [entry for section in NAVIGATION for entry in section["items"]]  # type: ignore[attr-defined]


def sidebar(client: Client) -> list[str]:
    """Return the titles of the sidebar entries that the operator sees."""
    shown = page(client, reverse("admin:index")).partition('id="nav-sidebar-apps"')[2].partition("</ol>\n")
    titles = re.findall(r"<span>([^<]+)</span>", "".join(shown))
    return [title for title in titles if title in {entry["title"] for entry in entries()}]


def tabs(client: Client, url: str) -> list[str]:
    """Return the titles of the tabs of a list."""
    found = re.search(r'<nav class="rem-tabs" aria-label="Related lists">.*?</nav>', page(client, url), re.DOTALL)
    return re.findall(r">([^<>]+)</a>", found.group()) if found else []


def test_the_sidebar_has_few_entries_that_lead_to_every_list() -> None:
    assert len(entries()) <= MAX_ENTRIES
    titles = [entry["title"] for entry in entries()]
    lists = [*titles, *(capfirst(ENTRIES[model].many) for models in SHARED for model in models[1:])]
    pages = [str(shown["title"]) for shown in SEPARATE_PAGES]
    # Groups are linked on the page of the staff.
    assert sorted(lists) == sorted([*pages, *(capfirst(e.many) for name, e in ENTRIES.items() if name != "auth.group")])


@pytest.mark.slow
def test_the_heading_of_each_list_is_its_title_in_the_sidebar_or_tab() -> None:
    root = operator()
    pages = [(str(shown["title"]), str(shown["link"])) for shown in SEPARATE_PAGES]
    lists = [
        (capfirst(entry.many), reverse(f"admin:{model.replace('.', '_')}_changelist"))
        for model, entry in ENTRIES.items()
    ]
    for title, url in pages + lists:
        shown = page(root, url)
        heading = re.search(r"<h1.*?</h1>", shown, re.DOTALL)
        words = re.sub(r"<[^>]+>", " ", heading.group()).split() if heading else []
        assert words[: len(title.split())] == title.split(), title  # the heading starts with it
        assert re.search(rf"<title>\s*{re.escape(title)} \|", shown), title


def test_related_lists_are_tabs_of_each_other() -> None:
    root = operator()
    assert tabs(root, list_url(Session)) == ["Sessions", "Summaries", "Served contexts", "Archives"]
    assert tabs(root, list_url(Summary)) == tabs(root, list_url(Session))
    assert 'href="/admin/moments_app/summary/" aria-current="page"' in page(root, list_url(Summary))


def test_operators_see_the_entries_and_tabs_that_they_have_permissions_for() -> None:
    reader = operator("view_summary", "view_archive")
    assert sidebar(reader) == ["Sessions"]
    assert tabs(reader, list_url(Summary)) == ["Summaries", "Archives"]
    shown = page(reader, reverse("admin:index"))
    assert 'href="/admin/moments_app/summary/"' in shown  # the first list of the entry that they may open
    assert 'href="/admin/sessions_app/session/"' not in shown


def test_the_name_of_each_model_is_the_same_in_forms_and_lists() -> None:
    for model in admin.site._registry:
        assert model._meta.verbose_name == ENTRIES[model._meta.label_lower].one
        assert capfirst(str(model._meta.verbose_name_plural)) == capfirst(ENTRIES[model._meta.label_lower].many)
