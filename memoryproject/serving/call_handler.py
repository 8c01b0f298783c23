"""Two Django handlers: one for pages, and one for API calls, which skips the middleware that only pages need.

Logins, second factors, forms and messages exist only on pages. A call has just a key in its header.
"""

from collections.abc import Iterable

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from memoryproject.serving.front import Environ, StartResponse
from sessions_app.api.errors import API_PREFIX


class CallHandler(WSGIHandler):
    """A handler without the middleware of pages."""

    def load_middleware(self, is_async: bool = False) -> None:
        """Load the middleware in the settings, except `MIDDLEWARE_OF_PAGES`. Django reads the settings only here."""
        named = settings.MIDDLEWARE
        settings.MIDDLEWARE = [name for name in named if name not in settings.MIDDLEWARE_OF_PAGES]
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = named


class Handlers:
    """The WSGI application. It passes each request to one of the two handlers."""

    def __init__(self) -> None:
        self._pages, self._calls = WSGIHandler(), CallHandler()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        is_call = environ["PATH_INFO"].startswith(API_PREFIX) and "HTTP_AUTHORIZATION" in environ
        return (self._calls if is_call else self._pages)(environ, start_response)
