"""The admin's sidebar, and the headings of the pages that it leads to."""

import re

import pytest
from django.contrib import admin
from django.utils.text import capfirst

from memoryproject.admin_menu import BESIDE_LISTS, ENTRIES, NAVIGATION
from tests.support.operator import operator
from tests.support.pages import page

pytestmark = pytest.mark.django_db(transaction=True)

admin.autodiscover()


@pytest.mark.slow
def test_each_list_is_headed_by_the_word_that_the_sidebar_has_for_it() -> None:
    root = operator()
    entries = [(entry["title"], str(entry["link"])) for section in NAVIGATION for entry in section["items"]]  # type: ignore[attr-defined]
    # The page of people leads to groups, which have no entry.
    assert len(entries) == len(ENTRIES) - 1 + len(BESIDE_LISTS)
    for title, url in entries:
        shown = page(root, url)
        heading = re.search(r"<h1.*?</h1>", shown, re.DOTALL)
        words = re.sub(r"<[^>]+>", " ", heading.group()).split() if heading else []
        assert words[: len(title.split())] == title.split(), title  # no other name stands before it
        assert re.search(rf"<title>\s*{re.escape(title)} \|", shown), title


def test_the_form_of_a_new_row_is_called_what_the_list_calls_it() -> None:
    for model in admin.site._registry:
        assert model._meta.verbose_name == ENTRIES[model._meta.label_lower].one
        assert capfirst(str(model._meta.verbose_name_plural)) == capfirst(ENTRIES[model._meta.label_lower].many)
