"""An end user whose assistant requests access over MCP: from the login at the provider to a search of their memory."""

import asyncio
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from playwright.sync_api import Browser, Page, expect
from pydantic import AnyUrl
from pytest_django.fixtures import Settings

from memory_extras.oauth.models import Assistant, Consent
from moments_app.models import MemoryStream
from sessions_app.models import UserProfile
from tests.browser.test_every_page import AXE, barriers
from tests.support.oauth import Kept, asked, let_log_in
from tests.support.openid_provider import CLIENT_ID, CLIENT_SECRET, OpenIDProvider
from tests.support.processes import environment, free_port, web_at
from tests.support.streams import note
from tests.support.waiting import TIMEOUT

pytestmark = [pytest.mark.slow(seconds=30), pytest.mark.django_db(transaction=True)]


class Connection:
    """An MCP client that registers itself and requests access. It searches when it has its token."""

    def __init__(self, site: str, back: str) -> None:
        self._site, self._back = site, back
        self.kept = Kept()
        self._pages, self._answers = queue.Queue[str](), queue.Queue[dict[str, str]]()

    def page(self) -> str:
        """Return the URL that the client opens in the browser."""
        return self._pages.get(timeout=TIMEOUT)

    def answer(self, url: str) -> None:
        """Pass on the URL to which the browser was redirected."""
        self._answers.put(dict(parse_qsl(urlsplit(url).query)))

    def search(self, query: str) -> list[str]:
        """Return the contents of a search's results."""
        return asyncio.run(self._search(query))

    def is_let_in(self) -> bool:
        """Return whether the token of the last search is valid."""
        assert self.kept.tokens
        key = {
            "Authorization": f"Bearer {self.kept.tokens.access_token}",
            "Accept": "application/json, text/event-stream",
        }
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        return httpx2.post(f"{self._site}/mcp", json=ping, headers=key).status_code != 401

    async def _search(self, query: str) -> list[str]:
        metadata = OAuthClientMetadata(client_name="Claude", redirect_uris=[AnyUrl(self._back)])
        auth = OAuthClientProvider(f"{self._site}/mcp", metadata, self.kept, self._redirect, self._callback)
        async with (
            httpx2.AsyncClient(auth=auth, timeout=TIMEOUT) as http,
            Client(streamable_http_client(f"{self._site}/mcp", http_client=http)) as client,
        ):
            found: Any = (await client.call_tool("search_long_term_memory", {"query": query})).structured_content
            return [result["content"] for result in found["results"]]

    async def _redirect(self, url: str) -> None:
        self._pages.put(url)

    async def _callback(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**await asyncio.to_thread(self._answers.get, timeout=TIMEOUT))


@contextmanager
def web(provider: OpenIDProvider) -> Iterator[str]:
    """Run a web server that uses a provider. Yield its base URL."""
    port = free_port()
    site = f"http://127.0.0.1:{port}"
    provider.callback = f"{site}/authorize/callback"
    variables = environment(
        ALLOWED_HOSTS="127.0.0.1",
        OAUTH__SITE=site,
        OAUTH__OPEN_REGISTRATION="true",
        OAUTH__OPENID_ISSUER=provider.issuer,
        OAUTH__OPENID_CLIENT_ID=CLIENT_ID,
        OAUTH__OPENID_CLIENT_SECRET=CLIENT_SECRET,
    )
    with web_at(port, variables):
        yield site


def test_row_9_an_end_user_gives_an_assistant_access_to_their_own_memory_only(
    browser: Browser, ada: UserProfile, bo: UserProfile
) -> None:
    for user, text in ((ada, "Ada restores kilns in Turin."), (bo, "Bo sells kilns in Oslo.")):
        note(MemoryStream.objects.ensure_of_person(user, "default"), text, "fact")
    with (
        OpenIDProvider() as provider,
        web(provider) as site,
        browser.new_page() as tab,
        ThreadPoolExecutor(1) as thread,
    ):
        back = f"{site}/healthz"
        connection = Connection(site, back)
        found: Future[list[str]] = thread.submit(connection.search, "kilns")
        tab.goto(connection.page())
        expect(tab.get_by_role("heading", name="“Claude” asks for access to your memory")).to_be_visible()
        tab.get_by_role("link", name="Log in to continue").click()
        tab.get_by_label("User").fill("ada")
        tab.get_by_role("button", name="Log in").click()
        expect(tab.get_by_text("Logged in as ada.")).to_be_visible()
        tab.get_by_label("Read").check()
        tab.get_by_role("button", name="Authorize").click()
        tab.wait_for_url(f"{back}?code=*")
        connection.answer(tab.url)
        assert found.result(TIMEOUT) == ["Ada restores kilns in Turin."]
        assert Consent.objects.get().key.user == ada
        assert connection.is_let_in()
        tab.goto(f"{site}/authorize/grants")
        tab.get_by_role("link", name="Log in").click()
        tab.get_by_label("User").fill("ada")
        tab.get_by_role("button", name="Log in").click()
        expect(tab.get_by_role("heading", name="Claude")).to_be_visible()
        tab.get_by_text("Revoke…").click()
        tab.get_by_role("button", name="Revoke access").click()
        expect(tab.get_by_text("You have given no assistant access to your memory.")).to_be_visible()
        assert not connection.is_let_in()
        tab.goto(f"{site}/admin/")
        expect(tab.get_by_label("Password")).to_be_visible()


def test_the_pages_of_end_users_are_accessible_and_obey_their_policy(
    log_in: Callable[..., Page], site: str, settings: Settings
) -> None:
    tab = log_in()
    tab.add_init_script(AXE)
    tab.context.clear_cookies()
    client = Assistant.objects.register("Claude", [f"{site}/healthz"], registered_itself=True)
    query = httpx2.QueryParams(asked(client, redirect_uri=f"{site}/healthz"))
    with OpenIDProvider() as provider:
        let_log_in(settings, site, provider)
        tab.goto(f"/authorize?{query}")
        found = barriers(tab)
        tab.get_by_role("link", name="Log in to continue").click()
        tab.get_by_role("button", name="Log in").click()
        expect(tab.get_by_text("You did not log in.")).to_be_visible()
        found += barriers(tab)
        tab.get_by_role("link", name="Log in").click()
        tab.get_by_label("User").fill("a" * 255)
        tab.get_by_role("button", name="Log in").click()
        expect(tab.get_by_text("no memory about you yet")).to_be_visible()
        found += barriers(tab)
        tab.get_by_role("button", name="Log out").click()
        tab.get_by_role("link", name="Log in to continue").click()
        expect(tab.get_by_label("User")).to_be_visible()
        assert provider.prompts[-1] == "login"
        tab.get_by_label("User").fill("ada")
        tab.get_by_role("button", name="Log in").click()
        tab.get_by_role("button", name="Authorize").click()
        tab.wait_for_url(f"{site}/healthz*")
        tab.goto("/authorize/grants")
        found += barriers(tab)
        tab.get_by_role("link", name="Log in").click()
        tab.get_by_label("User").fill("ada")
        tab.get_by_role("button", name="Log in").click()
        tab.get_by_text("Revoke…").click()
        found += barriers(tab)
    assert found == []
