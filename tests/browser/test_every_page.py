"""Every page of the admin in a real browser: its policy allows it, injected scripts never run, and it is accessible."""

import os
import re
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from django.contrib.auth.models import User
from django.test import Client
from django.urls import resolve, reverse
from playwright.sync_api import Browser, Page, ViewportSize, expect
from pytest_django.fixtures import Settings

from memory_extras.oauth.models import Assistant
from sessions_app.admin.links import page_url
from sessions_app.models import ApiKey, Application, UserProfile
from sessions_app.security.staff import invitation_token, invite
from sessions_app.transcript.append import NewMessage, append
from tests.browser.conftest import PHONE
from tests.support.every_page import Address, every_address, every_page
from tests.support.furnished import furnish
from tests.support.kept_rows import KeptRows
from tests.support.oauth import asked, let_ask
from tests.support.operator import operator
from tests.support.plain_words import internal_names
from tests.support.planted import plant

pytestmark = [pytest.mark.slow(seconds=75), pytest.mark.django_db(transaction=True)]

# The smallest desktop on which the sidebar must leave enough room for all columns of a list.
DESKTOP: ViewportSize = {"width": 1300, "height": 800}
SAME_TEMPLATE = ("_history", "_delete")  # Django's pages, which differ only in texts
OWN_TEMPLATE = {"moments_app_moment_delete"}
Look = tuple[ViewportSize, bool]  # the size, and whether it is dark
# The sizes alternate, so that each page is resized only once.
EVERY_LOOK: list[Look] = [(DESKTOP, False), (PHONE, True), (DESKTOP, True), (PHONE, False)]
# Pages consist of the same parts, so each page is checked with only one size and theme. `make looks` checks each page
# with all four combinations.
LOOKS_OF_PAGES = [EVERY_LOOK] if os.environ.get("EVERY_LOOK") else [[look] for look in EVERY_LOOK]

# Let axe parse each color only once. Otherwise, this takes a quarter of its time.
AXE = f"""{AXE_SCRIPT}; {{
    const {{Color}} = axe.commons.color, parse = Color.prototype.parseString, parsed = {{}};
    Color.prototype.parseString = function (text) {{
        const {{r, g, b, alpha}} = parsed[text] ??= parse.call(new Color(), text);
        return Object.assign(this, {{r, g, b, alpha}});
    }};
}}"""
# Check all rules of WCAG 2.2 AA, including those that are off by default in axe, and all that axe rates as serious.
_VIOLATIONS = """([context, is_dark]) => {
    document.documentElement.classList.toggle("dark", is_dark);
    document.getAnimations().forEach(animation => animation.finish());
    const values = axe._audit.rules
        .filter(rule => rule.tags.some(tag => ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"].includes(tag))
            || (rule.enabled && ["serious", "critical"].includes(rule.impact)))
        .filter(rule => !rule.tags.some(tag => ["experimental", "deprecated"].includes(tag))).map(rule => rule.id);
    return axe.run(context, {resultTypes: ["violations"], preload: false, runOnly: {type: "rule", values}})
        .then(result => result.violations);
}"""
WITH_FRAME: dict[str, Any] = {"include": ["html"]}
BUT_FRAME = WITH_FRAME | {"exclude": ["#nav-sidebar"]}
# How many pixels the page is too wide, and how many pixels of its list are hidden.
_TOO_WIDE = """() => [...document.querySelectorAll("html, .simplebar-content-wrapper:has(#result_list)")]
    .map(it => it.scrollWidth - it.clientWidth)"""
# Whether a script ran, whether the page shows one as text, and what its HTML contains of one.
_PLANTED = """() => [window.planted, document.body.textContent.includes("window.planted=1"), [...document
    .querySelectorAll("script:not([src]):not([type]), [src*=planted], [onerror]")].map(element => element.outerHTML)]"""
