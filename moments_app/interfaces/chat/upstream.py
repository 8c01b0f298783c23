"""The upstream: the model to which calls are forwarded. Its URL and key come only from settings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

import httpx2
from django.conf import settings

from moments_app.interfaces.chat.errors import ChatError

# Response headers that are passed on to the caller, in addition to rate limits: those that clients act on.
PASSED_ON = (
    "content-type",
    "content-length",
    "content-encoding",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-request-id",
)
CONNECT_SECONDS = 10.0  # until the upstream accepts the call
LIMITS = "x-ratelimit-"

# All errors of a call. Their messages may quote anything.
BROKEN = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError)

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()


@asynccontextmanager
async def opened(method: str, path: str, body: bytes | None = None) -> AsyncIterator[httpx2.Response]:
    """Call the upstream. Yield its response once it has started, and close the response at the end.

    Raises:
        ChatError: there is no upstream, it can't be reached, or it redirects.
    """
    conf = settings.CHAT
    if not conf.upstream_base_url:
        raise ChatError(503, "no_upstream", "No model endpoint is configured. Set CHAT__UPSTREAM_BASE_URL.")
    try:
        request = _client().build_request(
            method, f"{conf.upstream_base_url.rstrip('/')}{path}", content=body, headers=_headers(), timeout=_timeout()
        )
        response = await _client().send(request, stream=True)
    except BROKEN as error:
        raise broken(error) from None
    try:
        if response.is_redirect:
            raise ChatError(
                502,
                "upstream_redirects",
                "The model endpoint answered with a redirect, which is not followed. Check CHAT__UPSTREAM_BASE_URL.",
            )
        yield response
    finally:
        await response.aclose()


def broken(error: Exception) -> ChatError:
    """Return the error of an upstream that can't be reached: its kind, never its text."""
    if isinstance(error, httpx2.TimeoutException):
        return ChatError(504, "upstream_timeout", "The model endpoint did not respond in time.")
    return ChatError(
        502,
        "upstream_unavailable",
        f"The model endpoint can't be reached ({type(error).__name__}). Check CHAT__UPSTREAM_BASE_URL.",
    )


def passed_on(response: httpx2.Response) -> dict[str, str]:
    """Return the response headers that the caller receives."""
    return {name: value for name, value in response.headers.items() if name in PASSED_ON or name.startswith(LIMITS)}


def _client() -> httpx2.AsyncClient:
    """Return the event loop's client, which keeps connections open. It ignores proxies in the environment."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        _clients[loop] = httpx2.AsyncClient(limits=limits, trust_env=False, follow_redirects=False)
    return _clients[loop]


async def close() -> None:
    """Close the connections of an event loop that ends."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


def _headers() -> dict[str, str]:
    key = settings.CHAT.upstream_api_key.get_secret_value()
    # Compression is not requested, because an answer is read while it is relayed.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def _timeout() -> httpx2.Timeout:
    return httpx2.Timeout(settings.CHAT.read_timeout_seconds, connect=CONNECT_SECONDS)
