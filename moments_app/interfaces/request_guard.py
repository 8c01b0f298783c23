"""Check and count requests to MCP and the chat endpoint, which Django's middleware doesn't cover."""

from io import BytesIO
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http.request import validate_host
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessions_app.daily_limits import Call, counting
from sessions_app.refusals import Refusal


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
    """Check the host, origin and encryption of a request. Return it as a Django request without a body.

    Raises:
        UnknownHost, OtherSite, NeedsHttps: a check failed.
    """
    http = ASGIRequest(scope, BytesIO())
    try:
        http.get_host()
    except DisallowedHost:
        raise UnknownHost("This host is not served. Add it to ALLOWED_HOSTS.") from None
    origin = http.headers.get("Origin", "")
    of_ours = validate_host(urlsplit(origin).hostname or "", settings.ALLOWED_HOSTS)
    if origin and not of_ours and origin not in settings.CSRF_TRUSTED_ORIGINS:
        raise OtherSite("Requests from pages of other sites are rejected.")
    if settings.SECURE_SSL_REDIRECT and not http.is_secure():
        raise NeedsHttps("Use HTTPS.")
    return http


def counted(application: ASGIApp) -> ASGIApp:
    """Wrap an ASGI application to count its calls and report usage, like `DailyLimitsMiddleware`."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        with counting(Call()) as call:

            async def tell(message: Message) -> None:
                if message["type"] == "http.response.start":
                    told = [(name.lower().encode(), value.encode()) for name, value in call.headers().items()]
                    message["headers"] = [*message.get("headers", ()), *told]
                await send(message)

            await application(scope, receive, tell)

    return serve
