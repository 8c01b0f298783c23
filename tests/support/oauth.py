"""An assistant that uses the MCP SDK to request a key by OAuth, with an operator's browser."""

import asyncio
import base64
import hashlib
import html
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from django.db import connection
from django.test import Client as Browser
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl
from pytest_django.fixtures import Settings

from memory_extras.oauth.conf import OAuthSettings
from memory_extras.oauth.conf import provider as django_oauth_toolkit
from memory_extras.oauth.models import Assistant
from tests.support.openid_provider import CLIENT_ID, CLIENT_SECRET, OpenIDProvider

BACK = "http://localhost:3333/callback"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


def let_ask(settings: Settings, site: str, *, open_registration: bool = False) -> None:
    """Set the site's address for OAuth. Blank turns OAuth off."""
    settings.OAUTH = OAuthSettings(site=site, open_registration=open_registration)
    settings.OAUTH2_PROVIDER = django_oauth_toolkit(settings.OAUTH)


def let_log_in(settings: Settings, site: str, provider: OpenIDProvider, **more: Any) -> None:
    """Let end users log in at a provider, to grant access to their own memory.

    Args:
        more: Further settings of the extra.
    """
    own = {"openid_issuer": provider.issuer, "openid_client_id": CLIENT_ID, "openid_client_secret": CLIENT_SECRET}
    settings.OAUTH = OAuthSettings.model_validate({"site": site, "open_registration": True} | own | more)
    settings.OAUTH2_PROVIDER = django_oauth_toolkit(settings.OAUTH)
    provider.callback = f"{site}/authorize/callback"


def asked(client: Assistant, **more: str) -> dict[str, str]:
    """Return the parameters of a valid authorization request, with some of them replaced."""
    whole = {"response_type": "code", "client_id": client.client_id, "redirect_uri": BACK, "state": "s"}
    return whole | {"code_challenge": CHALLENGE, "code_challenge_method": "S256", "scope": "read write"} | more


def back_from(answer: Any) -> dict[str, str]:
    """Return the parameters that the redirect page passes to the assistant."""
    found = re.search(r'<meta http-equiv="refresh" content="1;url=([^"]+)"', answer.content.decode())
    assert found, answer.content
    address = html.unescape(found[1])
    assert address.startswith(f"{BACK}?")
    return dict(parse_qsl(urlsplit(address).query))


class Kept:
    """The storage of an SDK client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def signing_in(site: str, kept: Kept, browser: Browser, pages: list[str]) -> OAuthClientProvider:
    """Return the SDK's authentication. Its browser belongs to an operator, who grants the request.

    Args:
        site: The base URL.
        kept: The client's storage, for several connections.
        browser: A logged-in browser.
        pages: Receives the consent pages.
    """
    answers: list[dict[str, str]] = []

    def consent(url: str) -> None:
        there = urlsplit(url)
        query = dict(parse_qsl(there.query))
        page = urlsplit(browser.get(there.path, query_params=query)["Location"]).path
        pages.append(browser.get(page, query_params=query).content.decode())
        form = {"user_id": "ada", "scope": ["read", "write"], "days": 30, "allow": "", "begins": "on"}
        answers.append(back_from(browser.post(page, form, query_params=query)))

    def in_thread(url: str) -> None:
        try:
            consent(url)
        finally:
            connection.close()  # this thread's connection

    async def redirect(url: str) -> None:
        await asyncio.to_thread(in_thread, url)

    async def callback() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**answers.pop())

    metadata = OAuthClientMetadata(client_name="Claude", redirect_uris=[AnyUrl(BACK)])
    return OAuthClientProvider(f"{site}/mcp", metadata, kept, redirect, callback)