# Parse a page's HTML. Return everything that would change something if pressed (buttons of posting forms except logging
# out, and htmx's own), and the paths and queries of its links. The content of `<template>` elements is included.
_WAYS_AND_LINKS = r"""([html, url]) => {
    const page = new DOMParser().parseFromString(html.replaceAll(/(<\/?)template/g, "$1div"), "text/html")
    const ways = [
        ...[...page.querySelectorAll("button, input[type=submit]")].filter(
            it => it.type === "submit" && it.form?.method === "post" && it.form.id !== "logout-form"),
        ...page.querySelectorAll("[hx-post], [hx-put], [hx-patch], [hx-delete]"),
    ].map(it => it.outerHTML)
    const links = [...page.querySelectorAll("a[href]")].map(it => new URL(it.getAttribute("href"), url))
    return [ways, links.map(it => [it.pathname, it.search]).filter(([path, _]) => path.startsWith("/admin/"))]
}"""


@pytest.fixture
def tab(tab: Page) -> Page:
    """A tab of a superuser, which loads axe with each page."""
    tab.add_init_script(AXE)
    return tab


@pytest.fixture
def furnished(transactional_db: None, kept_rows: KeptRows) -> None:
    """Rows for every page, created before a login."""
    kept_rows.have("furnished", furnish)


@pytest.fixture(scope="module")
def loaded() -> dict[Address, str]:
    """The pages that `pages` has loaded."""
    return {}


@pytest.fixture
def pages(furnished: None, loaded: dict[Address, str]) -> dict[Address, str]:
    """The HTML of every page and part that a superuser gets. Only the first test loads them."""
    if not loaded:
        client = Client()
        client.force_login(User.objects.create_superuser("reader"))
        loaded.update(list(every_page(client, with_parts=True)))
    return loaded


def addresses(pages: dict[Address, str]) -> list[Address]:
    """Return the current URLs of all pages, with only one of each kind that has the same template for all models.

    Which URLs are pages depends on their views only, and not on rows.
    """
    names = [page.name for page, html in pages.items() if "<html" in html]
    alike = [[name for name in names if name.endswith(kind) and name not in OWN_TEMPLATE] for kind in SAME_TEMPLATE]
    left_out = {name for of_kind in alike for name in of_kind[1:]}
    return [address for address in every_address() if address.name in {*names} - left_out]


def barriers(tab: Page, looks: list[Look] = EVERY_LOOK, *, with_frame: bool = False) -> list[str]:
    """Return the accessibility problems of the page: its width at each size, and other problems in these looks.

    The frame is the same on every page, so it is checked on one. The tab must have loaded axe.
    """
    found = []
    for size in sorted((DESKTOP, PHONE), key=lambda size: size == looks[-1][0]):
        tab.set_viewport_size(size)
        page, *lists = tab.evaluate(_TOO_WIDE)
        if page or (size == DESKTOP and any(hidden > 0 for hidden in lists)):
            found.append(f"{tab.url} {size['width']}: the page is {page} pixels too wide, lists {lists}")
        for is_dark in (is_dark for of_look, is_dark in looks if of_look == size):
            where = f"{tab.url} {size['width']} {'dark' if is_dark else 'light'}"
            found += [
                f"{where}: {rule['id']}: {node['target']} {node['html'][:200]} {node['failureSummary']}"
                for rule in tab.evaluate(_VIOLATIONS, [WITH_FRAME if with_frame else BUT_FRAME, is_dark])
                for node in rule["nodes"]
            ]
    return found


def test_every_page_is_accessible_obeys_its_policy_and_shows_all_columns(pages: dict[Address, str], tab: Page) -> None:
    """Create a second application, which adds a column to lists."""
    Application.objects.create(name="bicycle-shop")
    tab.goto(reverse("admin:index"))
    found = barriers(tab, with_frame=True)
    for address, looks in zip(addresses(pages), cycle(LOOKS_OF_PAGES), strict=False):
        tab.goto(address.url)
        found += barriers(tab, looks)
    assert not found, "\n".join(found)


