"""Two Django handlers: one for pages, and one for API calls, which skips the middleware that only pages need.

Logins, second factors, forms and messages exist only on pages. API calls need only the key in their header.
"""

from collections.abc import Iterable

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from memoryproject.serving.request_limits import Environ, StartResponse
from sessions_app.api.error_pages import API_PREFIX


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
