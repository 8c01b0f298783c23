"""Two Django handlers: one for pages, and one for API calls, which skips the middleware that only pages need.

Logins, second factors, forms and messages exist only on pages. API calls need only the key in their header. All
responses have the content security policy. Its header is built once, and used for all responses that don't change the
policy.
"""

from collections.abc import Iterable
from functools import cache

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from memoryproject.serving.request_limits import Environ, StartResponse
from sessions_app.api.errors import API_PREFIX

_default_policy = cache(build_policy)


class CallHandler(WSGIHandler):
    def load_middleware(self, is_async: bool = False) -> None:
        """Load the middleware in the settings, except `MIDDLEWARE_OF_PAGES`. Django reads the settings only here."""
        named = settings.MIDDLEWARE
        settings.MIDDLEWARE = [name for name in named if name not in settings.MIDDLEWARE_OF_PAGES]
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = named


class Handlers:
    def __init__(self) -> None:
        self._pages, self._calls = WSGIHandler(), CallHandler()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        is_call = environ["PATH_INFO"].startswith(API_PREFIX) and "HTTP_AUTHORIZATION" in environ
        return (self._calls if is_call else self._pages)(environ, start_response)


class ContentPolicyMiddleware(CSPMiddleware):
    """Adds the content security policy. The header is rebuilt if it has a nonce, or if a view changed the policy."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_custom = hasattr(request, "_csp_nonce") or any(name.startswith("_csp") for name in vars(response))
        if is_custom or settings.DEBUG or HEADER in response:
            return super().process_response(request, response)
        response[HEADER] = _default_policy()
        return response
