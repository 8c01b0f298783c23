"""A real browser on the whole site, with tabs of logged-in operators."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from tests.support import chromium
from tests.support.live import live_site, pooled
from tests.support.operator import operator
from tests.support.waiting import TIMEOUT

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--js-flags=--no-opt,--no-maglev",  # a page closes before optimizing its scripts would pay off
)
DESKTOP: ViewportSize = {"width": 1360, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

expect.set_options(timeout=TIMEOUT * 1_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser per module, because Playwright's event loop in this thread would disturb tests of other modules."""
    path = chromium.find()
    if not path:
        pytest.fail(chromium.MISSING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # Playwright's loop, which awaits nothing here
        with sync_playwright() as playwright:
            started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
            yield started
            started.close()


@pytest.fixture
def site(transactional_db: None) -> Iterator[str]:
    """The base URL of the site."""
    with pooled(), live_site() as url:
        yield url


@pytest.fixture
def log_in(browser: Browser, site: str) -> Iterator[Callable[..., Page]]:
    """A function that opens a tab as a superuser or an operator with the named permissions: see `operator`.

    Further arguments are those of `Browser.new_context`. Any error in a page fails the test, including errors of its
    content policy.
    """
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_tab(*permissions: str, **options: Any) -> Page:
        size = options.pop("viewport", DESKTOP)
        cookie = operator(*permissions, group=options.pop("group", "")).cookies["sessionid"]
        context = browser.new_context(base_url=site, viewport=size, **options)
        contexts.append(context)
        context.set_default_timeout(TIMEOUT * 1_000)
        context.add_cookies([{"name": "sessionid", "value": cookie.value, "url": site}])
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
        page.on("console", lambda line: problems.append(f"{page.url}: {line.text}") if line.type == "error" else None)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert not problems, problems


@pytest.fixture
def tab(log_in: Callable[..., Page]) -> Page:
    """A tab of a superuser."""
    return log_in()
