"""The check of a request's size, before it reaches a view."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from sessions_app.api.errors import API_PREFIX, error_response


class BodyLimitMiddleware:
    """Refuses bodies over `API_MAX_BODY_BYTES` before a byte is read, and bodies that don't say their length."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith(API_PREFIX):
            if "chunked" in request.headers.get("Transfer-Encoding", "").lower():
                return error_response(411, "length_required", "Send a Content-Length; chunked bodies are not read.")
            length = request.headers.get("Content-Length") or "0"
            if length.isdecimal() and int(length) > settings.API_MAX_BODY_BYTES:
                limit = settings.API_MAX_BODY_BYTES
                return error_response(413, "too_large", f"The body has {length} bytes; the limit is {limit}.")
        return self.get_response(request)
