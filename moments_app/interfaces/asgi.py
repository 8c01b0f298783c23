"""Code shared by the ASGI applications that run next to Django, which are MCP and the chat endpoint."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from io import BytesIO
from typing import TypeVar
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http.request import validate_host
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memoryproject.serving.fair_shares import caller, charge_caller
from memoryproject.serving.request_limits import RESERVED_THREADS, ThreadsOfLoops
from sessions_app.database.transactions import RequestKind, serving
from sessions_app.models.daily_limit import Call, counting
from sessions_app.refusals import Refusal

T = TypeVar("T")

_chat_threads = ThreadPoolExecutor(settings.DATABASE_POOL_SIZE, thread_name_prefix="chat")
_chat_shares = ThreadsOfLoops(max(settings.DATABASE_POOL_SIZE - RESERVED_THREADS, 1))


class UnknownHost(Refusal):
    """The request's host is not served."""

    code = "unknown_host"


class OtherSite(Refusal):
    """The request comes from a page of another site."""

    code, status = "other_site", 403


class NeedsHttps(Refusal):
    """The request sent its key without encryption."""

    code, status = "https_required", 403


def check_request(scope: Scope) -> ASGIRequest:
    """Check the host, origin and encryption of a request. Return it as a Django request without a body."""
    http = ASGIRequest(scope, BytesIO())
    try:
        http.get_host()
    except DisallowedHost:
        raise UnknownHost("This host is not served. Add it to ALLOWED_HOSTS.") from None
    origin = http.headers.get("Origin", "")
    is_own = validate_host(urlsplit(origin).hostname or "", settings.ALLOWED_HOSTS)
    if origin and not is_own and origin not in settings.CSRF_TRUSTED_ORIGINS:
        raise OtherSite("Requests from pages of other sites are rejected.")
    if settings.SECURE_SSL_REDIRECT and not http.is_secure():
        raise NeedsHttps("Use HTTPS.")
    return http


def count_calls(application: ASGIApp) -> ASGIApp:
    """Wrap an ASGI application to count its calls. Report the usage in headers, like `LimitsMiddleware`."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        with counting(Call()) as call:

            async def send_with_usage(message: Message) -> None:
                if message["type"] == "http.response.start":
                    usage = [(name.lower().encode(), value.encode()) for name, value in call.headers().items()]
                    message["headers"] = [*message.get("headers", ()), *usage]
                await send(message)

            await application(scope, receive, send_with_usage)

    return serve


async def in_chat_thread(work: Callable[[], T]) -> T:
    """Run the database work of a chat call in a thread, and close its connection afterwards.

    Each application has a share of the threads, so no application can occupy all of them.
    """
    run = copy_context().run
    async with _chat_shares.current().occupy_share(caller()), charge_caller():
        return await asyncio.get_running_loop().run_in_executor(_chat_threads, run, _run_and_close, work)


def _run_and_close(work: Callable[[], T]) -> T:
    try:
        with serving(RequestKind.CALL):
            return work()
    finally:
        connection.close()