def test_search_results_are_accessible_and_obey_their_policy(tab: Page, ada: UserProfile) -> None:
    append(ada, "source", [NewMessage("user", "My harpsichord came from Lyon.")])
    append(ada, "echo", [NewMessage("assistant", "Your harpsichord came from Lyon, you said.")])
    tab.goto(reverse("admin:sessions_app_userprofile_find", query={"q": "harpsichord"}))
    tab.get_by_text("Similar words in 1 other session").click()
    expect(tab.get_by_role("link", name="echo of ada")).to_be_visible()
    found = barriers(tab)
    assert not found, "\n".join(found)


def test_pages_before_the_login_are_accessible_and_obey_their_policy(tab: Page) -> None:
    tab.goto(reverse("docs"))
    tab.locator(".opblock-summary-control").first.click()
    tab.locator(".opblock-body").first.wait_for()
    tab.context.clear_cookies()
    tab.goto(reverse("admin:login"))
    found = barriers(tab, with_frame=True)
    tab.goto(page_url(User, "invitation", invitation_token(invite("ida", role="viewer", actor="test"))))
    assert found + barriers(tab) == []


def test_the_page_that_authorizes_an_assistant_is_accessible_and_leads_back_to_it(
    tab: Page, site: str, ada: UserProfile, settings: Settings
) -> None:
    let_ask(settings, site)
    there = f"{site}/admin/"  # a local address, like an assistant's
    client = Assistant.objects.register("Claude", [there], registered_itself=True)
    tab.goto(page_url(ApiKey, "authorize", **asked(client, redirect_uri=there)))
    found = barriers(tab)
    tab.get_by_label("User (user_id)").fill("ada")
    tab.get_by_role("button", name="Authorize").click()
    tab.wait_for_url(re.compile(re.escape(f"{there}?code=")))
    assert found == [] and ApiKey.objects.get().user == ada


def test_no_page_shows_an_internal_name(pages: dict[Address, str]) -> None:
    found = {address.url: names for address, html in pages.items() if (names := internal_names(address.url, html))}
    assert found == {}


def test_row_18_scripts_planted_in_every_text_never_run(
    pages: dict[Address, str], log_in: Callable[..., Page], site: str
) -> None:
    tab = log_in(bypass_csp=True, viewport=PHONE)  # so that only escaping prevents scripts, and little is drawn
    assert len(plant()) > 50
    ran: list[str] = []
    shown = 0
    tab.on("dialog", lambda dialog: ran.append(f"{tab.url}: {dialog.message}"))
    tab.on("request", lambda asked: ran.append(asked.url) if not asked.url.startswith((site, "data:")) else None)
    for address in addresses(pages):
        tab.goto(address.url)
        has_run, is_shown, elements = tab.evaluate(_PLANTED)
        assert has_run is None, address
        ran += [f"{address}: {element}" for element in elements]
        shown += is_shown
    assert ran == [] and shown > 30


def _one_of_each_view(links: list[tuple[str, str]]) -> dict[str, str]:
    """Return the paths and queries of a page's links: of each view one, because a page's rows have the same links."""
    return dict({resolve(path).view_name: (path, query) for path, query in links}.values())


@pytest.mark.usefixtures("furnished")
def test_row_18_a_viewer_sees_no_control_that_changes_anything(browser: Browser) -> None:
    """The browser parses the HTML of each page without loading it, because our scripts add no buttons."""
    found: dict[str, Any] = {}
    links: dict[str, str] = {}  # one query per path, because permissions depend on the path
    own = {reverse(f"admin:{name}") for name in ("password_change", "auth_user_second_factor")}  # they may change these
    client = operator(group="viewers")
    pages = {address.url: html for address, html in every_page(client, with_parts=True)}
    with browser.new_page() as tab:
        for url, html in pages.items():
            if url in own:
                continue
            ways, linked = tab.evaluate(_WAYS_AND_LINKS, [html, f"http://testserver{url}"])
            links |= _one_of_each_view(linked)
            if ways:
                found[url] = ways
    assert found == {} and len(links) > len(pages)
    elsewhere = ("".join(link) for link in sorted(links.items()) if link[0] not in pages)
    assert [link for link in elsewhere if client.get(link).status_code == 403] == []
