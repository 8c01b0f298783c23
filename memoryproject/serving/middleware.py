"""Middleware of all requests: the content policy, the size of bodies, the time in the database, and daily limits."""

from collections.abc import Callable
from functools import cache

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from rest_framework.exceptions import AuthenticationFailed

from sessions_app.api.authentication import check_key_later, check_key_now
from sessions_app.api.error_pages import API_PREFIX, error_response, unavailable
from sessions_app.database.transactions import ADMIN, RequestKind, Unavailable, serving
from sessions_app.models.daily_limit import Call, counting

_default_policy = cache(build_policy)


class ContentPolicyMiddleware(CSPMiddleware):
    """Adds the content security policy. The header is rebuilt if it has a nonce, or if a view changed the policy."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_custom = hasattr(request, "_csp_nonce") or any(name.startswith("_csp") for name in vars(response))
        if is_custom or settings.DEBUG or HEADER in response:
            return super().process_response(request, response)
        response[HEADER] = _default_policy()
        return response


class BodyLimitMiddleware(MiddlewareMixin):
    """Rejects bodies that exceed `API_MAX_BODY_BYTES`, and chunked bodies, whose length isn't declared."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        if not request.path.startswith(API_PREFIX):
            return None
        if "chunked" in request.headers.get("Transfer-Encoding", "").lower():
            text = "Send a Content-Length header. Chunked bodies are not accepted."
            return error_response(411, "length_required", text)
        length, limit = request.headers.get("Content-Length") or "0", settings.API_MAX_BODY_BYTES
        if length.isdecimal() and int(length) > limit:
            text = f"The body has {length} bytes; the limit is {limit}. Send fewer messages per request."
            return error_response(413, "too_large", text)
        return None


class LimitsMiddleware:
    """Limits how long a request may use the database, and returns 503 for temporary database errors.

    Counts API calls per key and application, and adds the rate limit headers to the response.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path.startswith(API_PREFIX):
            with serving(RequestKind.LONG, ADMIN):
                return self.get_response(request)
        with check_key_later(), serving(RequestKind.CALL), counting(Call()) as call:
            answer = self.get_response(request)
            for name, value in call.headers().items():
                answer[name] = value
            return self._checked(request, answer)

    def _checked(self, request: HttpRequest, answer: HttpResponse) -> HttpResponse:
        """Return the response. Check the key first, unless a query already has."""
        try:
            check_key_now()
        except AuthenticationFailed as error:
            refused = error_response(error.status_code, error.default_code, str(error))
            refused["WWW-Authenticate"] = "Bearer"
            return refused
        except OperationalError as error:
            return unavailable(request, Unavailable(error))
        return answer

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return 503 for database errors that may be temporary. Leave other errors to Django."""
        return unavailable(request, Unavailable(exception)) if isinstance(exception, OperationalError) else None
